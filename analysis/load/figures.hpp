// What all steps of a run took, warm-up included, by rank, launch, epoch and step: what summary prints. Memory grows
// with steps + ranks, not with their product, except for the forward latencies (8 bytes a step and rank, for the
// medians) and where each rank of each span is asked for.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/load/counted.hpp"
#include "analysis/load/phases.hpp"
#include "analysis/load/validations.hpp"
#include "base/table.hpp"

namespace lockstep::analysis {

// Mean of the finite values.
struct Mean {
    double sum = 0;
    std::int64_t count = 0;
    void add(double value);
    double value() const;  // NaN: there was none
};

// Bytes of one rank, the most of any step.
struct Memory {
    std::uint64_t allocated = 0, reserved = 0, peak = 0;
    void raise(const Memory& step);  // reserved counts as peak too: a recorded peak may be older
};

// What one rank did in some steps: of the run, an epoch or a step.
struct RankSpan {
    std::int64_t steps = 0;   // in which the rank took part
    double tokens = 0;        // its share: each step's, divided by the ranks of that launch
    double seconds = 0;       // those steps' time, the slowest rank's
    double step_seconds = 0;  // own time in the regions called "step", waiting for others included
    PhaseSums phases;
    Mean loss;
    void add(const RankSpan& more);
    double tokens_per_second() const;  // by its own time, or the slowest rank's where that was not measured
};

struct RankFigures : RankSpan, Memory {
    Cell host, cores, gpu, threads;        // a list where they changed from launch to launch
    double loss_first = 0, loss_last = 0;  // the first and last that are finite; NaN when none is
    double forward_median = 0;             // seconds a call: the median over steps
    double overhead = 0;                   // seconds spent tracing
};

// An epoch, a step, a launch or the whole run. Means over ranks are taken step by step over the ranks that took part,
// and added up. Fastest and slowest are the ranks with least and most time in a phase; where launches come together,
// each launch's are added up, since rank 2 of one launch is another process than rank 2 of the next.
struct SpanFigures {
    std::int64_t number = 0, steps = 0, first_step = 0, last_step = 0, tokens = 0, skipped = 0;
    double tokens_per_rank = 0;          // each step's tokens divided by the ranks that took part
    double seconds = 0, model_flop = 0;  // seconds: the slowest rank's, summed over steps
    Counted counted;
    Mean loss;
    Validations validations;
    PhaseSums mean;
    std::array<double, phase_count> fastest{}, slowest{};
    std::vector<RankSpan> ranks;  // only where asked for; steps = 0 for a rank that took no part
};

// Seconds of one kind of communication within the steps whose phases were timed.
struct CommunicationKind {
    std::string name;
    double mean = 0, least = 0, most = 0;  // over ranks
};

struct FigureOptions {
    bool ranks_of_epochs = false, ranks_of_steps = false;
};

struct RunFigures {
    std::vector<RankFigures> ranks;
    std::vector<SpanFigures> launches, epochs, steps;  // launches: also those none of whose steps count
    SpanFigures all;
    Mean rank_loss;                            // over steps, of the mean over the ranks that took part
    double forward_median = 0;                 // over steps and ranks
    std::array<bool, phase_count> measured{};  // phases that some launch has regions of
    std::vector<CommunicationKind> communication;
    double hardware_flop = 0;
    double overhead = 0;             // seconds spent tracing, mean over ranks
    double overhead_share = 0;       // seconds spent tracing ÷ seconds in all regions
    std::int64_t overlapped = 0;     // steps whose phases overlapped and were not timed one by one
    std::vector<std::string> notes;  // caveats, set by the aggregator
};

// Each 0 where nothing was measured.
double per_second(double amount, double seconds);
double mean_per_call(const PhaseSums& sums, std::size_t phase);

}  // namespace lockstep::analysis
