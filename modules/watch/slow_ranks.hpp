// Which rank holds the others up. All ranks take as long a step, since they wait for each other; what differs is how
// long each of them works: the step's seconds less those of the region epoch/step/communication.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/host_group.hpp"

namespace lockstep::watch {

// The rule, on rank 0: a rank is named once it has worked more than 10 % and 0.2 ms a step longer than the median of
// the ranks of its pipeline stage, in three windows of steps in a row. Of an even number the faster of the two in the
// middle counts as the median. It is named again after so many steps, or after it has recovered: three windows in a row
// without.
class SlowRankRule {
  public:
    struct Remark {
        bool slow = false;  // false: it has recovered
        std::string sentence;
    };
    SlowRankRule(std::vector<int> stage_of_rank, std::vector<std::string> host_of_rank, std::int64_t window);
    // Seconds a step that each rank has worked in the window that ends with `step`.
    std::vector<Remark> judge(const std::vector<double>& means, std::int64_t step);

  private:
    struct Rank {
        int stage = 0;
        std::string host;
        int slow_in_a_row = 0, good_in_a_row = 0;
        std::vector<double> worked, medians;  // of the last windows, the newest last
        bool named = false;
        std::int64_t named_at = 0;
    };
    Remark name(int number, std::int64_t step);
    std::vector<Rank> ranks_;
    std::int64_t window_;
};

class SlowRanks {
  public:
    // Collective. `group` outlives this; stage: this rank's; window: steps between two comparisons.
    SlowRanks(cluster::HostGroup& group, int stage, const std::string& host, std::int64_t window);
    // This rank's working seconds of one step. Every rank adds the same steps; every `window` of them it is collective,
    // and rank 0 may warn.
    void add(std::int64_t step, double worked);

  private:
    cluster::HostGroup& group_;
    SlowRankRule rule_;
    std::int64_t window_, steps_ = 0;
    double worked_ = 0;
};

}  // namespace lockstep::watch
