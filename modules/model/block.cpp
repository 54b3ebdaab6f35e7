#include "model/block.hpp"

namespace lockstep::model {
namespace {
std::string prefix_of(std::int64_t number) {
    return "blocks/" + std::to_string(number) + "/";
}
}  // namespace

Block::Block(Backend& backend, const ParameterSet& parameters, std::int64_t number,
             const config::ModelDescription& model)
    : width_(model.width),
      type_(parameters.compute_type()),
      mixer_norm_(parameters, prefix_of(number) + "mixer_norm", model.norm_epsilon),
      mlp_norm_(parameters, prefix_of(number) + "mlp_norm", model.norm_epsilon),
      mixer_(make_mixer(backend, parameters, prefix_of(number), model)),
      mlp_(parameters, prefix_of(number), model) {
    if (!model.is_ttt() || !model.ttt.pre_conv) return;
    convolution_norm_.emplace(parameters, prefix_of(number) + "pre_convolution_norm", model.norm_epsilon);
    convolution_.emplace(parameters, prefix_of(number) + "pre_convolution");
}

Block::Saved Block::plan(Arena& arena, const PassShape& shape, bool training) const {
    Saved saved;
    const Shape rows = {shape.rows(), width_};
    if (convolution_) {
        saved.convolution_normed = arena.allocate(type_, rows);
        saved.after_convolution = arena.allocate(type_, rows);
        convolution_norm_->plan(arena, saved.convolution_statistics, shape.rows());
    }
    saved.mixer_normed = arena.allocate(type_, rows);
    mixer_norm_.plan(arena, saved.mixer_statistics, shape.rows());
    saved.mixer = mixer_->plan(arena, shape, training);
    saved.after_mixer = arena.allocate(type_, rows);
    saved.mlp_normed = arena.allocate(type_, rows);
    mlp_norm_.plan(arena, saved.mlp_statistics, shape.rows());
    mlp_.plan(arena, saved.mlp, shape.rows());
    saved.output = arena.allocate(type_, rows);
    return saved;
}

void Block::forward(Backend& backend, Arena& workspace, Saved& saved, Tensor h, const PassShape& shape) {
    Tensor input = h;
    if (convolution_) {
        convolution_norm_->forward(backend, saved.convolution_normed, saved.convolution_statistics, h);
        convolution_->forward(backend, saved.after_convolution, saved.convolution_normed, {}, shape.length);
        backend.add(saved.after_convolution, h);
        input = saved.after_convolution;
    }
    mixer_norm_.forward(backend, saved.mixer_normed, saved.mixer_statistics, input);
    mixer_->forward(backend, workspace, saved.after_mixer, *saved.mixer, saved.mixer_normed, shape);
    // The norm adds the residual stream to what the mixer wrote.
    mlp_norm_.forward(backend, saved.mlp_normed, saved.mlp_statistics, saved.after_mixer, input);
    mlp_.forward(backend, saved.output, saved.after_mixer, saved.mlp, saved.mlp_normed);
}

void Block::backward(Backend& backend, Arena& workspace, Tensor dh, Saved& saved, Tensor h, const PassShape& shape) {
    const std::size_t mark = workspace.mark();
    const Tensor dnormed = workspace.allocate(type_, dh.shape());
    mlp_.backward(backend, workspace, dnormed, dh, saved.mlp, saved.mlp_normed);
    mlp_norm_.backward(backend, dh, dnormed, saved.after_mixer, saved.mlp_statistics);

    mixer_->backward(backend, workspace, dnormed, dh, *saved.mixer, saved.mixer_normed, shape);
    mixer_norm_.backward(backend, dh, dnormed, convolution_ ? saved.after_convolution : h, saved.mixer_statistics);

    if (convolution_) {
        convolution_->backward(backend, dnormed, dh, saved.convolution_normed, shape.length);
        convolution_norm_->backward(backend, dh, dnormed, h, saved.convolution_statistics);
    }
    workspace.release(mark);
}

Block::State Block::plan_state(Arena& arena, std::int64_t context) const {
    State state;
    state.mixer = mixer_->plan_state(arena, context);
    if (convolution_) state.history = arena.allocate(type_, {1, convolution_->kernel() - 1, width_});
    return state;
}

void Block::start_sequence(Backend& backend, State& state) const {
    mixer_->start_sequence(backend, *state.mixer);
    if (convolution_) backend.fill(state.history, 0);
}

void Block::decode(Backend& backend, Arena& workspace, Tensor h, State& state, std::int64_t position) {
    const std::size_t mark = workspace.mark();
    const std::int64_t count = h.rows();
    const Tensor normed = workspace.allocate(type_, h.shape()), mixed = workspace.allocate(type_, h.shape());
    Norm::Statistics statistics;
    statistics.plan(workspace, count, true);
    if (convolution_) {
        convolution_norm_->forward(backend, normed, statistics, h);
        convolution_->forward(backend, mixed, normed, state.history, count);
        move_convolution_history(backend, state.history, normed);
        backend.add(h, mixed);
    }
    mixer_norm_.forward(backend, normed, statistics, h);
    mixer_->decode(backend, workspace, mixed, *state.mixer, normed, position);
    mlp_norm_.forward(backend, normed, statistics, h, mixed);
    Mlp::Saved saved;
    mlp_.plan(workspace, saved, count);
    mlp_.forward(backend, h, h, saved, normed);
    workspace.release(mark);
}

}  // namespace lockstep::model
