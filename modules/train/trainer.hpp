// The training loop: batch → stage → loss → gradients → reduction → optimizer, with validation, checkpoints, the trace,
// and ways to stop.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/self_test.hpp"
#include "checkpoint/checkpoint.hpp"
#include "cluster/process_grid.hpp"
#include "cluster/session.hpp"
#include "config/run_description.hpp"
#include "data/dataset.hpp"
#include "kernels/backend.hpp"
#include "layout/devices.hpp"
#include "layout/memory_plan.hpp"
#include "layout/rank_share.hpp"
#include "optim/adamw.hpp"
#include "trace/tracer.hpp"
#include "train/evaluation.hpp"
#include "train/pipeline.hpp"
#include "train/progress.hpp"
#include "watch/node_folder.hpp"
#include "watch/run_folder.hpp"
#include "watch/slow_ranks.hpp"
#include "watch/watchdog.hpp"

namespace lockstep::train {

struct TrainOptions {
    std::string resume;             // "", "auto" or a checkpoint file
    std::int64_t stop_at = 0;       // > 0: stop with a checkpoint after this step
    double stop_after_minutes = 0;  // > 0: stop with a checkpoint after so long
    std::string witness_program;    // this program, started once a node to say which rank died; "": none
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
        trace::RegionId initialization, epoch, step, communication, communication_tensor, communication_context,
            communication_data, communication_control, optimizer, validation, checkpoint;
    };
    // A step whose work is issued, and whose numbers are on their way from the device.
    struct Issued {
        std::int64_t step = 0, epoch = 0, batch = 0;
        double start = 0;                  // when it was issued
        std::uint64_t communications = 0;  // the newest one, in the flight recorder
        std::unique_ptr<kernels::Later> losses, loss_scale, decision;
    };
    struct Finished {
        std::int64_t step = 0, epoch = 0, batch = 0;
        double loss = 0, rank_loss = 0, gradient_norm = 0;
        double loss_scale = 1;  // with which it was made
        std::int64_t zero_gradients = 0;
        bool skipped = false;
        double seconds = 0, slowest_seconds = 0;  // of this rank, of all
    };
    struct Control {            // what the ranks tell each other at a step's end
        std::int64_t stop = 0;  // 0 no; 1 --stop-at; 2 time; 3 stop file; above 100: a signal
        bool flush = false, save = false, writing = false, write_pending = false;
        double slowest_seconds = 0;
        void add(const Control& later);
    };
    // trainer_setup.cpp
    void open_data();
    void lay_out();
    void build();
    void start_trace();
    void make_pipeline();
    void check_room() const;
    void check_memory_plan() const;
    void say_memory_plan() const;
    void say_rates(double product_flops);  // of the self-test; 0: without one
    void check_same_data() const;
    void choose_precision();
    void leave_last_words();
    void start_watching();
    bool divides_optimizer() const { return layout::divides_optimizer(description_, grid_); }

    // resume.cpp
    void decide_resume();
    void restore(const std::string& path);
    void check_same_model() const;
    void say_differences() const;
    config::RunDescription resolved() const;  // with what was chosen for this launch
    std::vector<checkpoint::Entry> entries() const;
    std::vector<checkpoint::Entry> entries_of_checkpoint() const;  // that is resumed

    // trainer.cpp
    ExitCode train();
    Control finish_down_to(std::size_t left, std::vector<Finished>& finished);
    Control exchange(double seconds);
    void compare_ranks(std::int64_t step);
    void record(const Finished& finished);
    void report(const Finished& finished);
    void validate(std::int64_t step);
    bool save(std::int64_t step, bool wait);  // false: it could not be written
    void commit_checkpoint();
    void say_checkpoint(std::int64_t step) const;
    void compare_replicas(std::int64_t step);
    checkpoint::Contents contents(std::int64_t step) const;
    std::string stop_reason(std::int64_t stop) const;

    // step.cpp
    bool wants_exact_times(std::int64_t step) const;
    void issue(std::int64_t step, std::int64_t epoch, double start);
    Finished finish(Issued issued);
    void reduce(std::size_t bucket);
    void finish_reductions();
    void share_parameters();
    std::int64_t next_batch() const;
    template <class Body>
    void phase(trace::RegionId region, const char* name, Body&& body);

    cluster::Session& session_;
    config::RunDescription description_;
    TrainOptions options_;
    std::unique_ptr<cluster::HostGroup> control_group_;
    std::unique_ptr<watch::NodeFolder> node_folder_;
    std::unique_ptr<watch::Watchdog> watchdog_;
    // Says how a run ends whose rank 0 can say nothing any more: state, exit code, sentence.
    std::function<bool(const std::string& state, ExitCode code, const std::string& sentence)> last_words_;
    std::unique_ptr<watch::RunFolder> folder_;         // rank 0
    std::unique_ptr<watch::RunLock> checkpoint_lock_;  // rank 0
    std::string run_path_, checkpoint_folder_, resume_path_;
    config::RunDescription stored_;      // of the checkpoint that is resumed
    calibrate::FolderTest folder_test_;  // of the self-test
    layout::Devices devices_;
    cluster::GridShape grid_;
    cluster::ProcessGroups groups_;
    model::TensorGroup tensor_group_;
    model::ContextChain context_chain_;
    model::Neighbours neighbours_{tensor_group_, context_chain_};
    layout::MemoryPlan plan_;  // and what this rank has of the model and of a batch
    layout::GradientPlan gradient_plan_;
    std::optional<data::Dataset> training_data_, validation_data_;
    std::unique_ptr<model::ParameterSet> parameters_;
    std::unique_ptr<optim::AdamW> optimizer_;
    std::unique_ptr<trace::Tracer> tracer_;
    std::unique_ptr<Pipeline> pipeline_;
    std::unique_ptr<checkpoint::Writer> writer_;
    std::unique_ptr<Progress> progress_;
    std::optional<watch::SlowRanks> slow_ranks_;  // where there are several, and the trace times communication
    Regions regions_{};
    Pipeline::Regions pass_regions_;
    Arena scalars_memory_;
    Tensor losses_, validation_loss_;  // fp64 [2]: the sum of this rank's losses, and of all ranks'; [1]
    std::deque<Issued> in_flight_;
    std::size_t in_flight_limit_ = 0;
    std::int64_t samples_in_flight_ = 0;
    bool exact_ = true;  // regions of this step are timed one by one
    double last_finish_ = 0;
    std::int64_t padding_ = 0;               // elements between parameters, of all ranks; their gradients are zero
    std::int64_t not_finite_ = 0;            // steps of this launch whose loss was not
    std::int64_t skipped_to_the_limit_ = 0;  // steps in a row; steps after them may already be under way

    checkpoint::State state_;
    std::int64_t steps_ = 0;  // of the whole schedule
    std::int64_t saved_step_ = -1, epoch_ = -1;
    // Where the run is, for what is said when it fails; outlives this object.
    std::shared_ptr<std::int64_t> current_step_ = std::make_shared<std::int64_t>(0);
    double started_ = 0, last_save_ = 0, last_stop_check_ = 0, last_status_ = 0;
    double model_flop_per_token_ = 0, hardware_flop_per_token_ = 0, peak_flops_ = 0;
    bool already_finished_ = false;
};

}  // namespace lockstep::train
