// The training loop: issues steps, finishes them, and does what is due after each (validation, checkpoints, checks).
// How the parts of a launch fit together:
//
//   launch            devices, grid, data, folders; what to resume (resume, run_data, memory_check, launch_log)
//   training_state    parameters, optimizer, counters (in checkpoints: checkpoint_contents)
//   product_choices   which algorithms compute matrix products on GPUs
//   step              a step's work: pipeline (forward, backward), parameter_gathering, gradient_exchange, update
//   control           agreement at a step's end
//   step_log          a step's numbers to trace, metrics and log (progress, flop_rates)
//   source_epochs     what the log says of a mixture's sources
//   checkpoint_schedule, local_checkpoints, validation, health_checks   what is due after some steps
//   supervision       watchdog and witness
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "train/checkpoint_schedule.hpp"
#include "train/control.hpp"
#include "train/gradient_exchange.hpp"
#include "train/health_checks.hpp"
#include "train/launch.hpp"
#include "train/layer_groups.hpp"
#include "train/local_checkpoints.hpp"
#include "train/parameter_gathering.hpp"
#include "train/pipeline.hpp"
#include "train/regions.hpp"
#include "train/source_epochs.hpp"
#include "train/step.hpp"
#include "train/step_log.hpp"
#include "train/training_state.hpp"
#include "train/validation.hpp"

namespace lockstep::train {

// Collective: a whole launch, from opening devices to the final status. `done` at the schedule's end, `stopped` if
// asked to stop earlier.
ExitCode train(cluster::Session& session, config::RunDescription description, const TrainOptions& options);

class Trainer {
  public:
    // Collective; both outlive the trainer. Opens the trace, runs the self-test, allocates activations.
    Trainer(Launch& launch, TrainingState& state);
    Trainer(const Trainer&) = delete;
    Trainer& operator=(const Trainer&) = delete;

    ExitCode run();

  private:
    // Acts on what the ranks have agreed after a step.
    struct Due {
        bool last = false, validate = false, save = false, save_locally = false;
        bool compare_replicas = false, probe_links = false;
        bool any() const { return validate || save || save_locally || compare_replicas || probe_links; }
    };
    void begin_step(std::int64_t step);
    void follow_epoch();
    Agreement finish_steps(std::size_t left_in_flight);
    Agreement finish_all_steps();
    Due due_after(std::int64_t step, const Agreement& agreed) const;
    [[noreturn]] void fail_unsaved(std::int64_t step);
    [[noreturn]] void fail_not_finite(std::int64_t step);
    ExitCode end(std::int64_t step, std::int64_t stop);

    Launch& launch_;
    TrainingState& state_;
    std::unique_ptr<trace::Tracer> tracer_;
    Regions regions_;
    LayerGroups layers_;
    ParameterGathering gathering_;
    std::optional<Pipeline> pipeline_;
    std::unique_ptr<GradientExchange> exchange_;
    std::optional<StepRunner> steps_;
    std::optional<Validation> validation_;
    std::optional<CheckpointSchedule> checkpoints_;
    std::optional<LocalCheckpoints> local_checkpoints_;
    std::optional<HealthChecks> health_;
    std::optional<StepLog> log_;
    Control control_;
    SourceEpochs source_epochs_;
    std::int64_t epoch_ = -1;
};

}  // namespace lockstep::train
