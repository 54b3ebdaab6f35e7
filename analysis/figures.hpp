// The figures of one run, computed in one pass over its rows: memory grows with steps + ranks, not with their product,
// except for the forward latencies (8 bytes a step and rank, for the medians) and where each rank of each span is asked
// for.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/phases.hpp"
#include "trace/reader.hpp"

namespace lockstep::analysis {

// The mean of what was finite.
struct Mean {
    double sum = 0;
    std::int64_t count = 0;
    void add(double value);
    double value() const;  // NaN when there was nothing
};

struct RankFigures {
    trace::RankRow place;
    PhaseSums phases;
    double step_seconds = 0;               // own time in the regions called "step", waiting for others included
    double loss_first = 0, loss_last = 0;  // the first and last that are finite; NaN when none is
    Mean loss;
    double forward_median = 0;                            // seconds a call: the median over steps
    std::uint64_t allocated = 0, reserved = 0, peak = 0;  // bytes, the most of any step
    double overhead = 0;                                  // seconds spent tracing
    double tokens_per_second = 0;
};

struct RankSpan {
    PhaseSums phases;
    double step_seconds = 0;
    Mean loss;
};

// An epoch or a step.
struct SpanFigures {
    std::int64_t number = 0, steps = 0, tokens = 0, skipped = 0;
    double seconds = 0, model_flop = 0;  // seconds: the slowest rank's, summed over steps
    Mean loss;
    PhaseSums mean;                             // over ranks
    std::array<double, phase_count> slowest{};  // of the rank that spent most time in the phase
    std::vector<RankSpan> ranks;                // only where asked for
};

struct FigureOptions {
    bool ranks_of_epochs = false, ranks_of_steps = false;
};

struct RunFigures {
    std::vector<RankFigures> ranks;
    PhaseSums mean;  // over ranks
    std::vector<SpanFigures> epochs, steps;
    SpanFigures all;            // its steps, tokens, seconds, FLOP, skipped and loss
    double forward_median = 0;  // over steps and ranks
    double hardware_flop = 0;
    double overhead_share = 0;  // seconds spent tracing ÷ seconds in all regions
    std::int64_t first_step = 0, last_step = 0;
    std::vector<std::string> notes;  // what a reader must know to believe the figures
};

RunFigures figures_of(const trace::Run& run, const FigureOptions& options);

// Each 0 where nothing was measured.
double per_second(double amount, double seconds);
double mean_per_call(const PhaseSums& sums, std::size_t phase);

}  // namespace lockstep::analysis
