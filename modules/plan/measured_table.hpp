// A table of measured training steps of a described program, to fit a machine's description to or to judge it by.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cost/job.hpp"

namespace lockstep::plan {

// A row. Columns: gpus, hidden, layers, heads, dp, tp, pp, micro_batch, global_batch; where given also source_line
// (else the line in the file), date ("MM-DD"), zero_stage (1), sequence (2048), vocabulary (250880), precision (fp16),
// recompute (full), program (megatron-deepspeed), outcome (ok | oom), memory_gb, seconds_per_iteration, flagged.
struct MeasuredRow {
    std::int64_t source_line = 0;
    std::string date, flagged;
    bool out_of_memory = false;
    std::optional<double> seconds, memory_gb;
    cost::Job job;
    cost::Layout layout;
    bool counts() const { return flagged.empty() && seconds && !out_of_memory; }
};
std::vector<MeasuredRow> read_measured_table(const std::string& path);

}  // namespace lockstep::plan
