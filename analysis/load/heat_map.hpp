// Compute seconds of ranks over time, in few cells however many ranks and steps there are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "analysis/metrics/statistics.hpp"

namespace lockstep::analysis {

// At most 128 × 128 cells, each the largest value of what falls into it.
struct HeatMap {
    std::vector<std::int64_t> first_step;  // of each column
    std::vector<std::int64_t> first_rank;  // of each row
    std::vector<double> seconds;           // [rows, columns], of a step; NaN where nothing was measured
};

class HeatCollector {
  public:
    HeatCollector(std::size_t ranks, std::size_t steps);
    // `index`: of the step, among `steps`.
    void add(std::size_t rank, std::size_t index, std::int64_t step, double seconds);
    HeatMap take();  // without the columns in which nothing was measured

  private:
    std::size_t ranks_, steps_, rows_, columns_;
    HeatMap map_;
};

}  // namespace lockstep::analysis
