// The measurements of one run, which all commands compute with. One pass over the rows of its source, a trace or an
// imported table, makes it; memory grows with steps + ranks. Where something was not measured the number is NaN.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/load/counted.hpp"
#include "analysis/load/figures.hpp"
#include "analysis/load/heat_map.hpp"
#include "analysis/load/phases.hpp"
#include "analysis/load/settings.hpp"
#include "analysis/metrics/statistics.hpp"
#include "trace/reader.hpp"

namespace lockstep::analysis {

// With fewer steps with timed phases, compute and communication are unknown.
inline constexpr std::int64_t fewest_timed_steps = 6;

struct MeasureOptions {
    // Steps left out at the beginning of each launch; -1: 9, but at most a fifth of that launch's steps. (The 10th is
    // the first whose phases are timed on a GPU.)
    std::int64_t warm_up = -1;
    std::optional<FigureOptions> figures;  // set: the figures of all steps, too
};

// One step that counts.
struct StepSample {
    std::int64_t step = 0;
    double slowest = unknown;  // seconds of the slowest rank: how long the step took
    double tokens = 0, loss = unknown;
    double compute = unknown, communication = unknown;  // seconds, mean over ranks
    double longest_compute = unknown;                   // of any rank
    // Seconds, mean over ranks; NaN in a step whose phases were not timed one by one (most steps on a GPU).
    std::array<double, phase_count> phases{};
};

// One rank over the steps that count.
struct RankMeasurement : Memory {
    bool present = false;                               // false: there is nothing of this rank
    double seconds = unknown;                           // a step, own time; of an imported run its whole time
    double compute = unknown, communication = unknown;  // a step, of those timed; compute: time outside communication
    double tokens_per_second = unknown;
    PhaseSums phases;  // sums over the timed steps that count; initialization, validation, checkpoint: over the run
    std::string host, gpu, cores;
    std::int64_t threads = 0;
};

struct Measurement {
    std::string path, name;
    double started = unknown;  // the first launch, seconds since 1970
    // An imported table's row: one "step" that is the whole run, times as the table gives them.
    bool imported = false;
    bool whole = false;       // imported, and its numbers are the run's, not each rank's
    std::string description;  // the resolved run description (TOML)
    Settings settings;        // with accumulation and micro_batch, where they can be known
    std::int64_t ranks = 0, hosts = 0;
    std::int64_t batch = 0;               // sequences a step; 0: unknown
    std::int64_t accumulation = 0;        // micro-batches a step on each rank; 0: unknown
    std::int64_t trained_parameters = 0;  // of the whole model; 0: unknown

    std::vector<StepSample> steps;  // those that count
    std::int64_t disturbed = 0;     // steps left out since a checkpoint or a validation had just ended
    std::int64_t warm_up = 0;       // steps left out as warm-up
    std::int64_t timed_steps = 0;   // of those that count: with phases timed one by one
    std::vector<std::pair<std::int64_t, double>> losses;  // of every step, warm-up too
    Validations validations;                              // the same
    std::vector<RankMeasurement> rank;                    // [ranks]
    std::map<std::string, double> communication_kinds;    // data, tensor, pipeline …: seconds a step, mean over ranks
    HeatMap heat;
    double total_seconds = unknown;  // of the slowest rank, everything the trace holds: initialization, validation …
    PhaseSums whole_run;             // mean over ranks, everything, warm-up too
    // Of all steps on this number of ranks, warm-up too: tokens (0: unknown), seconds of the slowest rank.
    double all_tokens = 0, all_step_seconds = 0;
    Counted counted;  // of all steps
    // Rates given by an imported table: together, or unknown.
    double imported_tokens_per_second = unknown;
    std::vector<std::string> remarks;   // caveats
    std::optional<RunFigures> figures;  // of all steps, warm-up too; where asked for

    std::vector<double> slowest_seconds() const;  // of the slowest rank in each step that counts
    double step_seconds() const;                  // median of the slowest rank's
    // What averaging over ranks would say: the above times mean ÷ largest of the ranks' own times, unknown unless each
    // rank has one.
    double average_step_seconds() const;
    Interval step_interval() const;    // 95 %, of the median; unknown below 6 steps
    double step_tokens() const;        // mean; of an imported run all; unknown where none are given
    double tokens_per_second() const;  // all tokens ÷ sum of the slowest rank's seconds, or the table's rate
    double usual_rate() const;         // tokens/s of the median step, or the table's rate
    // Seconds a step, mean over ranks: the median step divided as the steps are whose phases were timed. Unknown where
    // too few of them were.
    double compute_seconds() const;
    double communication_seconds() const;
    double part_of_step(double StepSample::*part) const;
    std::string setting(const std::string& key) const;    // "": unknown
    double setting_number(const std::string& key) const;  // NaN where it is no number
};

Measurement measure(const trace::Run& run, const MeasureOptions& options);

}  // namespace lockstep::analysis
