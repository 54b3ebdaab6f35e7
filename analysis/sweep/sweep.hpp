// Runs over two settings: which pair of values is best by time, which by throughput, and why they may differ.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "analysis/load/measurement.hpp"
#include "base/table.hpp"

namespace lockstep::analysis {

// Seconds, mean over ranks of the whole run, and a call; unknown where not measured. Forward, loss and backward have no
// sum where not every step was timed phase by phase.
struct SweepPhase {
    double sum = unknown, mean_per_call = unknown;
};

// One pair of values; medians over its runs where there are several.
struct SweepRow {
    std::array<std::string, 2> values;
    std::vector<std::size_t> runs;  // indices into the measurements
    double total = unknown;         // seconds, whole run of the slowest rank
    double train = unknown;         // seconds in steps, the slowest rank's
    double epoch = unknown;  // seconds in epochs, mean over ranks: all but initialization, validation, checkpoint
    SweepPhase validation, backward, loss, forward;
    double step_seconds = unknown;  // median, without warm-up; unknown where imported
    Interval step_interval;         // of the steps of one run; of the medians of 6 runs or more
    double tokens_per_second = unknown;
    double tokens = unknown;  // of the whole run
    // Seconds for as many tokens as the run with most of them: those in steps scaled, the rest once; all of them scaled
    // where the seconds in steps are not known.
    double equal_work = unknown;
};

struct Sweep {
    std::array<std::string, 2> keys;  // as asked for
    std::vector<SweepRow> rows;       // by both values, numbers by size
    bool by_equal_work = false;       // the numbers of tokens are known and differ by more than 1 %
    std::optional<std::size_t> best_by_time, best_by_throughput;  // rows
    std::vector<std::string> sentences;                           // the best, and why they differ
    std::vector<std::string> remarks;
};

// `keys`: two settings, by their names in the run description, by the last part of one, or batch, accumulation, ranks,
// micro_batch. One that no run has is a usage error that names the nearest.
Sweep sweep_of(const std::vector<Measurement>& measurements, const std::vector<std::string>& keys);

// "512 × 2"
std::string name_of(const SweepRow& row);

Table sweep_rows(const Sweep& sweep);    // for programs: seconds, every digit
Table sweep_times(const Sweep& sweep);   // for reading
Table sweep_phases(const Sweep& sweep);  // for reading
nlohmann::ordered_json json_of(const Sweep& sweep);

}  // namespace lockstep::analysis
