// A table of measured times, as docs/analysis-exchange.md describes its columns: read, and its rows put together to
// runs.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "analysis/metrics/statistics.hpp"
#include "base/csv_table.hpp"

namespace lockstep::analysis {

// The columns in seconds.
enum class TimeColumn : std::size_t {
    total,
    data_loading,
    data_movement,
    compute,
    communication,
    forward,
    loss,
    backward,
    optimizer,
    validation,
    checkpoint,
    initialization,
};
inline constexpr std::size_t time_column_count = 12;
inline constexpr std::array<const char*, time_column_count> time_column_names = {
    "total", "data_loading", "data_movement", "compute",    "communication", "forward",
    "loss",  "backward",     "optimizer",     "validation", "checkpoint",    "initialization"};

// One rank's numbers; unknown (NaN) where the table gives none.
struct ImportedRank {
    std::size_t line = 0;  // of the table; 0: the table has no row of this rank
    std::array<double, time_column_count> seconds = filled_with_unknown();
    double tokens_per_second = unknown;
    std::int64_t peak_memory = 0;  // bytes; 0: unknown

    double& at(TimeColumn column) { return seconds[static_cast<std::size_t>(column)]; }
    double at(TimeColumn column) const { return seconds[static_cast<std::size_t>(column)]; }
    // What lies within compute: forward, loss, backward, optimizer. Unknown where none of them is given.
    double parts_of_compute() const;
    // What the total consists of: with compute, or its parts where compute itself is not given. Unknown where none is.
    double parts_of_total() const;

  private:
    static std::array<double, time_column_count> filled_with_unknown();
};

struct ImportedRun {
    std::string name;
    std::int64_t ranks = 0;
    // Columns that are the same in all rows of a run, where they are given: batch, accumulation, length, data, tensor,
    // pipeline, context, tokens.
    std::map<std::string, std::int64_t> settings;
    // One row that speaks for all ranks: each of `rank` holds its numbers, and tokens_per_second is of all together.
    bool whole = false;
    std::vector<ImportedRank> rank;  // [ranks]
    std::vector<std::size_t> lines;
    std::vector<std::string> remarks;  // caveats

    bool gives(TimeColumn column) const;                  // for one rank at least
    std::int64_t setting(const std::string& name) const;  // 0: not given
    double tokens_per_second() const;                     // of all ranks together; unknown where one is missing
    double slowest_total() const;                         // largest total of a rank; unknown where none is known
    double work() const;                                  // tokens: total × rate, summed over ranks
};

// The runs in the order in which the table begins them. What cannot be is a usage error that names the line; what is
// unlikely becomes a remark of its run. `warnings`: what concerns the whole table, such as columns left out.
std::vector<ImportedRun> runs_of_table(const CsvTable& table, std::vector<std::string>& warnings);

// Adds a remark to each run whose numbers contradict each other or those of the other runs.
void check_consistency(std::vector<ImportedRun>& runs);

}  // namespace lockstep::analysis
