// This rank's share of a step's forward and backward passes: its chunks of the model in the order of the pipeline
// schedule, exchanging activations and gradients with neighbouring stages.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "cluster/process_grid.hpp"
#include "layout/devices.hpp"
#include "layout/gradient_plan.hpp"
#include "layout/pipeline_schedule.hpp"
#include "model/stage.hpp"
#include "train/evaluation.hpp"
#include "train/regions.hpp"

namespace lockstep::train {

struct PipelineOptions {
    std::vector<model::StageRange> chunks;  // this rank's parts of the model
    std::int64_t stages = 1;
    std::int64_t micro = 1, length = 1;   // sequences per forward pass, tokens per whole sequence
    std::int64_t most_micro_batches = 1;  // of any step
    std::int64_t begun_ahead = 0;         // as layout::begun_ahead
    model::Recompute recompute = model::Recompute::none;
    const model::Neighbours* neighbours = nullptr;  // outlives the pipeline
    bool separates_documents = false, restarts_positions = false;
    std::optional<RandomStream> dropout;  // of tokens, where adapters have it
    double z_loss = 0;
    Tensor loss_scale;
    model::ParameterSupply* supply = nullptr;  // as StageOptions
    bool divides_gradients = false;            // gradients are taken of each micro-batch
    trace::Tracer* tracer = nullptr;
};

class Pipeline {
  public:
    using Load = std::function<void(std::int64_t micro_batch, const HostBatch& batch)>;
    // What is said of a lane, or of the whole step where there is one: its sum of losses is whole, on ranks with the
    // head; its backward passes have completed a bucket's gradients. If the replicas divide gradients, the latter is
    // said of each micro-batch, and before it that they are about to be computed.
    struct Events {
        std::function<void(std::int64_t lane)> loss_complete;
        std::function<void(std::size_t bucket)> gradients_begin;
        std::function<void(std::size_t bucket, std::int64_t lane)> gradients_complete;
    };

    Pipeline(layout::Devices& devices, cluster::ProcessGroups& groups, model::ParameterSet& parameters,
             const config::ModelDescription& model, const layout::GradientPlan& plan, const PipelineOptions& options,
             const Regions& regions);

    struct Work {
        std::int64_t micro_batches = 1, lanes = 1;  // of this rank; lanes follow each other and are equally long
        bool exact = false;                         // every phase is timed separately
        double gradient_scale = 1;                  // gradients are those of loss x gradient_scale
    };
    // One step. loss_sum (fp64 [1]) += the losses of this rank's tokens, on ranks with the head; what is there when a
    // lane's losses are complete is that lane's, and for the receiver of the event to clear.
    void run(const Work& work, Tensor loss_sum, const Load& load, const Events& events);
    // One micro-batch forward; loss_sum as above.
    void forward_only(Tensor loss_sum, const Load& load);

    void set_inner_rate_factor(double factor);
    bool has_head() const { return has_head_; }
    std::size_t activation_bytes() const;
    std::size_t workspace_bytes() const;

  private:
    struct Chunk {
        std::unique_ptr<model::Stage> stage;
        std::vector<layout::Segment> segments;
        // By whether gradients are written or added to, first segment (their number: the forward pass alone), number of
        // segments.
        std::map<std::tuple<bool, std::size_t, std::size_t>, std::unique_ptr<kernels::Recording>> recordings;
        std::vector<BatchTensors> batches;  // per slot, where tokens are needed
        std::vector<std::unique_ptr<cluster::Transfer>> sent_activation, sent_gradient;  // per slot
        bool first = false, last = false;                                                // chunk of the whole model
        bool reads_tokens = false;          // has the embedding or the head
        std::optional<std::size_t> tied{};  // the bucket of a table that another stage has too
    };
    struct Step;  // the arguments of run()

    void forward(const Step& step, const layout::PipelineStep& pass);
    void backward(const Step& step, const layout::PipelineStep& pass);
    void replay(const Step& step, const layout::PipelineStep& pass);
    void forward_work(const Step& step, Chunk& chunk, int slot);
    void loss_work(const Step& step, Chunk& chunk, int slot);
    void segment_work(Chunk& chunk, const layout::Segment& segment, int slot);
    void begin_head_gradients(const Step& step, const Chunk& chunk) const;
    void begin_gradients(const Step& step, std::optional<std::size_t> bucket) const;
    void complete_loss(const Step& step, const Chunk& chunk, std::int64_t micro_batch);
    void fill_batch(const Step& step, Chunk& chunk, const layout::PipelineStep& pass);
    BatchTensors& batch(Chunk& chunk, int slot);
    Tensor ids(Chunk& chunk, int slot);
    void receive(cluster::Communicator& from_neighbours, Tensor values, int from, int tag, bool timed);
    void wait(std::unique_ptr<cluster::Transfer>& sent, bool timed);
    void forget_recordings();
    int tag(std::int64_t chunk, std::int64_t micro_batch) const;

    layout::Devices& devices_;
    cluster::ProcessGroups& groups_;
    model::ParameterSet& parameters_;
    PipelineOptions options_;
    Regions regions_;
    PhaseTimer timer_;
    model::PassShape shape_;  // of this rank's part
    std::vector<Chunk> chunks_;
    bool has_head_ = false;
    bool recordable_ = false;                     // no communication between kernels
    std::vector<layout::PipelineStep> schedule_;  // for the current number of micro-batches
    std::int64_t scheduled_ = 0;
    // Micro-batches that replay() took since the work last changed: later ones of a step, first ones.
    std::array<std::int64_t, 2> runs_{};
    double inner_rate_factor_ = 1, gradient_scale_ = 0;
    std::vector<std::int32_t> host_ids_, host_targets_;  // of whole sequences, if they are divided
};

}  // namespace lockstep::train
