#include "model/stage.hpp"

#include <algorithm>

namespace lockstep::model {

using kernels::Transpose;

namespace {

// Logits are made for so many rows at a time that they stay near this size.
constexpr std::int64_t logits_bytes_cpu = std::int64_t{32} << 20, logits_bytes_cuda = std::int64_t{512} << 20;

class OptionalScope {
  public:
    OptionalScope(trace::Tracer* tracer, const std::vector<trace::RegionId>& regions, std::size_t index)
        : tracer_(tracer), region_(tracer ? regions[index] : -1) {
        if (tracer_) tracer_->begin(region_);
    }
    ~OptionalScope() {
        if (tracer_) tracer_->end(region_);
    }
    OptionalScope(const OptionalScope&) = delete;
    OptionalScope& operator=(const OptionalScope&) = delete;

  private:
    trace::Tracer* tracer_;
    trace::RegionId region_;
};

}  // namespace

Stage::Stage(Backend& backend, ParameterSet& parameters, const config::ModelDescription& model,
             const StageOptions& options)
    : backend_(backend), model_(model), options_(options), type_(parameters.compute_type()) {
    const StageRange& range = options.range;
    if (range.embedding) {
        table_ = parameters.working("embedding/weight");
        dtable_ = parameters.gradient("embedding/weight");
        if (model.position == "learned") {
            position_ = parameters.working("position/weight");
            dposition_ = parameters.gradient("position/weight");
        }
    }
    for (std::int64_t number = range.first_block; number < range.last_block; ++number) {
        blocks_.emplace_back(backend, parameters, number, model);
        if (!options.tracer) continue;
        const std::string name = "/block_" + std::to_string(number);
        forward_regions_.push_back(options.tracer->region("epoch/step/forward" + name, trace::Detail::layer));
        backward_regions_.push_back(options.tracer->region("epoch/step/backward" + name, trace::Detail::layer));
    }
    if (range.head) {
        const std::string name = model.tied_head ? "embedding/weight" : "head/weight";
        head_ = parameters.working(name);
        dhead_ = parameters.gradient(name);
        final_norm_.emplace(parameters, "final_norm", model.norm_epsilon);
    }
    Arena measure(backend.device());
    std::vector<Slot> unused;
    plan(measure, unused);
    activations_ = Arena(backend.device(), measure.peak(), "activations");
    plan(activations_, slots_);
    Arena workspace(backend.device());
    plan_workspace(workspace);
    workspace_ = Arena(backend.device(), workspace.peak(), "workspace");
}

void Stage::plan(Arena& arena, std::vector<Slot>& slots) const {
    slots.clear();
    const Shape rows = {options_.shape.rows(), model_.width};
    for (int number = 0; number < options_.slots; ++number) {
        Slot slot;
        slot.input = arena.allocate(type_, rows);
        if (options_.training) slot.gradient = arena.allocate(type_, rows);
        for (const Block& block : blocks_) slot.blocks.push_back(block.plan(arena, options_.shape, options_.training));
        if (final_norm_) {
            slot.normed = arena.allocate(type_, rows);
            final_norm_->plan(arena, slot.final_statistics, options_.shape.rows());
        }
        slots.push_back(std::move(slot));
    }
}

// The largest sum of temporaries that live at one time, by the same order of cuts that backward makes.
void Stage::plan_workspace(Arena& arena) const {
    const std::int64_t rows = options_.shape.rows(), d = model_.width;
    const auto cut = [&](std::int64_t columns) { arena.allocate(type_, {rows, columns}); };
    if (options_.training) {
        cut(d);  // the block's gradient of a normed tensor
        const std::size_t mark = arena.mark();
        for (int i = 0; i < 3; ++i) cut(model_.mlp_width);
        arena.release(mark);
        for (int i = 0; i < 6; ++i) cut(d);  // the mixer's
        cut(model_.heads);
        arena.allocate(Type::fp32, {rows, model_.heads});
        arena.allocate(Type::fp32, {model_.ttt.mini_batch});
    }
    arena.release(0);
    arena.allocate(type_, {head_rows(), model_.vocabulary});
    if (options_.training) cut(d);
    arena.release(0);
}

std::int64_t Stage::head_rows() const {
    const std::int64_t most = backend_.device().kind == DeviceKind::cpu ? logits_bytes_cpu : logits_bytes_cuda;
    const std::int64_t fitting = most / (model_.vocabulary * static_cast<std::int64_t>(type_bytes(type_)));
    return std::clamp<std::int64_t>(fitting, 1, std::max<std::int64_t>(1, options_.shape.rows()));
}

Tensor Stage::hidden_output(int slot) const {
    const Slot& kept = slots_[static_cast<std::size_t>(slot)];
    return kept.blocks.empty() ? kept.input : kept.blocks.back().output;
}

void Stage::set_inner_rate_factor(double factor) {
    for (Block& block : blocks_) block.mixer().set_inner_rate_factor(factor);
}

void Stage::forward(int slot, Tensor ids) {
    Slot& kept = slots_[static_cast<std::size_t>(slot)];
    if (options_.range.embedding)
        backend_.embedding_forward(kept.input, ids, table_, 0, position_, options_.shape.length, 0);
    Tensor h = kept.input;
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
        const OptionalScope timed(timed_ ? options_.tracer : nullptr, forward_regions_, i);
        blocks_[i].forward(backend_, workspace_, kept.blocks[i], h, options_.shape);
        h = kept.blocks[i].output;
    }
    if (final_norm_) final_norm_->forward(backend_, kept.normed, kept.final_statistics, h);
}

void Stage::loss(int slot, Tensor targets, float gradient_scale, Tensor losses) {
    LOCKSTEP_ASSERT(options_.range.head);
    Slot& kept = slots_[static_cast<std::size_t>(slot)];
    const bool backward = options_.training && gradient_scale != 0;
    const std::size_t mark = workspace_.mark();
    const std::int64_t rows = options_.shape.rows(), most = head_rows();
    const Tensor all_logits = workspace_.allocate(type_, {most, model_.vocabulary});
    const Tensor dnormed = backward ? workspace_.allocate(type_, {rows, model_.width}) : Tensor();
    for (std::int64_t first = 0; first < rows; first += most) {
        const std::int64_t count = std::min(most, rows - first);
        const Tensor logits = all_logits.slice(0, count), normed = kept.normed.slice(first, count);
        backend_.product(logits, normed, Transpose::no, head_, Transpose::yes, Accumulate::no);
        backend_.cross_entropy(losses.slice(first, count), logits, targets.slice(first, count),
                               backward ? gradient_scale : 0, {});
        if (!backward) continue;
        backend_.product(dnormed.slice(first, count), logits, Transpose::no, head_, Transpose::no, Accumulate::no);
        backend_.product(dhead_, logits, Transpose::yes, normed, Transpose::no, Accumulate::yes);
    }
    if (backward) {
        backend_.fill(kept.gradient, 0);  // a norm's backward adds
        final_norm_->backward(backend_, kept.gradient, dnormed, hidden_output(slot), kept.final_statistics);
    }
    workspace_.release(mark);
}

void Stage::backward(int slot, Tensor ids) {
    backward_blocks(slot, 0, blocks_.size());
    backward_embedding(slot, ids);
}

void Stage::backward_blocks(int slot, std::size_t first, std::size_t last) {
    LOCKSTEP_ASSERT(options_.training);
    Slot& kept = slots_[static_cast<std::size_t>(slot)];
    for (std::size_t i = last; i-- > first;) {
        const OptionalScope timed(timed_ ? options_.tracer : nullptr, backward_regions_, i);
        const Tensor h = i == 0 ? kept.input : kept.blocks[i - 1].output;
        blocks_[i].backward(backend_, workspace_, kept.gradient, kept.blocks[i], h, options_.shape);
    }
}

void Stage::backward_embedding(int slot, Tensor ids) {
    if (options_.range.embedding)
        backend_.embedding_backward(dtable_, dposition_, ids, hidden_gradient(slot), 0, options_.shape.length);
}

void Stage::logits(int slot, Tensor logits) {
    LOCKSTEP_ASSERT(options_.range.head);
    backend_.product(logits, slots_[static_cast<std::size_t>(slot)].normed, Transpose::no, head_, Transpose::yes,
                     Accumulate::no);
}

}  // namespace lockstep::model
