// How well a machine's description predicts measured steps.
#pragma once

#include <cstdint>
#include <vector>

#include "config/machine.hpp"
#include "plan/measured_table.hpp"

namespace lockstep::plan {

struct Prediction {
    double seconds = 0, memory_gb = 0;  // 1e9 bytes
    bool out_of_memory = false;
};
Prediction predict(const config::Machine& machine, const MeasuredRow& row);

struct Judgement {
    std::vector<Prediction> rows;  // of all rows, in order
    double mean_absolute_error = 0,
           worst_error = 0;       // of the seconds of rows that count, as shares; NaN where none does
    double rank_correlation = 0;  // Spearman's, of the same
    double mean_memory_error = 0, worst_memory_error = 0;
    std::int64_t wrong_outcomes = 0;
};
Judgement judge(const std::vector<MeasuredRow>& rows, std::vector<Prediction> predictions);
Judgement judge(const config::Machine& machine, const std::vector<MeasuredRow>& rows);

}  // namespace lockstep::plan
