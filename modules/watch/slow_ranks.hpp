// Finds stragglers. Steps take equally long on all ranks, which wait for each other; what differs is how long each rank
// works: step seconds minus those of the region epoch/step/communication.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cluster/host_group.hpp"

namespace lockstep::watch {

// The rule, on rank 0: a rank is reported once it has worked more than 10 % and 1 ms per step longer than the lower
// median of its pipeline stage in three consecutive windows of steps. It is reported again after some number of steps,
// or after it has recovered: three consecutive windows below the limit. Ranks are judged where several others agree on
// how long the work takes, or where a node or a device may be at fault: of three or more ranks of a stage, of two on
// different hosts or with devices of their own. Of two that share one host's processors either may be the odd one, and
// whatever else runs on the host makes them differ.
class SlowRankRule {
  public:
    struct Remark {
        bool slow = false;  // false: it has recovered
        std::string sentence;
    };
    SlowRankRule(const std::vector<int>& stage_of_rank, std::vector<std::string> host_of_rank, bool own_devices,
                 std::int64_t window);
    // Each rank's working seconds per step in the window that ends with `step`.
    std::vector<Remark> judge(const std::vector<double>& means, std::int64_t step);

  private:
    struct Stage {
        std::int64_t ranks = 0;
        std::size_t first = 0;  // rank
        bool one_host = true, judged = false;
    };
    struct Rank {
        int stage = 0;
        std::string host;
        int slow_in_a_row = 0, good_in_a_row = 0;
        std::vector<double> worked, medians;  // of the last windows, newest last
        bool named = false;
        std::int64_t named_at = 0;
    };
    Remark name(int number, std::int64_t step);
    std::vector<Rank> ranks_;
    std::map<int, Stage> stages_;
    bool own_devices_;
    std::int64_t window_;
};

class SlowRanks {
  public:
    // Collective. `group` outlives this; stage: this rank's; own_devices: ranks have GPUs; window: steps between
    // comparisons.
    SlowRanks(cluster::HostGroup& group, int stage, const std::string& host, bool own_devices, std::int64_t window);
    // This rank's working seconds of one step. All ranks add the same steps; every `window` steps this is collective,
    // and rank 0 may warn.
    void add(std::int64_t step, double worked);

  private:
    cluster::HostGroup& group_;
    SlowRankRule rule_;
    std::int64_t window_, steps_ = 0;
    double worked_ = 0;
};

}  // namespace lockstep::watch
