#include "train/pipeline.hpp"

#include <algorithm>

#include "cluster/flight_recorder.hpp"
#include "device/gpu.hpp"
#include "device/sync.hpp"

namespace lockstep::train {
namespace {

// Kernels must run once, to allocate and to select matrix product algorithms, before they are recorded.
constexpr std::int64_t runs_before_recording = 2;

// Tags are small; messages of one tag arrive in order.
constexpr std::int64_t tagged_micro_batches = 64;

}  // namespace

struct Pipeline::Step {
    bool training;  // part of a timed step
    bool exact;
    float gradient_scale;
    Tensor loss_sum;
    const Load& load;
    const Events& events;
    std::int64_t lane_length = 1;  // micro-batches
    std::int64_t sum_length = 1;   // micro-batches whose gradients are added up before they are complete

    bool ends_lane(std::int64_t micro_batch) const { return (micro_batch + 1) % lane_length == 0; }
    std::int64_t lane(std::int64_t micro_batch) const { return micro_batch / lane_length; }
    bool begins_sum(std::int64_t micro_batch) const { return micro_batch % sum_length == 0; }
    bool ends_sum(std::int64_t micro_batch) const { return begins_sum(micro_batch + 1); }
};

Pipeline::Pipeline(layout::Devices& devices, cluster::ProcessGroups& groups, model::ParameterSet& parameters,
                   const config::ModelDescription& model, const layout::GradientPlan& plan,
                   const PipelineOptions& options, const Regions& regions)
    : devices_(devices),
      groups_(groups),
      parameters_(parameters),
      options_(options),
      regions_(regions),
      timer_{options.tracer, devices} {
    const auto chunks = static_cast<std::int64_t>(options.chunks.size());
    const model::ContextChain& chain = options.neighbours->chain;
    shape_ = {options.micro, options.length / chain.size()};
    // With documents apart, the gradients' scale, which would be part of a recording, is another in each step.
    recordable_ = devices.on_gpu() && options.stages == 1 && chain.alone() && options.neighbours->group.alone() &&
                  !options.supply && !options.separates_documents;
    if (!chain.alone()) {
        host_ids_.resize(static_cast<std::size_t>(options.micro * options.length));
        host_targets_.resize(host_ids_.size());
    }
    const auto steps = layout::pipeline_schedule({options.stages, chunks, options.most_micro_batches},
                                                 groups.place.pipeline, options.begun_ahead);
    for (std::int64_t number = 0; number < chunks; ++number) {
        const auto at = static_cast<std::size_t>(number);
        Chunk chunk;
        model::StageOptions stage;
        stage.range = options.chunks[at];
        stage.shape = shape_;
        stage.slots = layout::slots_of(steps, number);
        stage.recompute = options.recompute;
        stage.neighbours = options.neighbours;
        stage.restarts_positions = options.restarts_positions;
        stage.z_loss = static_cast<float>(options.z_loss);
        stage.loss_scale = options.loss_scale;
        stage.supply = options.supply;
        stage.tracer = options.tracer;
        chunk.stage = std::make_unique<model::Stage>(*devices.backend, parameters, model, stage);
        chunk.segments = plan.chunks[at];
        chunk.first = groups.place.pipeline == 0 && number == 0;
        chunk.last = groups.place.pipeline + 1 == options.stages && number + 1 == chunks;
        chunk.reads_tokens = stage.range.embedding || stage.range.head;
        if (chunk.reads_tokens) chunk.tied = plan.tied;
        has_head_ = has_head_ || stage.range.head;
        // The backward pass needs the embedding's tokens again, and all blocks' documents and dropout; targets are used
        // once.
        const bool kept = stage.range.embedding || options.separates_documents || options.dropout;
        const int batches = kept ? stage.slots : stage.range.head ? 1 : 0;
        const DocumentBatches apart = {options.separates_documents ? options.length : 0, chain.rank() * shape_.length,
                                       options.restarts_positions};
        for (int slot = 0; slot < batches; ++slot)
            chunk.batches.emplace_back(devices.backend->device(), shape_, apart, options.dropout);
        chunk.sent_activation.resize(static_cast<std::size_t>(stage.slots));
        chunk.sent_gradient.resize(static_cast<std::size_t>(stage.slots));
        chunks_.push_back(std::move(chunk));
    }
}

int Pipeline::tag(std::int64_t chunk, std::int64_t micro_batch) const {
    return static_cast<int>(chunk * tagged_micro_batches + micro_batch % tagged_micro_batches);
}

void Pipeline::receive(cluster::Communicator& neighbours, Tensor values, int from, int tag, bool timed) {
    const auto scope = timer_.scope(timed, regions_.communication.pipeline);
    neighbours.begin_receive(values, from, tag)->wait();
}

void Pipeline::wait(std::unique_ptr<cluster::Transfer>& sent, bool timed) {
    if (!sent) return;
    const auto scope = timer_.scope(timed, regions_.communication.pipeline);
    sent->wait();
    sent.reset();
}

BatchTensors& Pipeline::batch(Chunk& chunk, int slot) {
    return chunk.batches[chunk.batches.size() == 1 ? 0 : static_cast<std::size_t>(slot)];
}

Tensor Pipeline::ids(Chunk& chunk, int slot) {
    return chunk.batches.empty() ? Tensor() : batch(chunk, slot).ids;
}

void Pipeline::fill_batch(const Step& step, Chunk& chunk, const layout::PipelineStep& pass) {
    const int slot = pass.slot;
    cluster::flight_recorder().beat();
    if (chunk.batches.empty()) return;
    BatchTensors& tensors = batch(chunk, slot);
    {
        const auto scope = timer_.scope(step.training, regions_.pass.data_loading);
        const model::ContextChain& chain = options_.neighbours->chain;
        HostBatch host = tensors.host();
        if (!chunk.reads_tokens) {
            host.ids = host.targets = nullptr;
            step.load(pass.micro_batch, host);
        } else if (chain.alone()) {
            step.load(pass.micro_batch, host);
        } else {
            host.ids = host_ids_.data();
            host.targets = host_targets_.data();
            step.load(pass.micro_batch, host);
            for (std::int64_t sequence = 0; sequence < options_.micro; ++sequence) {
                const std::int64_t from = sequence * options_.length + chain.rank() * shape_.length;
                std::copy_n(host_ids_.data() + from, shape_.length, tensors.host_ids.data() + sequence * shape_.length);
                std::copy_n(host_targets_.data() + from, shape_.length,
                            tensors.host_targets.data() + sequence * shape_.length);
            }
        }
    }
    timer_.phase(step.exact, regions_.pass.data_movement, "data_movement", [&] { tensors.upload(*devices_.backend); });
    chunk.stage->set_documents(slot, tensors.documents, tensors.places);
    chunk.stage->set_dropout_tokens(slot, step.training ? tensors.dropout_tokens : Tensor());
}

void Pipeline::forward_work(const Step& step, Chunk& chunk, int slot) {
    timer_.phase(step.exact, regions_.pass.forward, "forward", [&] { chunk.stage->forward(slot, ids(chunk, slot)); });
}

void Pipeline::loss_work(const Step& step, Chunk& chunk, int slot) {
    if (!chunk.last) return;
    timer_.phase(step.exact, regions_.pass.loss, "loss", [&] {
        BatchTensors& tensors = batch(chunk, slot);
        chunk.stage->loss(slot, tensors.targets, step.gradient_scale, tensors.losses);
        devices_.backend->sum(step.loss_sum, tensors.losses, kernels::Accumulate::yes);
    });
}

void Pipeline::forward(const Step& step, const layout::PipelineStep& pass) {
    Chunk& chunk = chunks_[static_cast<std::size_t>(pass.chunk)];
    const auto slot = static_cast<std::size_t>(pass.slot);
    const int stages = static_cast<int>(options_.stages), here = static_cast<int>(groups_.place.pipeline);
    fill_batch(step, chunk, pass);
    wait(chunk.sent_activation[slot], step.exact);
    wait(chunk.sent_gradient[slot], step.exact);
    if (!chunk.first)
        receive(*groups_.activations, chunk.stage->hidden_input(pass.slot), (here + stages - 1) % stages,
                tag(here == 0 ? pass.chunk - 1 : pass.chunk, pass.micro_batch), step.exact);
    forward_work(step, chunk, pass.slot);
    if (step.training && chunk.last) begin_head_gradients(step, chunk);
    loss_work(step, chunk, pass.slot);
    complete_loss(step, chunk, pass.micro_batch);
    if (!chunk.last)
        chunk.sent_activation[slot] = groups_.activations->begin_send(
            chunk.stage->hidden_output(pass.slot), (here + 1) % stages, tag(pass.chunk, pass.micro_batch));
}

void Pipeline::complete_loss(const Step& step, const Chunk& chunk, std::int64_t micro_batch) {
    if (step.training && chunk.last && step.ends_lane(micro_batch)) step.events.loss_complete(step.lane(micro_batch));
}

void Pipeline::begin_gradients(const Step& step, std::optional<std::size_t> bucket) const {
    if (options_.divides_gradients && bucket) step.events.gradients_begin(*bucket);
}

// Of what the loss computes gradients of.
void Pipeline::begin_head_gradients(const Step& step, const Chunk& chunk) const {
    begin_gradients(step, chunk.tied);
    begin_gradients(step, chunk.segments.front().bucket);
}

void Pipeline::segment_work(Chunk& chunk, const layout::Segment& segment, int slot) {
    chunk.stage->backward_blocks(slot, segment.first_block, segment.last_block);
    if (segment.last) chunk.stage->backward_embedding(slot, ids(chunk, slot));
}

void Pipeline::backward(const Step& step, const layout::PipelineStep& pass) {
    Chunk& chunk = chunks_[static_cast<std::size_t>(pass.chunk)];
    const int stages = static_cast<int>(options_.stages), here = static_cast<int>(groups_.place.pipeline);
    const bool whole = step.ends_sum(pass.micro_batch);
    if (!chunk.stage->has_backward()) return;
    if (!chunk.last) begin_gradients(step, chunk.tied);
    if (!chunk.last)
        receive(*groups_.gradients, chunk.stage->hidden_gradient(pass.slot), (here + 1) % stages,
                tag(here + 1 == stages ? pass.chunk + 1 : pass.chunk, pass.micro_batch), step.exact);
    timer_.phase(step.exact, regions_.pass.backward, "backward", [&] {
        for (const layout::Segment& segment : chunk.segments) {
            if (!chunk.last || !segment.first) begin_gradients(step, segment.bucket);
            segment_work(chunk, segment, pass.slot);
            if (whole && segment.bucket) step.events.gradients_complete(*segment.bucket, step.lane(pass.micro_batch));
        }
        if (whole && chunk.tied) step.events.gradients_complete(*chunk.tied, step.lane(pass.micro_batch));
    });
    if (chunk.stage->has_backward_below())
        chunk.sent_gradient[static_cast<std::size_t>(pass.slot)] = groups_.gradients->begin_send(
            chunk.stage->hidden_gradient(pass.slot), (here + stages - 1) % stages, tag(pass.chunk, pass.micro_batch));
}

// Forward and backward of a whole model on one rank, recorded: at once, or in segments where their gradients are
// reduced.
void Pipeline::replay(const Step& step, const layout::PipelineStep& pass) {
    const NamedRange range("forward, loss, backward");
    Chunk& chunk = chunks_.front();
    fill_batch(step, chunk, pass);
    const bool first = step.begins_sum(pass.micro_batch), last = step.ends_sum(pass.micro_batch);
    // The inner rate is part of the recording; during its warm-up it changes every step.
    const bool lasting = inner_rate_factor_ == 1 && sync_mode() != SyncMode::launch;
    const std::size_t count = chunk.segments.size(), at_once = last ? 1 : count;
    const auto run = [&](std::size_t from, std::size_t segments, const auto& work) {
        auto& recording = chunk.recordings[{first, from, segments}];
        if (!recording && lasting && runs_[first ? 1 : 0] >= runs_before_recording)
            recording = devices_.backend->record(work);
        if (recording)
            recording->run();
        else
            work();
    };
    // Gradients of the previous micro-batch may be in flight during the forward pass.
    const bool forward_alone = options_.divides_gradients;
    if (forward_alone) run(count, 0, [&] { forward_work(step, chunk, pass.slot); });
    for (std::size_t i = 0; i < count; i += at_once) {
        if (chunk.segments[i].first)
            begin_head_gradients(step, chunk);
        else
            begin_gradients(step, chunk.segments[i].bucket);
        run(i, at_once, [&] {
            for (std::size_t at = i; at < i + at_once; ++at) {
                if (chunk.segments[at].first && !forward_alone) forward_work(step, chunk, pass.slot);
                if (chunk.segments[at].first) loss_work(step, chunk, pass.slot);
                segment_work(chunk, chunk.segments[at], pass.slot);
            }
        });
        if (chunk.segments[i].first) complete_loss(step, chunk, pass.micro_batch);
        if (last && chunk.segments[i].bucket)
            step.events.gradients_complete(*chunk.segments[i].bucket, step.lane(pass.micro_batch));
    }
    if (last && chunk.tied) step.events.gradients_complete(*chunk.tied, step.lane(pass.micro_batch));
    ++runs_[first ? 1 : 0];
}

void Pipeline::run(const Work& work, Tensor loss_sum, const Load& load, const Events& events) {
    const std::int64_t lane_length = work.micro_batches / work.lanes;
    const Step step{true,   work.exact,  static_cast<float>(work.gradient_scale),     loss_sum, load,
                    events, lane_length, options_.divides_gradients ? 1 : lane_length};
    LOCKSTEP_ASSERT(work.micro_batches % work.lanes == 0);
    if (work.gradient_scale != gradient_scale_) forget_recordings();
    gradient_scale_ = work.gradient_scale;
    for (Chunk& chunk : chunks_) chunk.stage->set_timed(work.exact);
    if (work.micro_batches != scheduled_) {
        schedule_ =
            layout::pipeline_schedule({options_.stages, static_cast<std::int64_t>(chunks_.size()), work.micro_batches},
                                      groups_.place.pipeline, options_.begun_ahead);
        scheduled_ = work.micro_batches;
    }
    for (const layout::PipelineStep& pass : schedule_) {
        parameters_.set_first_pass(step.begins_sum(pass.micro_batch));  // each chunk takes micro-batches in their order
        if (recordable_ && !work.exact) {
            if (!pass.forward) replay(step, pass);
        } else if (pass.forward) {
            forward(step, pass);
        } else {
            backward(step, pass);
        }
    }
    parameters_.set_first_pass(false);
    for (Chunk& chunk : chunks_) {
        for (auto& sent : chunk.sent_activation) wait(sent, work.exact);
        for (auto& sent : chunk.sent_gradient) wait(sent, work.exact);
        chunk.stage->finish();
    }
}

void Pipeline::forward_only(Tensor loss_sum, const Load& load) {
    const Events nothing;
    const Step step{false, false, 0, loss_sum, load, nothing};
    for (std::size_t number = 0; number < chunks_.size(); ++number) {
        chunks_[number].stage->set_timed(false);
        forward(step, {true, static_cast<std::int64_t>(number), 0, 0});
    }
    for (Chunk& chunk : chunks_) {
        wait(chunk.sent_activation[0], false);
        chunk.stage->finish();
    }
}

// Rate and scale are part of the recording.
void Pipeline::forget_recordings() {
    for (Chunk& chunk : chunks_) chunk.recordings.clear();
    runs_ = {};
}

void Pipeline::set_inner_rate_factor(double factor) {
    if (factor != inner_rate_factor_) forget_recordings();
    inner_rate_factor_ = factor;
    for (Chunk& chunk : chunks_) chunk.stage->set_inner_rate_factor(factor);
}

std::size_t Pipeline::activation_bytes() const {
    std::size_t bytes = 0;
    for (const Chunk& chunk : chunks_) bytes += chunk.stage->activation_bytes();
    return bytes;
}

std::size_t Pipeline::workspace_bytes() const {
    std::size_t bytes = 0;
    for (const Chunk& chunk : chunks_) bytes += chunk.stage->workspace_bytes();
    return bytes + parameters_.adapter_scratch_bytes();
}

}  // namespace lockstep::train
