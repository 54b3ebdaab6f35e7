#include "cluster/gpu_choice.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

namespace lockstep::cluster {
namespace {

using Index = std::size_t;

// GPUs in the order of the first core near each.
std::vector<int> in_core_order(const Hardware& hardware, std::vector<int> gpus) {
    const auto first_core = [&](int gpu) {
        const CpuSet& near = hardware.gpus[static_cast<Index>(gpu)].near;
        for (Index core = 0; core < hardware.cores.size(); ++core)
            if (near.overlaps(hardware.cores[core].units)) return core;
        return std::numeric_limits<Index>::max();
    };
    std::map<int, Index> order;
    for (const int gpu : gpus) order[gpu] = first_core(gpu);
    std::sort(gpus.begin(), gpus.end(), [&](int a, int b) { return std::pair(order[a], a) < std::pair(order[b], b); });
    return gpus;
}

CpuSet packages_around(const Hardware& hardware, const CpuSet& units) {
    std::set<int> packages;
    for (const Core& core : hardware.cores)
        if (core.units.overlaps(units)) packages.insert(core.package);
    std::vector<int> all;
    for (const Core& core : hardware.cores)
        if (packages.count(core.package) > 0)
            all.insert(all.end(), core.units.units().begin(), core.units.units().end());
    return CpuSet(std::move(all));
}

// Maximum bipartite matching of ranks and GPUs (augmenting paths).
class Matching {
  public:
    Matching(const Hardware& hardware, const std::vector<GpuRequest>& requests)
        : requests_(requests), chosen_(requests.size(), -1), holders_(hardware.gpus.size()) {
        for (const GpuDevice& gpu : hardware.gpus) around_.push_back(packages_around(hardware, gpu.near));
        for (const GpuDevice& gpu : hardware.gpus) near_.push_back(gpu.near);
        for (const GpuRequest& request : requests_) order_.push_back(in_core_order(hardware, request.gpus));
    }

    std::vector<int> find() {
        // First at most one rank per GPU, near GPUs before far ones; then two, and so on.
        for (Index most = 1; !complete(); ++most)
            for (int distance = 0; distance < 3; ++distance)
                for (Index rank = 0; rank < requests_.size(); ++rank) {
                    if (chosen_[rank] >= 0 || requests_[rank].gpus.empty()) continue;
                    tried_.assign(near_.size(), false);
                    place(rank, distance, most);
                }
        return chosen_;
    }

  private:
    bool complete() const {
        for (Index rank = 0; rank < requests_.size(); ++rank)
            if (chosen_[rank] < 0 && !requests_[rank].gpus.empty()) return false;
        return true;
    }
    int distance_of(Index rank, Index gpu) const {
        if (near_[gpu].empty() || requests_[rank].allowed.overlaps(near_[gpu])) return 0;
        return requests_[rank].allowed.overlaps(around_[gpu]) ? 1 : 2;
    }
    bool place(Index rank, int distance, Index most) {
        for (const int wanted : order_[rank]) {
            const auto gpu = static_cast<Index>(wanted);
            if (holders_[gpu].size() >= most || distance_of(rank, gpu) > distance) continue;
            take(rank, gpu);
            return true;
        }
        // Only then may another rank move to another GPU.
        for (const int wanted : order_[rank]) {
            const auto gpu = static_cast<Index>(wanted);
            if (tried_[gpu] || distance_of(rank, gpu) > distance) continue;
            tried_[gpu] = true;
            for (const Index holder : std::vector<Index>(holders_[gpu]))
                if (place(holder, distance, most)) {
                    take(rank, gpu);
                    return true;
                }
        }
        return false;
    }
    void take(Index rank, Index gpu) {
        if (chosen_[rank] >= 0) {
            auto& before = holders_[static_cast<Index>(chosen_[rank])];
            before.erase(std::find(before.begin(), before.end(), rank));
        }
        chosen_[rank] = static_cast<int>(gpu);
        holders_[gpu].push_back(rank);
    }

    const std::vector<GpuRequest>& requests_;
    std::vector<CpuSet> near_, around_;
    std::vector<std::vector<int>> order_;  // each rank's GPUs, by preference
    std::vector<int> chosen_;
    std::vector<std::vector<Index>> holders_;  // the ranks of each GPU
    std::vector<bool> tried_;
};

}  // namespace

std::vector<int> choose_gpus(const Hardware& hardware, const std::vector<GpuRequest>& requests) {
    if (requests.empty()) return {};
    const bool alike = std::all_of(requests.begin(), requests.end(), [&](const GpuRequest& request) {
        return request.allowed == requests.front().allowed && request.gpus == requests.front().gpus;
    });
    const Index ranks = requests.size();
    std::vector<int> chosen(ranks, -1);
    if (alike) {
        const std::vector<int> gpus = in_core_order(hardware, requests.front().gpus);
        if (!gpus.empty())
            for (Index rank = 0; rank < ranks; ++rank) chosen[rank] = gpus[rank * gpus.size() / ranks];
        return chosen;
    }
    chosen = Matching(hardware, requests).find();
    // Among ranks with the same choice, neighbours get neighbouring GPUs.
    std::map<std::pair<std::vector<int>, std::vector<int>>, std::vector<Index>> groups;
    for (Index rank = 0; rank < ranks; ++rank)
        if (chosen[rank] >= 0) groups[{requests[rank].allowed.units(), requests[rank].gpus}].push_back(rank);
    for (const auto& [request, members] : groups) {
        std::map<int, int> place;  // each GPU's position in the order
        const std::vector<int> order = in_core_order(hardware, request.second);
        for (Index i = 0; i < order.size(); ++i) place[order[i]] = static_cast<int>(i);
        std::vector<int> taken;
        for (const Index rank : members) taken.push_back(chosen[rank]);
        std::sort(taken.begin(), taken.end(), [&](int a, int b) { return place[a] < place[b]; });
        for (Index i = 0; i < members.size(); ++i) chosen[members[i]] = taken[i];
    }
    return chosen;
}

}  // namespace lockstep::cluster
