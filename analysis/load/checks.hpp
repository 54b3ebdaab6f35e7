// Inconsistencies of a readable trace, found row by row and reported as sentences.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/reader.hpp"

namespace lockstep::analysis {

// Clocks that jumped, overlapping regions, ranks without data. One object for one run; rows
// are given in order.
class TraceChecks {
  public:
    void begin_part(const trace::TraceFile& file);
    // `times`: [ranks, regions] of the row.
    void row(const trace::StepRow& row, const double* times);
    // Of the latest part: spans that end before they begin, and those of a rank that cross each other.
    void events(const std::vector<trace::EventRow>& events);
    std::vector<std::string> remarks() const;

  private:
    struct Finding {
        std::int64_t count = 0, step = 0;  // how often; where first
        std::string where;
        void add(std::int64_t at, const std::string& place);
    };
    const trace::TraceFile* file_ = nullptr;
    std::vector<bool> seen_;  // ranks of the part begun last that measured anything
    std::vector<std::vector<std::size_t>> children_;
    bool first_row_ = true;
    double last_wall_time_ = 0;
    std::vector<std::string> missing_;
    Finding back_, forward_, overlap_, impossible_, crossing_, inverted_;
    void close_part();
};

}  // namespace lockstep::analysis
