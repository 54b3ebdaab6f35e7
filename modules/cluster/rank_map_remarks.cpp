#include "cluster/rank_map_remarks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include "base/plural.hpp"

namespace lockstep::cluster {
namespace {

using Index = std::size_t;

std::string ranks_text(const std::vector<int>& ranks) {
    return (ranks.size() == 1 ? "rank " : "ranks ") + list_text(ranks);
}
std::string nodes_text(const std::vector<int>& nodes) {
    return (nodes.size() == 1 ? "NUMA node " : "NUMA nodes ") + list_text(nodes);
}
std::string cores_text(std::size_t count) {
    return fmt::format("{} core{}", count, plural(count));
}

// Inputs of several remarks.
struct View {
    const Hardware& hardware;
    const std::vector<RankRequest>& requests;
    const std::vector<RankSeat>& seats;
    CpuSet everything, allowed, computing;  // units: of the node; allowed to any rank; used for computing

    View(const Hardware& all, const std::vector<RankRequest>& wanted, const std::vector<RankSeat>& found)
        : hardware(all), requests(wanted), seats(found) {
        std::vector<int> units;
        for (const Core& core : hardware.cores)
            units.insert(units.end(), core.units.units().begin(), core.units.units().end());
        everything = CpuSet(std::move(units));
        for (Index rank = 0; rank < requests.size(); ++rank) allowed = allowed | of(rank);
        for (const RankSeat& seat : seats) computing = computing | seat.cores;
    }
    CpuSet of(Index rank) const {
        const CpuSet own = requests[rank].allowed & everything;
        return own.empty() ? everything : own;
    }
    std::size_t cores_in(const CpuSet& units) const {
        return static_cast<std::size_t>(std::count_if(hardware.cores.begin(), hardware.cores.end(),
                                                      [&](const Core& core) { return core.units.overlaps(units); }));
    }
    std::vector<int> ranks_where(bool RankSeat::*property) const {
        std::vector<int> ranks;
        for (Index rank = 0; rank < seats.size(); ++rank)
            if (seats[rank].*property) ranks.push_back(static_cast<int>(rank));
        return ranks;
    }
    const GpuDevice* gpu(const std::string& bus) const {
        for (const GpuDevice& one : hardware.gpus)
            if (one.bus == bus) return &one;
        return nullptr;
    }
    std::vector<int> numa_nodes_of(const CpuSet& units) const {
        std::vector<int> nodes;
        for (const Core& core : hardware.cores)
            if (core.numa_node >= 0 && core.units.overlaps(units)) nodes.push_back(core.numa_node);
        return CpuSet(std::move(nodes)).units();
    }
};

void on_few_cores(const View& view, std::vector<std::string>& remarks) {
    for (Index rank = 0; rank < view.seats.size(); ++rank)
        if (view.cores_in(view.of(rank)) > 1) return;
    const std::size_t cores = view.hardware.cores.size(), ranks = view.seats.size();
    if (cores < 2 * ranks) return;
    remarks.push_back(
        fmt::format("every rank is confined to 1 core, though the node has {} cores; ask the launcher for more "
                    "(srun --cpus-per-task={}, mpirun --bind-to none)",
                    cores, cores / ranks));
}

void on_far_gpus(const View& view, std::vector<std::string>& remarks) {
    for (Index rank = 0; rank < view.seats.size(); ++rank) {
        const RankSeat& seat = view.seats[rank];
        if (!seat.gpu_is_far) continue;
        remarks.push_back(
            fmt::format("rank {} has no core near its GPU {} (cores {}, GPU on {}); turn off the launcher's "
                        "binding or bind by GPU",
                        rank, seat.gpu, seat.cores.text(), nodes_text(view.numa_nodes_of(view.gpu(seat.gpu)->near))));
    }
}

void on_sharing(const View& view, std::vector<std::string>& remarks) {
    const std::vector<int> sharing = view.ranks_where(&RankSeat::shares_cores);
    if (!sharing.empty()) {
        CpuSet shared;
        for (const int rank : sharing) shared = shared | view.seats[static_cast<Index>(rank)].cores;
        remarks.push_back(
            fmt::format("{} share {}: fewer cores than ranks", ranks_text(sharing), cores_text(view.cores_in(shared))));
    }
    std::map<std::string, std::vector<int>> holders;
    for (Index rank = 0; rank < view.seats.size(); ++rank)
        if (view.seats[rank].shares_gpu) holders[view.seats[rank].gpu].push_back(static_cast<int>(rank));
    for (const auto& [bus, ranks] : holders) remarks.push_back(fmt::format("{} share GPU {}", ranks_text(ranks), bus));
}

void on_unequal_cores(const View& view, std::vector<std::string>& remarks) {
    std::map<int, std::vector<int>> by_count;
    for (Index rank = 0; rank < view.seats.size(); ++rank)
        by_count[view.seats[rank].threads].push_back(static_cast<int>(rank));
    if (by_count.size() < 2) return;
    std::string text;
    for (const auto& [count, ranks] : by_count)
        text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", ranks_text(ranks),
                            ranks.size() == 1 ? "has" : "have", cores_text(static_cast<std::size_t>(count)));
    remarks.push_back(fmt::format("unequal numbers of cores, and steps wait for the slowest rank: {}", text));
}

void on_spread(const View& view, std::vector<std::string>& remarks) {
    std::set<std::vector<int>> sets;
    bool wide = false;
    for (const RankSeat& seat : view.seats) {
        sets.insert(seat.numa_nodes);
        wide = wide || seat.numa_nodes.size() > 1;
    }
    if (!wide) return;
    std::vector<int> ranks;
    for (Index rank = 0; rank < view.seats.size(); ++rank)
        if (view.seats[rank].numa_nodes.size() > 1) ranks.push_back(static_cast<int>(rank));
    std::string where;
    for (const int rank : ranks) {
        const std::string nodes = list_text(view.seats[static_cast<Index>(rank)].numa_nodes);
        where += (where.empty() ? "" : "; ") + nodes;
    }
    remarks.push_back(
        fmt::format("{} {} several NUMA nodes ({})", ranks_text(ranks), ranks.size() == 1 ? "spans" : "span", where));
}

void on_what_is_idle(const View& view, std::vector<std::string>& remarks) {
    std::vector<int> idle_nodes;
    for (const NumaNode& node : view.hardware.numa_nodes)
        if (node.units.overlaps(view.allowed) && !node.units.overlaps(view.computing))
            idle_nodes.push_back(node.number);
    if (!idle_nodes.empty()) remarks.push_back(fmt::format("no rank computes on {}", nodes_text(idle_nodes)));

    std::set<std::string> visible, used;
    for (const RankRequest& request : view.requests) visible.insert(request.gpus.begin(), request.gpus.end());
    for (const RankSeat& seat : view.seats) used.insert(seat.gpu);
    std::string idle;
    int count = 0;
    for (const std::string& bus : visible)
        if (used.count(bus) == 0) {
            idle += (idle.empty() ? "" : ", ") + bus;
            ++count;
        }
    if (count > 0)
        remarks.push_back(fmt::format("{} GPU{} {} idle: {}", count, plural(count), count == 1 ? "is" : "are", idle));

    std::size_t left = 0;
    for (const Core& core : view.hardware.cores) {
        const bool idle_node = std::find(idle_nodes.begin(), idle_nodes.end(), core.numa_node) != idle_nodes.end();
        if (core.units.overlaps(view.allowed) && !core.units.overlaps(view.computing) && !idle_node) ++left;
    }
    if (left > 0)
        remarks.push_back(fmt::format("{} of {} allowed {} left for helper threads and the system", left,
                                      cores_text(view.cores_in(view.allowed)), left == 1 ? "is" : "are"));
}

void on_devices(const View& view, std::vector<std::string>& remarks) {
    std::set<std::string> visible;
    for (const RankRequest& request : view.requests) visible.insert(request.gpus.begin(), request.gpus.end());
    std::map<GpuVendor, int> unused;
    for (const GpuDevice& gpu : view.hardware.gpus)
        if (visible.count(gpu.bus) == 0 && gpu.vendor != GpuVendor::nvidia) ++unused[gpu.vendor];
    for (const auto& [vendor, count] : unused)
        remarks.push_back(fmt::format("{} {} GPU{} {} unused: lockstep computes on NVIDIA GPUs and CPUs", count,
                                      vendor_name(vendor), plural(count), count == 1 ? "is" : "are"));
    for (const RankSeat& seat : view.seats) {
        if (seat.gpu.empty() || (view.gpu(seat.gpu) && !view.gpu(seat.gpu)->near.empty())) continue;
        remarks.emplace_back("it is unknown which cores are near the GPUs");
        break;
    }
    std::map<int, std::vector<int>> kinds;
    for (const Core& core : view.hardware.cores)
        if (core.units.overlaps(view.computing))
            kinds[core.kind].push_back((core.units & view.allowed).units().front());
    if (kinds.size() < 2) return;
    remarks.push_back(
        fmt::format("cores {} are slower than cores {} and slow down every step; to exclude them, start "
                    "with taskset -c {}",
                    CpuSet(kinds.begin()->second).text(), CpuSet(kinds.rbegin()->second).text(),
                    CpuSet(kinds.rbegin()->second).text()));
}

}  // namespace

std::vector<std::string> remarks_on(const Hardware& hardware, const std::vector<RankRequest>& requests,
                                    const std::vector<RankSeat>& seats) {
    std::vector<std::string> remarks;
    if (seats.empty()) return remarks;
    const View view(hardware, requests, seats);
    on_few_cores(view, remarks);
    on_far_gpus(view, remarks);
    on_sharing(view, remarks);
    on_unequal_cores(view, remarks);
    on_spread(view, remarks);
    on_what_is_idle(view, remarks);
    on_devices(view, remarks);
    return remarks;
}

}  // namespace lockstep::cluster
