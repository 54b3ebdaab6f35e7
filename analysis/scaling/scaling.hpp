// Series of runs that differ only in how many ranks they have: speedup, efficiency, what limits them. docs/analysis.md
// has every equation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/load/measurement.hpp"
#include "analysis/load/series.hpp"
#include "analysis/metrics/fits.hpp"

namespace lockstep::analysis {

struct ScalingOptions {
    std::string kind = "auto";         // auto, strong, weak
    std::vector<std::string> ignored;  // settings that may differ within a series; they are marked
    std::vector<std::string> laws;     // amdahl, gustafson, universal_scalability, extra_p; empty: the first three
    std::vector<double> predict_at;    // numbers of ranks
    std::int64_t base_ranks = 0;       // 0: the smallest
};

// One number of ranks; the median over its runs where there are several.
struct ScalingPoint {
    std::vector<std::size_t> runs;  // indices into Scaling::measurements
    std::int64_t ranks = 0;
    double threads = unknown;  // of all ranks together; of an imported run unknown
    // Of a step, or of the whole run where the series is imported; NaN where only rates are known.
    double seconds_slowest = unknown, seconds_average = unknown;
    Interval seconds_interval, speedup_interval;                  // of seconds_slowest; of speedup_slowest
    double tokens_per_second = unknown;                           // together
    double tokens_per_second_slowest = unknown;                   // ranks × the slowest rank's own rate
    double speedup_slowest = unknown, speedup_average = unknown;  // over the base
    double efficiency = unknown, efficiency_average = unknown;    // speedup ÷ (ranks ÷ base ranks)
    double efficiency_slowest_rate = unknown;                     // where only rates are known: by the slowest's
    double load_balance = unknown;                                // mean ÷ largest over ranks
    double load_balance_time = unknown;                           // the same of an imported run's times
    std::string load_balance_by;                                  // "time", "compute" or "rate"
    double communication_efficiency = unknown, parallel_efficiency = unknown;
    double computation_scaling = unknown, global_efficiency = unknown;
    double compute_seconds = unknown, communication_seconds = unknown;    // mean over ranks, a step
    double communication_share = unknown, communication_ratio = unknown;  // of the step; over compute
    double karp_flatt = unknown;
    std::vector<std::string> remarks;
};

struct ScalingSeries {
    std::string title;  // what the runs share: "batch 64"
    Kind kind = Kind::strong;
    std::string kind_reason;           // "given", or why it was inferred: "the batch is 64 in all of them"
    bool timed = true;                 // false: only rates are known
    std::string unit;                  // what the seconds are of: "step" or "run"
    std::vector<ScalingPoint> points;  // by ranks
    std::size_t base = 0;              // the point that the others are compared with
    std::vector<Fit> fits;
    std::vector<std::string> remarks;
};

struct Scaling {
    std::vector<Measurement> measurements;
    std::vector<ScalingSeries> series;
    std::vector<std::string> remarks;  // runs that fit into no series, and why
};

Scaling scaling_of(std::vector<Measurement> measurements, const ScalingOptions& options);

}  // namespace lockstep::analysis
