// The training loop: batch → stage → loss → gradients → reduction → optimizer, with validation, checkpoints, the trace,
// and ways to stop.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "checkpoint/checkpoint.hpp"
#include "cluster/session.hpp"
#include "config/run_description.hpp"
#include "data/dataset.hpp"
#include "kernels/backend.hpp"
#include "model/stage.hpp"
#include "optim/adamw.hpp"
#include "trace/tracer.hpp"
#include "train/evaluation.hpp"
#include "train/progress.hpp"
#include "train/run_folder.hpp"

namespace lockstep::train {

struct TrainOptions {
    std::string resume;             // "", "auto" or a checkpoint file
    std::int64_t stop_at = 0;       // > 0: stop with a checkpoint after this step
    double stop_after_minutes = 0;  // > 0: stop with a checkpoint after so long
};

class Trainer {
  public:
    // Collective; checks the description against ranks and data, takes the run's folder, loads what is resumed.
    Trainer(cluster::Session& session, config::RunDescription description, TrainOptions options);
    ~Trainer();
    Trainer(const Trainer&) = delete;
    Trainer& operator=(const Trainer&) = delete;

    // Trains to the end of the schedule: `done`, or `stopped` when asked to stop before.
    ExitCode run();

  private:
    struct Regions {
        trace::RegionId initialization, epoch, step, data_loading, data_movement, forward, loss, backward,
            communication, communication_data, communication_control, optimizer, validation, checkpoint;
    };
    struct StepResult {
        double loss = 0, rank_loss = 0, gradient_norm = 0;
        bool skipped = false;
    };
    struct Control {            // what the ranks tell each other at a step's end
        std::int64_t stop = 0;  // 0 no; 1 --stop-at; 2 time; 3 stop file; above 100: a signal
        bool flush = false, save = false, writing = false, write_pending = false;
        double slowest_seconds = 0;
    };

    // trainer_setup.cpp
    void open_data();
    void check_batch();
    void decide_resume();
    void build();
    void start_trace();
    void restore(const std::string& path);
    void say_memory_plan() const;
    void check_checkpoint_folder() const;
    void check_same_data() const;
    void check_same_model(const std::string& stored_description) const;
    void say_differences(const std::string& stored_description) const;
    void leave_last_words();
    std::vector<checkpoint::Entry> entries() const;

    // trainer.cpp
    ExitCode train();
    StepResult make_step(std::int64_t step);
    void load_batch(std::int64_t first_sample, std::int64_t micro_step);
    Control exchange(std::int64_t step, double seconds);
    void record(std::int64_t step, std::int64_t epoch, const StepResult& result, double slowest_seconds);
    void report(std::int64_t step, const StepResult& result, double seconds);
    void validate(std::int64_t step);
    bool save(std::int64_t step, bool wait);  // false: it could not be written
    void commit_checkpoint();
    void compare_replicas(std::int64_t step);
    checkpoint::Contents contents(std::int64_t step) const;
    std::string stop_reason(std::int64_t stop) const;

    cluster::Session& session_;
    config::RunDescription description_;
    TrainOptions options_;
    std::unique_ptr<cluster::Communicator> data_communicator_, control_communicator_;
    std::unique_ptr<RunFolder> folder_;         // rank 0
    std::unique_ptr<RunLock> checkpoint_lock_;  // rank 0
    std::string run_path_, checkpoint_folder_, resume_path_;
    std::unique_ptr<kernels::Backend> backend_;
    std::optional<data::Dataset> training_data_, validation_data_;
    std::unique_ptr<model::ParameterSet> parameters_;
    std::unique_ptr<optim::AdamW> optimizer_;
    std::unique_ptr<trace::Tracer> tracer_;
    std::unique_ptr<model::Stage> stage_;
    std::unique_ptr<BatchTensors> batch_;
    std::unique_ptr<checkpoint::Writer> writer_;
    std::unique_ptr<Progress> progress_;
    Regions regions_{};
    std::vector<std::int32_t> host_ids_, host_targets_;

    checkpoint::State state_;
    std::int64_t steps_ = 0;         // of the whole schedule
    std::int64_t micro_ = 1;         // sequences a forward pass: batch.micro, or chosen
    std::int64_t accumulation_ = 1;  // micro-steps a step
    std::int64_t saved_step_ = -1, epoch_ = -1;
    // Where the run is, for what is said when it fails; outlives this object.
    std::shared_ptr<std::int64_t> current_step_ = std::make_shared<std::int64_t>(0);
    double started_ = 0, last_save_ = 0, last_stop_check_ = 0, last_status_ = 0, flop_per_token_ = 0;
    bool already_finished_ = false;
};

// "AMD EPYC 9654, avx2": results repeat bit for bit on the same kind only.
std::string processor_name();

}  // namespace lockstep::train
