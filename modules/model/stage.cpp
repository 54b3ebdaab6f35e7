#include "model/stage.hpp"

#include <algorithm>

#include "cluster/flight_recorder.hpp"
#include "model/frozen.hpp"

namespace lockstep::model {

using kernels::Transpose;

namespace {

const Neighbours& neighbours_of(const StageOptions& options) {
    return options.neighbours ? *options.neighbours : no_neighbours();
}

}  // namespace

Stage::Stage(Backend& backend, ParameterSet& parameters, const config::ModelDescription& model,
             const StageOptions& options)
    : backend_(backend),
      parameters_(parameters),
      model_(model),
      options_(options),
      group_(neighbours_of(options).group),
      chain_(neighbours_of(options).chain),
      type_(parameters.compute_type()),
      coming_pass_(parameters.coming_pass()) {
    const StageRange& range = options.range;
    if (range.embedding) {
        table_ = parameters.working("embedding/weight");
        dtable_ = parameters.gradient("embedding/weight");
        if (model.position == config::Position::learned) {
            // The positions of this rank's part of the sequence, or any.
            const bool all = chain_.alone() || options.restarts_positions;
            const std::int64_t first = all ? 0 : chain_.rank() * options.shape.length;
            const std::int64_t count = all ? model.context : options.shape.length;
            const Tensor gradient = parameters.gradient("position/weight");
            position_ = parameters.working("position/weight").slice(first, count);
            if (!gradient.empty()) dposition_ = gradient.slice(first, count);
        }
    }
    for (std::int64_t number = range.first_block; number < range.last_block; ++number) {
        blocks_.emplace_back(backend, parameters, number, model, neighbours_of(options));
        if (!options.tracer) continue;
        const std::string name = "/block_" + std::to_string(number);
        forward_regions_.push_back(options.tracer->region("epoch/step/forward" + name, trace::Detail::layer));
        backward_regions_.push_back(options.tracer->region("epoch/step/backward" + name, trace::Detail::layer));
    }
    if (range.head) {
        const std::string name = model.tied_head ? "embedding/weight" : "head/weight";
        head_ = parameters.working(name);
        dhead_ = parameters.gradient(name);
        parameters.overwrite_in_first_pass(name);
        final_norm_.emplace(parameters, "final_norm", model.norm_epsilon);
        trains_final_norm_ = parameters.trains("final_norm/");
        trains_head_ = parameters.trains(name);
    }
    trains_before_ = options.training && trains_before(model, range.first_block);
    if (!trains_before_) {
        const auto trained = [](const Block& block) { return block.trains(); };
        const auto lowest = options.training ? std::find_if(blocks_.begin(), blocks_.end(), trained) : blocks_.end();
        lowest_ = static_cast<std::size_t>(lowest - blocks_.begin());
    }
    activations_ = planned(backend.device(), "activations", [&](Arena& arena) { plan(arena); });
    Arena workspace(backend.device());
    plan_workspace(workspace);
    workspace_ = Arena(backend.device(), workspace.peak(), "workspace");
    reserve_adapter_scratch(backend.device(), parameters, model, options.shape.rows());
}

void Stage::plan(Arena& arena) {
    slots_.clear();
    recomputed_.clear();
    const bool recompute = options_.recompute == Recompute::full;
    const std::int64_t rows_here = group_.stream_rows(options_.shape.rows());
    const Shape rows = {rows_here, model_.width};
    // The lowest blocks, with no backward pass, keep nothing.
    std::vector<Tensor> passing;
    for (std::size_t i = 0; i + 1 < lowest_ && i < 2; ++i)
        passing.push_back(blocks_[i].plan_output(arena, options_.shape));
    for (int number = 0; number < options_.slots; ++number) {
        Slot slot;
        slot.shape = options_.shape;
        slot.input = arena.allocate(type_, rows);
        if (options_.training && has_backward()) slot.gradient = arena.allocate(type_, rows);
        for (std::size_t i = 0; i < blocks_.size(); ++i) {
            const Tensor output = i + 1 < lowest_ ? passing[i % 2] : Tensor();
            slot.kept.push_back(blocks_[i].plan_kept(arena, options_.shape, output));
            if (!recompute && i >= lowest_)
                slot.saved.push_back(blocks_[i].plan(arena, options_.shape, true, options_.recompute));
        }
        if (final_norm_) {
            slot.normed = arena.allocate(type_, rows);
            final_norm_->plan(arena, slot.final_statistics, rows_here);
        }
        slots_.push_back(std::move(slot));
    }
    // One set for the blocks of a kind. One is in use at a time, so that they share memory.
    if (!recompute && lowest_ == 0) return;
    const bool passed = lowest_ < blocks_.size();
    const std::size_t mark = arena.mark();
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
        if (recomputed_.count(kind_of(i)) > 0) continue;
        arena.release(mark);
        recomputed_.emplace(kind_of(i),
                            blocks_[i].plan(arena, options_.shape, recompute && passed, options_.recompute));
    }
}

config::BlockKind Stage::kind_of(std::size_t block) const {
    return config::kind_of_block(model_, options_.range.first_block + static_cast<std::int64_t>(block));
}

Block::Saved& Stage::saved(Slot& slot, std::size_t block) {
    return slot.saved.empty() || block < lowest_ ? recomputed_.at(kind_of(block)) : slot.saved[block - lowest_];
}

void Stage::plan_workspace(Arena& arena) const {
    const std::int64_t rows = options_.shape.rows(), d = model_.width;
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
        const auto plan = [&](Direction direction) {
            blocks_[i].plan_workspace(arena, options_.shape, options_.recompute, direction, passes_below(i));
        };
        plan(Direction::forward);
        if (options_.training && i >= lowest_) plan(Direction::backward);
    }
    const std::size_t mark = arena.mark();
    for (int i = 0; i < (group_.divides_rows() ? 3 : 1); ++i) arena.allocate(type_, {rows, d});
    if (dposition_.axes() > 0 && dtable_.axes() == 0) arena.allocate(Type::fp32, {1, d});
    if (position_.axes() > 0 && options_.restarts_positions) arena.allocate(type_, {rows, d});
    if (options_.range.head) {
        arena.allocate_aligned_rows(type_, head_rows(), head_.size(0));
        if (!group_.alone()) arena.allocate(Type::fp32, {head_rows(), 1});
        if (!group_.alone()) arena.allocate(Type::fp32, {head_rows(), 2});
    }
    arena.release(mark);
}

std::int64_t Stage::head_rows() const {
    // The same on all ranks of the tensor group, though parts of the vocabulary may differ by a row.
    const std::int64_t columns = (model_.vocabulary + group_.part().size - 1) / group_.part().size;
    const std::int64_t most = logits_bytes(backend_.device().kind);
    const std::int64_t rows = std::max<std::int64_t>(1, options_.shape.rows());
    const std::int64_t fitting = most / (columns * static_cast<std::int64_t>(type_bytes(type_)));
    const std::int64_t pieces = (rows - 1) / std::clamp<std::int64_t>(fitting, 1, rows) + 1;
    return (rows - 1) / pieces + 1;
}

Tensor Stage::hidden_output(int slot) const {
    const Slot& at = slots_[static_cast<std::size_t>(slot)];
    return at.kept.empty() ? at.input : at.kept.back().output;
}

std::size_t Stage::table_bytes() const {
    std::size_t bytes = 0;
    for (const Block& block : blocks_) bytes += block.mixer().table_bytes();
    return bytes;
}

void Stage::set_inner_rate_factor(double factor) {
    for (Block& block : blocks_) block.mixer().set_inner_rate_factor(factor);
}

void Stage::set_documents(int slot, const kernels::Documents& documents, Tensor places) {
    LOCKSTEP_ASSERT(places.empty() || options_.restarts_positions);
    Slot& at = slots_[static_cast<std::size_t>(slot)];
    at.shape.documents = documents;
    at.places = places;
}

void Stage::need(ModelPart part, std::optional<ModelPart> next) const {
    if (options_.supply) options_.supply->need(part, next);
}

ModelPart Stage::part_of(std::size_t block) const {
    return ModelPart::block(options_.range.first_block + static_cast<std::int64_t>(block));
}

void Stage::embed(Slot& slot, Tensor ids) {
    LOCKSTEP_ASSERT(chain_.alone() || options_.restarts_positions == !slot.places.empty());
    const std::size_t mark = workspace_.mark();
    const std::int64_t rows = options_.shape.rows(), length = options_.shape.length;
    const Tensor partial = group_.partial_for(workspace_, slot.input, rows);
    const Tensor position = group_.first() ? position_ : Tensor();
    backend_.embedding_forward(partial, ids, table_, group_.part().first(model_.vocabulary),
                               slot.places.empty() ? position : Tensor(), length, 0);
    if (!position.empty() && !slot.places.empty()) {
        const Tensor positions = workspace_.allocate(type_, {rows, model_.width});
        backend_.embedding_forward(positions, slot.places, position, 0, {}, length, 0);
        backend_.add(partial, positions.reshaped(partial.shape()));
    }
    group_.add_up(backend_, slot.input, partial);
    workspace_.release(mark);
}

void Stage::forward(int slot, Tensor ids) {
    Slot& at = slots_[static_cast<std::size_t>(slot)];
    parameters_.set_dropout_tokens(at.dropout_tokens);
    if (options_.range.embedding) {
        need(ModelPart::embedding(), part_of(0));
        embed(at, ids);
    }
    Tensor h = at.input;
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
        const trace::OptionalScope timed(timed_ ? options_.tracer : nullptr,
                                         options_.tracer ? forward_regions_[i] : -1);
        cluster::flight_recorder().beat();
        if (i + 1 < blocks_.size())
            need(part_of(i), part_of(i + 1));
        else
            need(part_of(i), final_norm_ ? std::optional(head_part()) : std::nullopt);
        blocks_[i].forward(backend_, workspace_, saved(at, i), at.kept[i], h, at.shape);
        h = at.kept[i].output;
    }
    if (!final_norm_) return;
    need(head_part());
    final_norm_->forward(backend_, at.normed, at.final_statistics, h);
}

void Stage::cross_entropy(Tensor losses, Tensor logits, Tensor targets, float gradient_scale) {
    const auto cap = static_cast<float>(model_.logit_cap);
    const kernels::LossGradient gradient{gradient_scale, options_.z_loss, cap > 0 ? 1 / cap : 0};
    if (cap > 0) backend_.cap_logits(logits, cap);
    if (group_.alone()) {
        backend_.cross_entropy(losses, logits, targets, gradient, options_.loss_scale);
        return;
    }
    const std::size_t mark = workspace_.mark();
    const std::int64_t rows = logits.rows(), first_id = group_.part().first(model_.vocabulary);
    const Tensor maxima = workspace_.allocate(Type::fp32, {rows}), sums = workspace_.allocate(Type::fp32, {rows, 2});
    backend_.cross_entropy_maxima(maxima, logits);
    group_.maximum(maxima);
    backend_.cross_entropy_sums(sums, logits, maxima, targets, first_id);
    group_.sum(sums);
    backend_.cross_entropy_finish(losses, logits, maxima, sums, targets, first_id, gradient, options_.loss_scale);
    workspace_.release(mark);
}

void Stage::loss(int slot, Tensor targets, float gradient_scale, Tensor losses) {
    LOCKSTEP_ASSERT(options_.range.head);
    Slot& at = slots_[static_cast<std::size_t>(slot)];
    const bool backward = options_.training && gradient_scale != 0;
    need(head_part());
    const std::size_t mark = workspace_.mark();
    const std::int64_t rows = options_.shape.rows(), most = head_rows();
    const Tensor all_normed = group_.gathered(workspace_, backend_, at.normed, rows);
    const bool into_head = backward && (trains_final_norm_ || has_block_backward());
    const Tensor dnormed = into_head ? workspace_.allocate(type_, at.normed.shape()) : Tensor();
    const Tensor all_dnormed = into_head ? group_.partial_for(workspace_, dnormed, rows) : Tensor();
    const Tensor all_logits = workspace_.allocate_aligned_rows(type_, most, head_.size(0));
    for (std::int64_t first = 0; first < rows; first += most) {
        const std::int64_t count = std::min(most, rows - first);
        const Tensor logits = all_logits.slice(0, count), normed = all_normed.slice(first, count);
        backend_.product(logits, normed, Transpose::no, head_, Transpose::yes, Accumulate::no);
        cross_entropy(losses.slice(first, count), logits, targets.slice(first, count), backward ? gradient_scale : 0);
        if (!backward) continue;
        if (into_head)
            backend_.product(all_dnormed.slice(first, count), logits, Transpose::no, head_, Transpose::no,
                             Accumulate::no);
        if (!dhead_.empty())
            backend_.product(dhead_, logits, Transpose::yes, normed, Transpose::no,
                             first == 0 ? coming_pass_ : Accumulate::yes);
    }
    if (into_head) {
        group_.add_up(backend_, dnormed, all_dnormed);
        final_norm_->backward(backend_, at.gradient, dnormed, hidden_output(slot), at.final_statistics, Accumulate::no);
    }
    workspace_.release(mark);
}

void Stage::backward(int slot, Tensor ids) {
    backward_blocks(slot, 0, blocks_.size());
    backward_embedding(slot, ids);
}

void Stage::backward_blocks(int slot, std::size_t first, std::size_t last) {
    LOCKSTEP_ASSERT(options_.training);
    Slot& at = slots_[static_cast<std::size_t>(slot)];
    parameters_.set_dropout_tokens(at.dropout_tokens);
    for (std::size_t i = last; i-- > std::max(first, lowest_);) {
        const trace::OptionalScope timed(timed_ ? options_.tracer : nullptr,
                                         options_.tracer ? backward_regions_[i] : -1);
        cluster::flight_recorder().beat();
        const Tensor h = i == 0 ? at.input : at.kept[i - 1].output;
        need(part_of(i), i > lowest_ ? std::optional(part_of(i - 1)) : std::nullopt);
        if (at.saved.empty()) blocks_[i].recompute(backend_, workspace_, saved(at, i), at.kept[i], h, at.shape);
        blocks_[i].backward(backend_, workspace_, at.gradient, saved(at, i), at.kept[i], h, at.shape, passes_below(i));
    }
}

bool Stage::has_block_backward() const {
    return trains_before_ || lowest_ < blocks_.size();
}

bool Stage::has_backward() const {
    return has_block_backward() || trains_final_norm_ || trains_head_;
}

void Stage::backward_embedding(int slot, Tensor ids) {
    if (!options_.range.embedding || (dtable_.empty() && dposition_.empty())) return;
    const std::size_t mark = workspace_.mark();
    const Tensor dy = group_.gathered(workspace_, backend_, hidden_gradient(slot), options_.shape.rows());
    const Tensor places = slots_[static_cast<std::size_t>(slot)].places;
    const Tensor dposition = places.empty() ? dposition_ : Tensor();
    if (!dtable_.empty())
        backend_.embedding_backward(dtable_, dposition, ids, dy, group_.part().first(model_.vocabulary),
                                    options_.shape.length);
    else if (!dposition.empty())  // into a table with one row past the last token
        backend_.embedding_backward(workspace_.allocate(Type::fp32, {1, model_.width}), dposition, ids, dy,
                                    model_.vocabulary, options_.shape.length);
    if (!places.empty() && !dposition_.empty())
        backend_.embedding_backward(dposition_, {}, places, dy, 0, options_.shape.length);
    workspace_.release(mark);
}

void Stage::finish() {
    for (Slot& slot : slots_)
        for (Block::Kept& kept : slot.kept) kept.finish();
}

void Stage::logits(int slot, Tensor logits) {
    LOCKSTEP_ASSERT(options_.range.head && group_.alone());
    backend_.product(logits, slots_[static_cast<std::size_t>(slot)].normed, Transpose::no, head_, Transpose::yes,
                     Accumulate::no);
    if (model_.logit_cap > 0) backend_.cap_logits(logits, static_cast<float>(model_.logit_cap));
}

}  // namespace lockstep::model
