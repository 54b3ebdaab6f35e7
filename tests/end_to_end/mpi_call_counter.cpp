// Preloaded before MPI, counts a rank's collectives and messages of the kinds that the modules use, and the bytes that
// it receives in them, by MPI's profiling interface: lines "allgather 12 3072" in the file $LOCKSTEP_MPI_CALLS.RANK.
// Nonblocking calls count as their blocking twins.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

namespace {

struct Calls {
    long count = 0;
    double bytes = 0;
};
std::map<std::string, Calls> calls;

double size_of(MPI_Datatype type) {
    int bytes = 0;
    PMPI_Type_size(type, &bytes);
    return bytes;
}
int ranks_of(MPI_Comm group) {
    int ranks = 0;
    PMPI_Comm_size(group, &ranks);
    return ranks;
}
bool is(int root, MPI_Comm group) {
    int rank = 0;
    PMPI_Comm_rank(group, &rank);
    return rank == root;
}
double sum_of(const int counts[], MPI_Comm group) {
    double sum = 0;
    for (int rank = 0; rank < ranks_of(group); ++rank) sum += counts[rank];
    return sum;
}

void note(const char* name, double bytes) {
    Calls& known = calls[name];
    ++known.count;
    known.bytes += bytes;
}

}  // namespace

extern "C" {

int MPI_Allreduce(const void* from, void* to, int count, MPI_Datatype type, MPI_Op operation, MPI_Comm group) {
    note("allreduce", count * size_of(type));
    return PMPI_Allreduce(from, to, count, type, operation, group);
}
int MPI_Iallreduce(const void* from, void* to, int count, MPI_Datatype type, MPI_Op operation, MPI_Comm group,
                   MPI_Request* request) {
    note("allreduce", count * size_of(type));
    return PMPI_Iallreduce(from, to, count, type, operation, group, request);
}
int MPI_Ireduce(const void* from, void* to, int count, MPI_Datatype type, MPI_Op operation, int root, MPI_Comm group,
                MPI_Request* request) {
    note("reduce", is(root, group) ? count * size_of(type) : 0);
    return PMPI_Ireduce(from, to, count, type, operation, root, group, request);
}
int MPI_Ireduce_scatter(const void* from, void* to, const int counts[], MPI_Datatype type, MPI_Op operation,
                        MPI_Comm group, MPI_Request* request) {
    note("reduce_scatter", sum_of(counts, group) * size_of(type));
    return PMPI_Ireduce_scatter(from, to, counts, type, operation, group, request);
}
int MPI_Allgather(const void* from, int sent, MPI_Datatype of_sent, void* to, int count, MPI_Datatype type,
                  MPI_Comm group) {
    note("allgather", ranks_of(group) * count * size_of(type));
    return PMPI_Allgather(from, sent, of_sent, to, count, type, group);
}
int MPI_Iallgather(const void* from, int sent, MPI_Datatype of_sent, void* to, int count, MPI_Datatype type,
                   MPI_Comm group, MPI_Request* request) {
    note("allgather", ranks_of(group) * count * size_of(type));
    return PMPI_Iallgather(from, sent, of_sent, to, count, type, group, request);
}
int MPI_Allgatherv(const void* from, int sent, MPI_Datatype of_sent, void* to, const int counts[], const int starts[],
                   MPI_Datatype type, MPI_Comm group) {
    note("allgather", sum_of(counts, group) * size_of(type));
    return PMPI_Allgatherv(from, sent, of_sent, to, counts, starts, type, group);
}
int MPI_Iallgatherv(const void* from, int sent, MPI_Datatype of_sent, void* to, const int counts[], const int starts[],
                    MPI_Datatype type, MPI_Comm group, MPI_Request* request) {
    note("allgather", sum_of(counts, group) * size_of(type));
    return PMPI_Iallgatherv(from, sent, of_sent, to, counts, starts, type, group, request);
}
int MPI_Igather(const void* from, int sent, MPI_Datatype of_sent, void* to, int count, MPI_Datatype type, int root,
                MPI_Comm group, MPI_Request* request) {
    note("gather", is(root, group) ? ranks_of(group) * count * size_of(type) : 0);
    return PMPI_Igather(from, sent, of_sent, to, count, type, root, group, request);
}
int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm group) {
    note("broadcast", count * size_of(type));
    return PMPI_Bcast(data, count, type, root, group);
}
int MPI_Ibcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm group, MPI_Request* request) {
    note("broadcast", count * size_of(type));
    return PMPI_Ibcast(data, count, type, root, group, request);
}
int MPI_Ibarrier(MPI_Comm group, MPI_Request* request) {
    note("barrier", 0);
    return PMPI_Ibarrier(group, request);
}
int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm group, MPI_Request* request) {
    note("send", 0);
    return PMPI_Isend(data, count, type, to, tag, group, request);
}
int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm group, MPI_Request* request) {
    note("receive", count * size_of(type));
    return PMPI_Irecv(data, count, type, from, tag, group, request);
}
int MPI_Comm_split(MPI_Comm group, int color, int key, MPI_Comm* made) {
    note("split", 0);
    return PMPI_Comm_split(group, color, key, made);
}
int MPI_Comm_dup(MPI_Comm group, MPI_Comm* made) {
    note("duplicate", 0);
    return PMPI_Comm_dup(group, made);
}
int MPI_Comm_create_group(MPI_Comm group, MPI_Group ranks, int tag, MPI_Comm* made) {
    note("create_group", 0);
    return PMPI_Comm_create_group(group, ranks, tag, made);
}

int MPI_Finalize() {
    const char* path = std::getenv("LOCKSTEP_MPI_CALLS");
    int rank = 0;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (std::FILE* file = path ? std::fopen((std::string(path) + "." + std::to_string(rank)).c_str(), "w") : nullptr) {
        for (const auto& [name, known] : calls)
            std::fprintf(file, "%s %ld %.0f\n", name.c_str(), known.count, known.bytes);
        std::fclose(file);
    }
    return PMPI_Finalize();
}

}  // extern "C"
