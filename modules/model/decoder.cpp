#include "model/decoder.hpp"

#include <algorithm>

namespace lockstep::model {

using kernels::Transpose;

namespace {
constexpr std::int64_t piece = 256;  // prompt tokens fed at a time
}

Decoder::Decoder(Backend& backend, ParameterSet& parameters, const config::ModelDescription& model,
                 std::int64_t context)
    : backend_(backend),
      model_(model),
      context_(context),
      type_(parameters.compute_type()),
      table_(parameters.working("embedding/weight")),
      head_(parameters.working(model.tied_head ? "embedding/weight" : "head/weight")),
      final_norm_(parameters, "final_norm", model.norm_epsilon) {
    if (model.position == config::Position::learned) learned_position_ = parameters.working("position/weight");
    for (std::int64_t number = 0; number < model.layers; ++number)
        blocks_.emplace_back(backend, parameters, number, model);
    memory_ = planned(backend.device(), "decoding state", [&](Arena& arena) { plan_states(arena); });
    Arena workspace(backend.device());
    plan_workspace(workspace);
    workspace_ = Arena(backend.device(), workspace.peak(), "workspace");
    reserve_adapter_scratch(backend.device(), parameters, model, most_tokens());
    start_sequence();
}

std::int64_t Decoder::most_tokens() const {
    return std::min(piece, context_);
}

void Decoder::plan_states(Arena& arena) {
    states_.clear();
    for (const Block& block : blocks_) states_.push_back(block.plan_state(arena, context_, most_tokens()));
    logits_ = arena.allocate(Type::fp32, {1, model_.vocabulary});
}

// Mirrors the allocations of feed_piece.
void Decoder::plan_workspace(Arena& arena) const {
    const std::int64_t count = most_tokens();
    arena.allocate(Type::int32, {count});
    arena.allocate(type_, {count, model_.width});
    for (const Block& block : blocks_) block.plan_decoding(arena, count);
    arena.allocate(type_, {1, model_.width});
    Norm::Statistics statistics;
    statistics.plan(arena, 1, true);
}

void Decoder::start_sequence() {
    position_ = 0;
    for (std::size_t i = 0; i < blocks_.size(); ++i) blocks_[i].start_sequence(backend_, states_[i]);
}

void Decoder::set_inner_rate_factor(double factor) {
    for (Block& block : blocks_) block.mixer().set_inner_rate_factor(factor);
}

const std::vector<float>& Decoder::feed(const std::vector<std::int32_t>& tokens) {
    LOCKSTEP_ASSERT(!tokens.empty());
    const auto count = static_cast<std::int64_t>(tokens.size());
    if (position_ + count > context_)
        throw usage_error("the sequence exceeds the {} tokens that this decoder was planned for", context_);
    for (std::int64_t first = 0; first < count; first += piece)
        feed_piece(tokens.data() + first, std::min(piece, count - first));
    host_logits_.resize(static_cast<std::size_t>(model_.vocabulary));
    backend_.download(host_logits_.data(), logits_);
    return host_logits_;
}

void Decoder::feed_piece(const std::int32_t* tokens, std::int64_t count) {
    const std::size_t mark = workspace_.mark();
    const Tensor ids = workspace_.allocate(Type::int32, {count});
    backend_.upload(ids, tokens);
    const Tensor h = workspace_.allocate(type_, {count, model_.width});
    backend_.embedding_forward(h, ids, table_, 0, learned_position_, count, position_);
    for (std::size_t i = 0; i < blocks_.size(); ++i) blocks_[i].decode(backend_, workspace_, h, states_[i], position_);
    const Tensor last = h.slice(count - 1, 1), normed = workspace_.allocate(type_, {1, model_.width});
    Norm::Statistics statistics;
    statistics.plan(workspace_, 1, true);
    final_norm_.forward(backend_, normed, statistics, last);
    backend_.product(logits_, normed, Transpose::no, head_, Transpose::yes, Accumulate::no);
    if (model_.logit_cap > 0) backend_.cap_logits(logits_, static_cast<float>(model_.logit_cap));
    position_ += count;
    workspace_.release(mark);
}

}  // namespace lockstep::model
