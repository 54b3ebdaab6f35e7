#include "cluster/mpi_group.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/clock.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "cluster/mpi_check.hpp"
#include "device/sync.hpp"

namespace lockstep::cluster {
namespace {

// With --sync collective: how long a rank waits before it warns.
constexpr double first_warning_seconds = 5;

constexpr int largest_tag = 32767;  // guaranteed by the MPI standard

// A private communicator of these world ranks.
MPI_Comm make_group(const std::vector<int>& ranks) {
    LOCKSTEP_ASSERT(!ranks.empty() && ranks.front() >= 0);
    LOCKSTEP_ASSERT(std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) == ranks.end());
    const std::vector<int> all = all_ranks();
    MPI_Comm made = MPI_COMM_NULL;
    if (ranks == all) {
        LOCKSTEP_MPI(MPI_Comm_dup, MPI_COMM_WORLD, &made);
        return made;
    }
    int own = 0;
    LOCKSTEP_MPI(MPI_Comm_rank, MPI_COMM_WORLD, &own);
    LOCKSTEP_ASSERT(std::binary_search(ranks.begin(), ranks.end(), own) && ranks.back() <= all.back());
    MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
    LOCKSTEP_MPI(MPI_Comm_group, MPI_COMM_WORLD, &world);
    LOCKSTEP_MPI(MPI_Group_incl, world, static_cast<int>(ranks.size()), ranks.data(), &group);
    LOCKSTEP_MPI(MPI_Comm_create_group, MPI_COMM_WORLD, group, 0, &made);
    LOCKSTEP_MPI(MPI_Group_free, &group);
    LOCKSTEP_MPI(MPI_Group_free, &world);
    return made;
}

}  // namespace

std::vector<int> all_ranks() {
    int size = 1;
    LOCKSTEP_MPI(MPI_Comm_size, MPI_COMM_WORLD, &size);
    std::vector<int> ranks(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
}

MpiGroup::MpiGroup(const std::vector<int>& ranks, const std::string& name)
    : comm_(make_group(ranks)), ranks_(ranks), flight_group_(flight_recorder().add_group(name, ranks)) {
    LOCKSTEP_MPI(MPI_Comm_set_errhandler, comm_, MPI_ERRORS_RETURN);
    LOCKSTEP_MPI(MPI_Comm_rank, comm_, &rank_);
}

std::uint64_t MpiGroup::note(FlightKind kind, std::size_t bytes, int peer, bool on_device) const {
    const int of_world = peer < 0 ? -1 : ranks_[static_cast<std::size_t>(peer)];
    return flight_recorder().begin(flight_group_, kind, bytes, of_world, on_device);
}

void MpiGroup::meet(const char* what, std::size_t bytes) {
    if (sync_mode() != SyncMode::collective) return;
    ++meetings_;
    const std::uint64_t before = flight_recorder().wait_for(flight_recorder().newest());
    MPI_Request request = MPI_REQUEST_NULL;
    LOCKSTEP_MPI(MPI_Ibarrier, comm_, &request);
    double next_warning = seconds_now() + first_warning_seconds;
    for (int done = 0; !done;) {
        LOCKSTEP_MPI(MPI_Test, &request, &done, MPI_STATUS_IGNORE);
        if (!done) static_cast<void>(sched_yield());
        if (done || seconds_now() < next_warning) continue;
        log::warning("rank {} is waiting for the other ranks at operation {}, {} of {}", rank_, meetings_, what,
                     human_bytes(static_cast<double>(bytes)));
        next_warning += 10 * first_warning_seconds;
    }
    static_cast<void>(flight_recorder().wait_for(before));
}

void MpiGroup::check_transfer(Use use, int other, int tag) const {
    if (use == Use::collectives)
        throw fault_error("rank {} sends or receives on a communicator made for collectives only", rank_);
    if (other == rank_) throw fault_error("rank {} sends to or receives from itself", rank_);
    LOCKSTEP_ASSERT(other >= 0 && other < size() && tag >= 0 && tag <= largest_tag);
}

}  // namespace lockstep::cluster
