// Which rows of a run count.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "analysis/load/measurement.hpp"

namespace lockstep::analysis {

// The steps that count: of launches with the most common number of ranks, with the most common number of tokens, and
// without each launch's warm-up. The measurement's remarks name and count what is left out.
class Selection {
  public:
    Selection(const trace::Run& run, const MeasureOptions& options, bool imported, Measurement& measurement);
    std::size_t ranks() const { return ranks_; }
    std::size_t used() const { return used_; }
    bool takes(const trace::RunPart& part) const { return part.file.ranks() == ranks_; }
    bool counts(std::size_t part, std::size_t row) const { return counts_[part][row]; }

  private:
    void keep_one_size(const trace::Run& run, const std::map<std::int64_t, std::int64_t>& steps_of_tokens,
                       Measurement& measurement);
    std::size_t ranks_ = 0, used_ = 0;
    std::vector<std::vector<bool>> counts_;
};

}  // namespace lockstep::analysis
