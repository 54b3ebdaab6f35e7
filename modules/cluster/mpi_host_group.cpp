#include "cluster/mpi_host_group.hpp"

#include <cstring>
#include <numeric>

#include "cluster/mpi_check.hpp"
#include "cluster/mpi_reduction.hpp"
#include "cluster/mpi_segments.hpp"
#include "cluster/mpi_transfer.hpp"
#include "cluster/mpi_wait.hpp"

namespace lockstep::cluster {

void MpiHostGroup::all_reduce(std::vector<double>& values, Reduce operation) {
    const FlightScope noted(group_->note(FlightKind::all_reduce, values.size() * sizeof(double)));
    all_reduce_segmented(values.data(), values.size(), Type::fp64, operation, group_->comm());
}

void MpiHostGroup::all_reduce(std::vector<std::int64_t>& values, Reduce operation) {
    const FlightScope noted(group_->note(FlightKind::all_reduce, values.size() * sizeof(std::int64_t)));
    const MPI_Op op = mpi_reduction(Type::int32, operation).operation;
    for_each_segment(values.data(), values.size(), sizeof(std::int64_t), [&](char* segment, int count) {
        wait_for([&](MPI_Request* request) {
            LOCKSTEP_MPI(MPI_Iallreduce, MPI_IN_PLACE, segment, count, MPI_INT64_T, op, group_->comm(), request);
        });
    });
}

void MpiHostGroup::broadcast(void* data, std::size_t bytes, int root) {
    const FlightScope noted(group_->note(FlightKind::broadcast, bytes));
    for_each_segment(data, bytes, 1, [&](char* segment, int count) {
        wait_for([&](MPI_Request* request) {
            LOCKSTEP_MPI(MPI_Ibcast, segment, count, MPI_BYTE, root, group_->comm(), request);
        });
    });
}

std::vector<char> MpiHostGroup::gather(const void* data, std::size_t bytes, int root) {
    std::vector<char> all(rank() == root ? bytes * static_cast<std::size_t>(size()) : 0);
    if (bytes == 0) return all;
    const FlightScope noted(group_->note(FlightKind::gather, bytes));
    const std::size_t step = largest_segment();
    if (bytes <= step) {
        wait_for([&](MPI_Request* request) {
            LOCKSTEP_MPI(MPI_Igather, data, static_cast<int>(bytes), MPI_BYTE, all.data(), static_cast<int>(bytes),
                         MPI_BYTE, root, group_->comm(), request);
        });
        return all;
    }
    std::vector<char> segment(rank() == root ? step * static_cast<std::size_t>(size()) : 0);
    for (std::size_t first = 0; first < bytes; first += step) {
        const std::size_t now = std::min(step, bytes - first);
        wait_for([&](MPI_Request* request) {
            LOCKSTEP_MPI(MPI_Igather, static_cast<const char*>(data) + first, static_cast<int>(now), MPI_BYTE,
                         segment.data(), static_cast<int>(now), MPI_BYTE, root, group_->comm(), request);
        });
        if (rank() != root) continue;
        for (std::size_t rank = 0; rank < static_cast<std::size_t>(size()); ++rank)
            std::memcpy(all.data() + rank * bytes + first, segment.data() + rank * now, now);
    }
    return all;
}

std::vector<char> MpiHostGroup::all_gather_bytes(const void* data, std::size_t bytes) {
    const FlightScope noted(group_->note(FlightKind::all_gather, bytes));
    std::vector<std::uint64_t> sizes(static_cast<std::size_t>(size()));
    const std::uint64_t own = bytes;
    wait_for([&](MPI_Request* request) {
        LOCKSTEP_MPI(MPI_Iallgather, &own, 1, MPI_UINT64_T, sizes.data(), 1, MPI_UINT64_T, group_->comm(), request);
    });
    std::vector<std::uint64_t> offsets(sizes.size() + 1);
    std::partial_sum(sizes.begin(), sizes.end(), offsets.begin() + 1);
    std::vector<char> all(offsets.back());
    if (all.size() <= largest_segment()) {
        const std::vector<int> counts(sizes.begin(), sizes.end()), places(offsets.begin(), offsets.end() - 1);
        wait_for([&](MPI_Request* request) {
            LOCKSTEP_MPI(MPI_Iallgatherv, data, static_cast<int>(bytes), MPI_BYTE, all.data(), counts.data(),
                         places.data(), MPI_BYTE, group_->comm(), request);
        });
        return all;
    }
    if (bytes > 0) std::memcpy(all.data() + offsets[static_cast<std::size_t>(rank())], data, bytes);
    for (std::size_t rank = 0; rank < sizes.size(); ++rank)
        broadcast(all.data() + offsets[rank], sizes[rank], static_cast<int>(rank));
    return all;
}

void MpiHostGroup::barrier() {
    const FlightScope noted(group_->note(FlightKind::barrier, 0));
    wait_for([&](MPI_Request* request) { LOCKSTEP_MPI(MPI_Ibarrier, group_->comm(), request); });
}

void MpiHostGroup::exchange(const std::vector<HostMessage>& receives, const std::vector<HostMessage>& sends) {
    std::size_t bytes = 0;
    for (const HostMessage& message : receives) bytes += message.bytes;
    const FlightScope noted(group_->note(FlightKind::exchange, bytes));
    MpiRequests requests;
    for (const HostMessage& message : receives)
        start_receive(requests, message.data, message.bytes, message.rank, 0, group_->comm());
    for (const HostMessage& message : sends)
        start_send(requests, message.data, message.bytes, message.rank, 0, group_->comm());
    wait_for_all(requests);
}

}  // namespace lockstep::cluster
