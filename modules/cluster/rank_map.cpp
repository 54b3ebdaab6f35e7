#include "cluster/rank_map.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "cluster/core_division.hpp"
#include "cluster/gpu_choice.hpp"
#include "cluster/rank_map_remarks.hpp"

namespace lockstep::cluster {
namespace {

using Index = std::size_t;

CpuSet all_units(const Hardware& hardware) {
    std::vector<int> units;
    for (const Core& core : hardware.cores)
        units.insert(units.end(), core.units.units().begin(), core.units.units().end());
    return CpuSet(std::move(units));
}

CoreList cores_with(const Hardware& hardware, const CpuSet& units) {
    CoreList cores;
    for (Index core = 0; core < hardware.cores.size(); ++core)
        if (hardware.cores[core].units.overlaps(units)) cores.push_back(static_cast<int>(core));
    return cores;
}

// GPUs that a rank sees but hwloc does not (a container may hide the PCI bus): near everything.
Hardware with_unknown_gpus(Hardware hardware, const std::vector<RankRequest>& requests) {
    std::set<std::string> known;
    for (const GpuDevice& gpu : hardware.gpus) known.insert(gpu.bus);
    for (const RankRequest& request : requests)
        for (const std::string& bus : request.gpus)
            if (known.insert(bus).second) {
                GpuDevice gpu;
                gpu.bus = bus;
                hardware.gpus.push_back(std::move(gpu));
            }
    std::sort(hardware.gpus.begin(), hardware.gpus.end(),
              [](const GpuDevice& a, const GpuDevice& b) { return a.bus < b.bus; });
    return hardware;
}

std::vector<GpuRequest> gpu_requests(const Hardware& hardware, const std::vector<RankRequest>& requests,
                                     const std::vector<CpuSet>& allowed) {
    std::vector<GpuRequest> result(requests.size());
    for (Index rank = 0; rank < requests.size(); ++rank) {
        result[rank].allowed = allowed[rank];
        const auto& seen = requests[rank].gpus;
        for (Index gpu = 0; gpu < hardware.gpus.size(); ++gpu)
            if (std::find(seen.begin(), seen.end(), hardware.gpus[gpu].bus) != seen.end())
                result[rank].gpus.push_back(static_cast<int>(gpu));
    }
    return result;
}

// The cores a rank may get, from those near its GPU to all that it is allowed.
struct Homes {
    CoreList at_gpu, in_package, allowed;
};
Homes homes_of(const Hardware& hardware, const CpuSet& allowed, const CpuSet& near) {
    Homes homes;
    homes.allowed = cores_with(hardware, allowed);
    if (near.empty()) {
        homes.at_gpu = homes.in_package = homes.allowed;
        return homes;
    }
    std::set<int> packages;
    for (const int core : cores_with(hardware, near)) packages.insert(hardware.cores[static_cast<Index>(core)].package);
    for (const int core : homes.allowed) {
        const Core& about = hardware.cores[static_cast<Index>(core)];
        if ((about.units & allowed).overlaps(near)) homes.at_gpu.push_back(core);
        if (packages.count(about.package) > 0) homes.in_package.push_back(core);
    }
    if (homes.in_package.empty()) homes.in_package = homes.allowed;
    if (homes.at_gpu.empty()) homes.at_gpu = homes.in_package;
    return homes;
}

// Which ranks' cores overlap others'.
std::vector<bool> sharing(const Hardware& hardware, const std::vector<CoreList>& parts) {
    std::vector<int> holders(hardware.cores.size(), 0);
    for (const CoreList& part : parts)
        for (const int core : part) ++holders[static_cast<Index>(core)];
    std::vector<bool> shares;
    for (const CoreList& part : parts)
        shares.push_back(
            std::any_of(part.begin(), part.end(), [&](int core) { return holders[static_cast<Index>(core)] > 1; }));
    return shares;
}
bool any(const std::vector<bool>& flags) {
    return std::find(flags.begin(), flags.end(), true) != flags.end();
}

// Ranks that would share cores take farther ones instead; if that is not enough, all ranks do.
std::vector<CoreList> divided(const Hardware& hardware, const std::vector<Homes>& choices) {
    std::vector<CoreList> homes;
    for (const Homes& choice : choices) homes.push_back(choice.at_gpu);
    std::vector<CoreList> parts = divide_cores(hardware, homes);
    for (const auto wider : {&Homes::in_package, &Homes::allowed}) {
        const std::vector<bool> shares = sharing(hardware, parts);
        if (!any(shares)) return parts;
        for (Index rank = 0; rank < parts.size(); ++rank)
            if (shares[rank]) homes[rank] = choices[rank].*wider;
        parts = divide_cores(hardware, homes);
    }
    if (!any(sharing(hardware, parts))) return parts;
    for (Index rank = 0; rank < parts.size(); ++rank) homes[rank] = choices[rank].allowed;
    const std::vector<CoreList> from_all = divide_cores(hardware, homes);
    return any(sharing(hardware, from_all)) ? parts : from_all;
}

// Steps wait for the slowest rank, so surplus cores of one rank do not help: they become helper cores. Only where that
// loses little.
void make_equal(std::vector<CoreList>& parts) {
    if (parts.empty()) return;
    Index least = parts.front().size(), most = 0;
    for (const CoreList& part : parts) {
        least = std::min(least, part.size());
        most = std::max(most, part.size());
    }
    if (most - least > std::max<Index>(1, least / 10)) return;
    for (CoreList& part : parts) part.resize(least);
}

// The cards with the most PCI bridges in common with the GPU; without a GPU, those near the rank's cores. Plain
// Ethernet is ignored if there is a fabric.
std::vector<std::string> nearest_network(const Hardware& hardware, const GpuDevice* gpu, const CpuSet& cores) {
    const bool fabric = std::any_of(hardware.network.begin(), hardware.network.end(),
                                    [](const NetworkCard& card) { return card.fabric; });
    std::set<int> packages;
    for (const Core& core : hardware.cores)
        if (core.units.overlaps(cores)) packages.insert(core.package);
    const auto nearness = [&](const NetworkCard& card) {
        int common = 0;
        if (gpu != nullptr) {
            const auto ends = std::mismatch(gpu->path.begin(), gpu->path.end(), card.path.begin(), card.path.end());
            common = static_cast<int>(ends.first - gpu->path.begin());
        }
        const CpuSet& at = gpu != nullptr && !gpu->near.empty() ? gpu->near : cores;
        bool same_package = false;
        for (const Core& core : hardware.cores)
            same_package = same_package || (packages.count(core.package) > 0 && core.units.overlaps(card.near));
        return 4 * common + (card.near.overlaps(at) ? 2 : 0) + (same_package ? 1 : 0);
    };
    int best = -1;
    std::vector<std::string> names;
    for (const NetworkCard& card : hardware.network) {
        if (fabric && !card.fabric) continue;
        const int own = nearness(card);
        if (own > best) names.clear();
        if (own >= best) names.push_back(card.name);
        best = std::max(best, own);
    }
    return names;
}

std::vector<int> numa_nodes_of(const Hardware& hardware, const CpuSet& units) {
    std::set<int> nodes;
    for (const Core& core : hardware.cores)
        if (core.numa_node >= 0 && core.units.overlaps(units)) nodes.insert(core.numa_node);
    return {nodes.begin(), nodes.end()};
}

// Idle hardware threads of the rank's own cores; else idle cores of its NUMA nodes; else its own.
CpuSet helpers_of(const Hardware& hardware, const RankSeat& seat, const CpuSet& allowed, const CpuSet& computing) {
    const CpuSet free = allowed - computing;
    std::vector<int> beside, left_over;
    for (const Core& core : hardware.cores) {
        const bool own_node =
            std::find(seat.numa_nodes.begin(), seat.numa_nodes.end(), core.numa_node) != seat.numa_nodes.end();
        const CpuSet rest = core.units & free;
        if (core.units.overlaps(seat.cores))
            beside.insert(beside.end(), rest.units().begin(), rest.units().end());
        else if (own_node && !core.units.overlaps(computing))
            left_over.insert(left_over.end(), rest.units().begin(), rest.units().end());
    }
    if (!beside.empty()) return CpuSet(std::move(beside));
    return left_over.empty() ? seat.cores : CpuSet(std::move(left_over));
}

// Units of the rank's cores. Ranks that share cores may use all their hardware threads.
void take_cores(const Hardware& hardware, const std::vector<CpuSet>& allowed, const std::vector<CoreList>& parts,
                std::vector<RankSeat>& seats) {
    std::vector<CpuSet> firsts, all;
    std::map<int, int> holders;  // per unit
    for (Index rank = 0; rank < seats.size(); ++rank) {
        std::vector<int> first_units, all_units;
        for (const int core : parts[rank]) {
            const CpuSet units = hardware.cores[static_cast<Index>(core)].units & allowed[rank];
            first_units.push_back(units.units().front());
            all_units.insert(all_units.end(), units.units().begin(), units.units().end());
        }
        firsts.emplace_back(std::move(first_units));
        all.emplace_back(std::move(all_units));
        for (const int unit : all.back().units()) ++holders[unit];
    }
    for (Index rank = 0; rank < seats.size(); ++rank) {
        RankSeat& seat = seats[rank];
        seat.shares_cores = std::any_of(all[rank].units().begin(), all[rank].units().end(),
                                        [&](int unit) { return holders[unit] > 1; });
        seat.cores = seat.shares_cores ? all[rank] : firsts[rank];
        seat.threads = seat.shares_cores ? 1 : static_cast<int>(parts[rank].size());
        seat.numa_nodes = numa_nodes_of(hardware, seat.cores);
    }
}

}  // namespace

RankMap map_ranks(const Hardware& given, const std::vector<RankRequest>& requests) {
    const Hardware hardware = with_unknown_gpus(given, requests);
    const CpuSet everything = all_units(hardware);
    const Index ranks = requests.size();
    std::vector<CpuSet> allowed;
    for (const RankRequest& request : requests) {
        const CpuSet own = request.allowed & everything;
        allowed.push_back(own.empty() ? everything : own);
    }
    const std::vector<int> gpus = choose_gpus(hardware, gpu_requests(hardware, requests, allowed));

    // A launcher that gave each rank its own units has divided already.
    std::vector<CoreList> parts(ranks);
    std::vector<Index> divisible_ranks;
    std::vector<Homes> homes;
    for (Index rank = 0; rank < ranks; ++rank) {
        bool alone = ranks > 1;
        for (Index other = 0; other < ranks && alone; ++other)
            alone = other == rank || !allowed[rank].overlaps(allowed[other]);
        if (alone) {
            parts[rank] = cores_with(hardware, allowed[rank]);
            continue;
        }
        const CpuSet near = gpus[rank] < 0 ? CpuSet() : hardware.gpus[static_cast<Index>(gpus[rank])].near;
        homes.push_back(homes_of(hardware, allowed[rank], near));
        divisible_ranks.push_back(rank);
    }
    std::vector<CoreList> divisible = divided(hardware, homes);
    // Shared cores must not be taken away.
    if (!any(sharing(hardware, divisible))) make_equal(divisible);
    for (Index i = 0; i < divisible.size(); ++i) parts[divisible_ranks[i]] = divisible[i];

    RankMap map;
    map.seats.resize(ranks);
    take_cores(hardware, allowed, parts, map.seats);
    CpuSet computing;
    for (const RankSeat& seat : map.seats) computing = computing | seat.cores;
    for (Index rank = 0; rank < ranks; ++rank) {
        RankSeat& seat = map.seats[rank];
        const GpuDevice* gpu = gpus[rank] < 0 ? nullptr : &hardware.gpus[static_cast<Index>(gpus[rank])];
        if (gpu != nullptr) {
            seat.gpu = gpu->bus;
            seat.gpu_name = gpu->name;
            seat.shares_gpu = std::count(gpus.begin(), gpus.end(), gpus[rank]) > 1;
            seat.gpu_is_far = !gpu->near.empty() && !seat.cores.overlaps(gpu->near);
        }
        seat.helpers = helpers_of(hardware, seat, allowed[rank], computing);
        seat.network = nearest_network(hardware, gpu, seat.cores);
    }
    map.remarks = remarks_on(hardware, requests, map.seats);
    return map;
}

std::string list_text(const std::vector<int>& numbers) {
    std::string text;
    const std::vector<int> ordered = CpuSet(std::vector<int>(numbers)).units();
    for (Index i = 0; i < ordered.size();) {
        Index end = i + 1;
        while (end < ordered.size() && ordered[end] == ordered[end - 1] + 1) ++end;
        text += (text.empty() ? "" : ", ") + std::to_string(ordered[i]);
        if (end - i > 1) text += (end - i > 2 ? "-" : ", ") + std::to_string(ordered[end - 1]);
        i = end;
    }
    return text;
}

}  // namespace lockstep::cluster
