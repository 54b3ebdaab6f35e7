// One training step on this rank. On a GPU the host runs ahead: it issues a step's work while the numbers of previous
// steps (loss, norm, update decision) are still on their way from the device. They are read one step later, or more in
// the sync mode `bounded`.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "kernels/backend.hpp"
#include "trace/records.hpp"
#include "train/flop_rates.hpp"
#include "train/gradient_exchange.hpp"
#include "train/launch.hpp"
#include "train/layer_groups.hpp"
#include "train/parameter_gathering.hpp"
#include "train/pipeline.hpp"
#include "train/regions.hpp"
#include "train/step_loss.hpp"
#include "train/training_state.hpp"

namespace lockstep::train {

// A step's dependencies; all outlive the runner.
struct StepParts {
    const Launch& launch;
    TrainingState& state;
    LayerGroups& layers;
    Pipeline& pipeline;
    ParameterGathering& gathering;
    GradientExchange& exchange;
    trace::Tracer& tracer;
    const Regions& regions;
    // Before an update changes parameters and optimizer state; returns the seconds for which it held up the step.
    std::function<double()> before_update;
};

class StepRunner {
  public:
    StepRunner(const StepParts& parts, const FlopRates& rates);

    // Whether to time the phases of `step` separately: always if the host waits anyway, else periodically.
    bool wants_exact_times(std::int64_t step) const;

    // Issues a step: forward and backward passes, gradient exchange, update.
    void issue(std::int64_t step, std::int64_t epoch, bool exact);

    // Waits for the oldest step in flight and adds it to state.counters. `seconds` is this rank's; ranks then agree on
    // the slowest.
    trace::StepNumbers finish();
    bool finished_exact() const { return finished_exact_; }  // of the last finished step

    std::size_t in_flight() const { return in_flight_.size(); }
    std::size_t in_flight_limit() const;  // steps that may stay in flight
    std::int64_t next_sample() const { return parts_.state.counters.data_cursor + samples_in_flight(); }
    // The number of consecutive skipped steps once it has reached optimizer.skip_limit, else 0. Later steps may be in
    // flight.
    std::int64_t skipped_to_limit() const { return skipped_to_limit_; }

  private:
    struct Issued {
        trace::StepNumbers numbers;  // known before the step has run
        std::int64_t targets = 0;    // tokens with a loss
        bool exact = true;
        double start = 0;
        std::uint64_t communications = 0;  // the newest one in the flight recorder
        std::unique_ptr<kernels::Later> losses, loss_scale, decision;
    };
    void clear(bool exact);
    std::int64_t count_targets(std::int64_t batch) const;
    void run_passes(std::int64_t batch, std::int64_t targets, bool exact);
    void exchange_gradients(bool exact);
    void fill_gradients(float value);
    void update(double learning_rate, bool exact);
    std::int64_t samples_in_flight() const;
    void count(trace::StepNumbers& numbers, const std::vector<double>& decision);

    StepParts parts_;
    FlopRates rates_;
    PhaseTimer timer_;
    StepLoss loss_;
    std::deque<Issued> in_flight_;
    double last_finish_ = 0;
    bool finished_exact_ = false;
    std::int64_t not_finite_ = 0;  // steps of this launch with a non-finite loss
    std::int64_t skipped_to_limit_ = 0;
};

}  // namespace lockstep::train
