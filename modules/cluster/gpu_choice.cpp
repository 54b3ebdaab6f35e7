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

// Ranks and GPUs in pairs, so that as many ranks as possible have one (augmenting paths).
class Matching {
  public:
    Matching(const Hardware& hardware, const std::vector<GpuWish>& wishes)
        : wishes_(wishes), chosen_(wishes.size(), -1), holders_(hardware.gpus.size()) {
        for (const GpuDevice& gpu : hardware.gpus) around_.push_back(packages_around(hardware, gpu.near));
        for (const GpuDevice& gpu : hardware.gpus) near_.push_back(gpu.near);
        for (const GpuWish& wish : wishes_) order_.push_back(in_core_order(hardware, wish.gpus));
    }

    std::vector<int> find() {
        // First each GPU to one rank only, near ones before far ones; then to a second rank, and so on.
        for (Index most = 1; !complete(); ++most)
            for (int distance = 0; distance < 3; ++distance)
                for (Index rank = 0; rank < wishes_.size(); ++rank) {
                    if (chosen_[rank] >= 0 || wishes_[rank].gpus.empty()) continue;
                    tried_.assign(near_.size(), false);
                    place(rank, distance, most);
                }
        return chosen_;
    }

  private:
    bool complete() const {
        for (Index rank = 0; rank < wishes_.size(); ++rank)
            if (chosen_[rank] < 0 && !wishes_[rank].gpus.empty()) return false;
        return true;
    }
    int distance_of(Index rank, Index gpu) const {
        if (near_[gpu].empty() || wishes_[rank].allowed.overlaps(near_[gpu])) return 0;
        return wishes_[rank].allowed.overlaps(around_[gpu]) ? 1 : 2;
    }
    bool place(Index rank, int distance, Index most) {
        for (const int wanted : order_[rank]) {
            const auto gpu = static_cast<Index>(wanted);
            if (holders_[gpu].size() >= most || distance_of(rank, gpu) > distance) continue;
            take(rank, gpu);
            return true;
        }
        // Only then may another rank have to move to another GPU.
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

    const std::vector<GpuWish>& wishes_;
    std::vector<CpuSet> near_, around_;
    std::vector<std::vector<int>> order_;  // of each rank's GPUs
    std::vector<int> chosen_;
    std::vector<std::vector<Index>> holders_;  // of each GPU
    std::vector<bool> tried_;
};

}  // namespace

std::vector<int> choose_gpus(const Hardware& hardware, const std::vector<GpuWish>& wishes) {
    if (wishes.empty()) return {};
    const bool alike = std::all_of(wishes.begin(), wishes.end(), [&](const GpuWish& wish) {
        return wish.allowed == wishes.front().allowed && wish.gpus == wishes.front().gpus;
    });
    const Index ranks = wishes.size();
    std::vector<int> chosen(ranks, -1);
    if (alike) {
        const std::vector<int> gpus = in_core_order(hardware, wishes.front().gpus);
        if (!gpus.empty())
            for (Index rank = 0; rank < ranks; ++rank) chosen[rank] = gpus[rank * gpus.size() / ranks];
        return chosen;
    }
    chosen = Matching(hardware, wishes).find();
    // Among ranks with the same choice, neighbours get neighbouring GPUs.
    std::map<std::pair<std::vector<int>, std::vector<int>>, std::vector<Index>> groups;
    for (Index rank = 0; rank < ranks; ++rank)
        if (chosen[rank] >= 0) groups[{wishes[rank].allowed.units(), wishes[rank].gpus}].push_back(rank);
    for (const auto& [wish, members] : groups) {
        std::map<int, int> place;  // of each GPU in the order
        const std::vector<int> order = in_core_order(hardware, wish.second);
        for (Index i = 0; i < order.size(); ++i) place[order[i]] = static_cast<int>(i);
        std::vector<int> taken;
        for (const Index rank : members) taken.push_back(chosen[rank]);
        std::sort(taken.begin(), taken.end(), [&](int a, int b) { return place[a] < place[b]; });
        for (Index i = 0; i < members.size(); ++i) chosen[members[i]] = taken[i];
    }
    return chosen;
}

}  // namespace lockstep::cluster
