#include "cluster/binding.hpp"

#include <hwloc.h>

#include <atomic>
#include <mutex>

#include "base/error.hpp"
#include "base/log.hpp"
#include "device/parallel.hpp"

namespace lockstep::cluster {
namespace {

struct Bound {
    std::shared_ptr<const Topology> topology;
    CpuSet helpers;
    std::vector<int> core_of_thread;  // empty: threads are not pinned to cores
};
// Read by threads at any time, so it is replaced atomically.
std::mutex bound_lock;
std::shared_ptr<const Bound> bound_now;
std::atomic<bool> warned = false;

std::shared_ptr<const Bound> current() {
    const std::lock_guard<std::mutex> guard(bound_lock);
    return bound_now;
}

void warn_once(const std::string& sentence) {
    if (!warned.exchange(true)) log::warning("{}; continuing without this binding", sentence);
}

// Binds and verifies that the system did so.
void bind_to(const Topology& topology, const CpuSet& units, int flags, const char* what) {
    const auto wanted = bitmap_of(units);
    if (hwloc_set_cpubind(topology.get(), wanted.get(), flags) != 0) {
        warn_once(fmt::format("cannot bind {} to cores {}: {}", what, units.text(), system_error_text()));
        return;
    }
    const auto found = bitmap_of({});
    if (hwloc_get_cpubind(topology.get(), found.get(), flags) == 0 && !hwloc_bitmap_isequal(found.get(), wanted.get()))
        warn_once(fmt::format("the system bound {} to cores {} instead of {}", what, cpu_set_of(found.get()).text(),
                              units.text()));
}

// Only for seats within one NUMA node: across several, first-touch allocation is best. The policy is a preference, not
// strict, so a full node does not end the run.
void bind_memory(const Topology& topology, const RankSeat& seat) {
    if (seat.numa_nodes.size() != 1 || hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_NUMANODE) < 2) return;
    const auto node = bitmap_of(CpuSet(seat.numa_nodes));
    if (hwloc_set_membind(topology.get(), node.get(), HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_BYNODESET) != 0)
        log::debug("cannot bind memory to NUMA node {}: {}", seat.numa_nodes.front(), system_error_text());
}

void bind_compute_thread(int thread) {
    try {
        const auto bound = current();
        if (!bound || static_cast<std::size_t>(thread) >= bound->core_of_thread.size()) return;
        bind_to(*bound->topology, CpuSet({bound->core_of_thread[static_cast<std::size_t>(thread)]}),
                HWLOC_CPUBIND_THREAD, "a compute thread");
    } catch (const std::exception& error) {
        warn_once(error.what());
    }
}

}  // namespace

void bind_process(const std::shared_ptr<const Topology>& topology, const RankSeat& seat, bool on_gpu) {
    // hwloc pretends to bind for a topology loaded from a file, and does nothing.
    if (!topology->is_this_machine()) return;
    auto bound = std::make_shared<Bound>();
    bound->topology = topology;
    bound->helpers = seat.helpers;
    const bool core_each = !on_gpu && !seat.shares_cores && threads() == seat.cores.size() && threads() > 1;
    if (core_each) bound->core_of_thread = seat.cores.units();
    {
        const std::lock_guard<std::mutex> guard(bound_lock);
        bound_now = bound;
    }
    bind_to(*topology, on_gpu ? seat.cores | seat.helpers : seat.cores, HWLOC_CPUBIND_PROCESS, "the process");
    bind_memory(*topology, seat);
    if (!core_each) return;
    set_thread_place(bind_compute_thread);
    parallel_for(threads(), 1, [](std::int64_t, std::int64_t, int) {});
}

void bind_helper_thread() noexcept {
    try {
        const auto bound = current();
        if (bound) bind_to(*bound->topology, bound->helpers, HWLOC_CPUBIND_THREAD, "a helper thread");
    } catch (const std::exception& error) {
        warn_once(error.what());
    }
}

}  // namespace lockstep::cluster
