#include "model/block.hpp"

#include "model/mixers/registry.hpp"

namespace lockstep::model {
namespace {

// Tensors that the plan does not keep come from the workspace.
Tensor kept_or_temporary(Arena& workspace, Tensor kept, Type type, const Shape& shape) {
    return kept.axes() > 0 ? kept : workspace.allocate(type, shape);
}

}  // namespace

void Block::Kept::finish() {
    if (mixer) mixer->finish();
    convolution.finish();
}

Block::Trained Block::trained_of(const ParameterSet& parameters, const std::string& prefix) {
    const auto trains = [&](const char* layer) { return parameters.trains(prefix + layer + "/"); };
    return {trains("pre_convolution_norm"),
            trains("pre_convolution"),
            trains("mixer_norm"),
            trains("mixer"),
            trains("mlp_norm"),
            trains("mlp")};
}

Block::Block(Backend& backend, const ParameterSet& parameters, std::int64_t number,
             const config::ModelDescription& model, const Neighbours& neighbours)
    : number_(number),
      width_(model.width),
      trained_(trained_of(parameters, block_prefix(number))),
      type_(parameters.compute_type()),
      group_(neighbours.group),
      chain_(neighbours.chain),
      mixer_norm_(parameters, block_prefix(number) + "mixer_norm", model.norm_epsilon),
      mlp_norm_(parameters, block_prefix(number) + "mlp_norm", model.norm_epsilon),
      mixer_(mixer_type(model.mixer(number)).make(backend, parameters, model, model.layer(number), neighbours)),
      mlp_(parameters, block_prefix(number), model, neighbours.group) {
    if (!mixer_type(model.mixer(number)).convolves_before(model)) return;
    convolution_norm_.emplace(parameters, block_prefix(number) + "pre_convolution_norm", model.norm_epsilon);
    convolution_.emplace(parameters, block_prefix(number) + "pre_convolution");
}

Block::Saved Block::plan(Arena& arena, const PassShape& shape, bool training, Recompute recompute) const {
    const bool all = !recomputes_cheap(recompute);
    const std::int64_t rows = group_.stream_rows(shape.rows());
    Saved saved;
    const auto make = [&] { return arena.allocate(type_, {rows, width_}); };
    if (convolution_) {
        if (all) saved.convolution_normed = make();
        saved.after_convolution = make();
        convolution_norm_->plan(arena, saved.convolution_statistics, rows);
    }
    if (all) saved.mixer_normed = make();
    mixer_norm_.plan(arena, saved.mixer_statistics, rows);
    saved.mixer = mixer_->plan(arena, shape, training, recompute);
    saved.after_mixer = make();
    if (all) saved.mlp_normed = make();
    mlp_norm_.plan(arena, saved.mlp_statistics, rows);
    saved.mlp = mlp_.plan(arena, shape.rows(), recompute);
    return saved;
}

Tensor Block::plan_output(Arena& arena, const PassShape& shape) const {
    return arena.allocate(type_, {group_.stream_rows(shape.rows()), width_});
}

Block::Kept Block::plan_kept(Arena& arena, const PassShape& shape, Tensor output) const {
    Kept kept;
    kept.output = output.axes() > 0 ? output : plan_output(arena, shape);
    kept.mixer = mixer_->plan_carry(arena, shape);
    if (convolution_ && !chain_.alone())
        convolution_->plan_handover(arena, kept.convolution, type_, shape.batch, chain_,
                                    handover_tag(number_, tag_of_block_convolution));
    return kept;
}

// Mirrors the allocations of pass() and backward().
void Block::plan_workspace(Arena& arena, const PassShape& shape, Recompute recompute, Direction direction,
                           bool to_below) const {
    const std::int64_t rows = shape.rows();
    const bool cheap = recomputes_cheap(recompute);
    const std::size_t mark = arena.mark();
    const auto of_stream = [&] { plan_output(arena, shape); };
    const auto gathered = [&] {
        if (group_.divides_rows()) arena.allocate(type_, {rows, width_});
    };
    if (direction == Direction::forward) {
        if (cheap) of_stream();  // each layer's normalized rows
        const std::size_t layer = arena.mark();
        gathered();  // a layer's input and its partial sums
        gathered();
        mixer_->plan_workspace(arena, shape, recompute, direction);
        arena.release(layer);
        gathered();
        mlp_.plan_rest(arena, rows, recompute);
        gathered();
        arena.release(mark);
        return;
    }
    const Passed pass = passed(to_below);
    of_stream();             // gradient of the normalized rows
    if (cheap) of_stream();  // normalized rows
    const std::size_t layer = arena.mark();
    const auto gathered_for = [&](bool input) {
        gathered();
        gathered();
        if (input) gathered();
    };
    if (pass.mlp) {
        gathered_for(pass.mlp_input);
        mlp_.plan_rest(arena, rows, recompute);
        mlp_.plan_workspace(arena, rows);
        arena.release(layer);
    }
    if (pass.mixer) {
        gathered_for(pass.mixer_input);
        mixer_->plan_workspace(arena, shape, recompute, direction);
        arena.release(layer);
    }
    if (pass.convolution && !chain_.alone())
        convolution_->plan_workspace(arena, type_, shape.batch, shape.length, chain_);
    arena.release(mark);
}

void Block::forward(Backend& backend, Arena& workspace, Saved& saved, Kept& kept, Tensor h, const PassShape& shape) {
    pass(backend, workspace, saved, kept, h, shape, false);
}

void Block::recompute(Backend& backend, Arena& workspace, Saved& saved, Kept& kept, Tensor h, const PassShape& shape) {
    pass(backend, workspace, saved, kept, h, shape, true);
}

void Block::pass(Backend& backend, Arena& workspace, Saved& saved, Kept& kept, Tensor h, const PassShape& shape,
                 bool recompute) {
    const std::size_t mark = workspace.mark();
    const std::int64_t rows = shape.rows();
    Tensor input = h;
    if (convolution_) {
        const Tensor normed = kept_or_temporary(workspace, saved.convolution_normed, type_, h.shape());
        convolution_norm_->forward(backend, normed, saved.convolution_statistics, h);
        if (!chain_.alone()) convolution_->hand_over(backend, kept.convolution, normed, shape.length, recompute);
        convolution_->forward(backend, saved.after_convolution, normed, kept.convolution.incoming(), shape.length,
                              shape.documents);
        backend.add(saved.after_convolution, h);
        input = saved.after_convolution;
        workspace.release(mark);
    }
    {
        const Tensor normed = kept_or_temporary(workspace, saved.mixer_normed, type_, h.shape());
        mixer_norm_.forward(backend, normed, saved.mixer_statistics, input);
        const Tensor x = group_.gathered(workspace, backend, normed, rows);
        const Tensor y = group_.partial_for(workspace, saved.after_mixer, rows);
        mixer_->forward(backend, workspace, y, *saved.mixer, kept.mixer.get(), x, shape, recompute);
        group_.add_up(backend, saved.after_mixer, y);
        workspace.release(mark);
    }
    const Tensor normed = kept_or_temporary(workspace, saved.mlp_normed, type_, h.shape());
    // The norm also adds the mixer's output to the residual stream.
    mlp_norm_.forward(backend, normed, saved.mlp_statistics, saved.after_mixer, input);
    const Tensor x = group_.gathered(workspace, backend, normed, rows);
    const Mlp::Saved mlp = mlp_.complete(workspace, saved.mlp, rows);
    mlp_.widen(backend, mlp, x);
    if (!recompute) {
        const bool adds_here = group_.first() && !group_.divides_rows();
        const Tensor y = group_.partial_for(workspace, kept.output, rows);
        mlp_.narrow(backend, y, adds_here ? saved.after_mixer : Tensor(), mlp);
        group_.add_up(backend, kept.output, y);
        if (group_.divides_rows()) backend.add(kept.output, saved.after_mixer);
    }
    workspace.release(mark);
}

Tensor Block::kept_or_recomputed(Backend& backend, Arena& workspace, const Norm& norm, Tensor normed,
                                 const Norm::Statistics& statistics, Tensor x) const {
    if (normed.axes() > 0) return normed;
    const Tensor made = workspace.allocate(type_, x.shape());
    norm.forward(backend, made, statistics, x);
    return made;
}

// The pass goes through a layer if it or something below it is trained, and up to its input if its norm or something
// below is.
Block::Passed Block::passed(bool to_below) const {
    Passed pass{};
    pass.convolution = convolution_ && (to_below || trained_.convolution_norm || trained_.convolution);
    pass.mixer_input = to_below || pass.convolution || trained_.mixer_norm;
    pass.mixer = pass.mixer_input || trained_.mixer;
    pass.mlp_input = pass.mixer || trained_.mlp_norm;
    pass.mlp = pass.mlp_input || trained_.mlp;
    return pass;
}

void Block::backward(Backend& backend, Arena& workspace, Tensor dh, Saved& saved, Kept& kept, Tensor h,
                     const PassShape& shape, bool to_below) {
    const auto [convolution, mixer_input, mixer, mlp_input, mlp] = passed(to_below);
    const std::size_t mark = workspace.mark();
    const std::int64_t rows = shape.rows();
    const Tensor dnormed = workspace.allocate(type_, dh.shape());
    const std::size_t part = workspace.mark();
    if (mlp) {
        const Tensor normed = kept_or_recomputed(backend, workspace, mlp_norm_, saved.mlp_normed, saved.mlp_statistics,
                                                 saved.after_mixer);
        const Tensor x = group_.gathered(workspace, backend, normed, rows);
        const Tensor dy = group_.gathered(workspace, backend, dh, rows);
        InputGradient dx = mlp_input ? InputGradient(group_, workspace, dnormed, rows) : InputGradient();
        const Mlp::Saved of_mlp = mlp_.complete(workspace, saved.mlp, rows);
        mlp_.recompute(backend, of_mlp, saved.mlp, x);
        mlp_.backward(backend, workspace, dx, dy, of_mlp, x);
        dx.finish(backend);
        workspace.release(part);
    }
    if (mlp_input) mlp_norm_.backward(backend, dh, dnormed, saved.after_mixer, saved.mlp_statistics, Accumulate::yes);

    const Tensor input = convolution_ ? saved.after_convolution : h;
    if (mixer) {
        const Tensor normed =
            kept_or_recomputed(backend, workspace, mixer_norm_, saved.mixer_normed, saved.mixer_statistics, input);
        const Tensor x = group_.gathered(workspace, backend, normed, rows);
        const Tensor dy = group_.gathered(workspace, backend, dh, rows);
        InputGradient dx = mixer_input ? InputGradient(group_, workspace, dnormed, rows) : InputGradient();
        mixer_->backward(backend, workspace, dx, dy, *saved.mixer, kept.mixer.get(), x, shape);
        dx.finish(backend);
        workspace.release(part);
    }
    if (mixer_input) mixer_norm_.backward(backend, dh, dnormed, input, saved.mixer_statistics, Accumulate::yes);

    if (convolution) {
        const Tensor normed = kept_or_recomputed(backend, workspace, *convolution_norm_, saved.convolution_normed,
                                                 saved.convolution_statistics, h);
        if (chain_.alone()) {
            convolution_->backward(backend, dnormed, dh, normed, shape.length, shape.documents, Accumulate::no);
        } else {
            kept.convolution.receive_gradient();
            convolution_->backward_part(backend, workspace, dnormed, dh, normed, kept.convolution, Accumulate::no,
                                        shape.length, shape.documents);
            kept.convolution.send_gradient();
            convolution_->add_from_next_rank(backend, dnormed, kept.convolution, shape.length);
        }
        convolution_norm_->backward(backend, dh, dnormed, h, saved.convolution_statistics, Accumulate::yes);
    }
    workspace.release(mark);
}

bool Block::trains() const {
    return trained_.convolution_norm || trained_.convolution || trained_.mixer_norm || trained_.mixer ||
           trained_.mlp_norm || trained_.mlp;
}

Block::State Block::plan_state(Arena& arena, std::int64_t context, std::int64_t tokens) const {
    State state;
    state.mixer = mixer_->plan_state(arena, context, tokens);
    if (convolution_) state.history = arena.allocate(type_, {1, convolution_->kernel() - 1, width_});
    return state;
}

// Mirrors the allocations of decode().
void Block::plan_decoding(Arena& arena, std::int64_t tokens) const {
    const std::size_t mark = arena.mark();
    arena.allocate(type_, {tokens, width_});
    arena.allocate(type_, {tokens, width_});
    Norm::Statistics statistics;
    statistics.plan(arena, tokens, true);
    mixer_->plan_decoding(arena, tokens);
    mlp_.plan(arena, tokens, Recompute::none);
    arena.release(mark);
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
        convolution_->forward(backend, mixed, normed, state.history, count, {});
        move_convolution_history(backend, state.history, normed);
        backend.add(h, mixed);
    }
    mixer_norm_.forward(backend, normed, statistics, h);
    mixer_->decode(backend, workspace, mixed, *state.mixer, normed, position);
    mlp_norm_.forward(backend, normed, statistics, h, mixed);
    const Mlp::Saved saved = mlp_.plan(workspace, count, Recompute::none);
    mlp_.widen(backend, saved, normed);
    mlp_.narrow(backend, h, h, saved);
    workspace.release(mark);
}

}  // namespace lockstep::model
