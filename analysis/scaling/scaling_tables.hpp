// The tables of a scaling series, as `scaling` prints them and the report shows them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "analysis/scaling/scaling.hpp"
#include "base/table.hpp"

namespace lockstep::analysis {

// For reading. Times are milliseconds of a step, or seconds of an imported run.
Table time_table(const ScalingSeries& series);  // time, speedup and efficiency, by the slowest rank and by the average
Table factor_table(const ScalingSeries& series);  // the factors of the efficiency
Table fit_table(const ScalingSeries& series);     // a line for each fitted number; no row where no law was fitted
// "strong scaling, batch 64 (inferred: …)" and "base case: 1 rank, 2,233.50 s"
std::string series_heading(const ScalingSeries& series);
std::string base_sentence(const Scaling& scaling, const ScalingSeries& series);
std::string warm_up_sentence(const Scaling& scaling, const ScalingSeries& series);

// For programs: all series in one, seconds and fractions with every digit.
Table scaling_rows(const Scaling& scaling);
nlohmann::ordered_json json_of(const Scaling& scaling);

}  // namespace lockstep::analysis
