#include "model/layers.hpp"

namespace lockstep::model {

using kernels::Transpose;

Linear::Linear(const ParameterSet& parameters, const std::string& name)
    : weight_(parameters.working(name + "/weight")),
      dweight_(parameters.gradient(name + "/weight")),
      adapter_(LowRankUpdate::of(parameters, name)),
      coming_pass_(&parameters.coming_pass()) {
    parameters.overwrite_in_first_pass(name + "/weight");
    if (!parameters.has(name + "/bias")) return;
    parameters.overwrite_in_first_pass(name + "/bias");
    bias_ = parameters.working(name + "/bias");
    dbias_ = parameters.gradient(name + "/bias");
}

void Linear::forward(Backend& backend, Tensor y, Tensor x, Tensor residual) const {
    forward_part(backend, y, x, residual, true);
}

void Linear::forward_part(Backend& backend, Tensor y, Tensor x, Tensor residual, bool with_bias) const {
    backend.linear_forward(y, x, weight_, with_bias ? bias_ : Tensor(), residual);
    if (adapter_) adapter_->forward(backend, y, x);
}

void Linear::backward_input(Backend& backend, Tensor dx, Tensor dy, Accumulate accumulate) const {
    if (dx.empty()) return;
    backend.product(dx, dy, Transpose::no, weight_, Transpose::no, accumulate);
    if (adapter_) adapter_->backward_input(backend, dx, dy);
}

void Linear::backward_parameters(Backend& backend, Tensor dy, Tensor x) const {
    if (adapter_) adapter_->backward_parameters(backend, dy, x);
    if (!dweight_.empty()) return backend.linear_backward_parameters(dweight_, dbias_, dy, x, *coming_pass_);
    if (dbias_.empty()) return;
    if (*coming_pass_ == Accumulate::no) backend.fill(dbias_, 0);
    backend.bias_backward(dbias_, dy);
}

void Norm::Statistics::plan(Arena& arena, std::int64_t rows, bool with_mean) {
    inverse = arena.allocate(Type::fp32, {rows});
    if (with_mean) mean = arena.allocate(Type::fp32, {rows});
}

Norm::Norm(const ParameterSet& parameters, const std::string& name, double epsilon)
    : centred_(parameters.has(name + "/bias")),
      epsilon_(static_cast<float>(epsilon)),
      weight_(parameters.value(name + "/weight")),
      dweight_(parameters.gradient_or_spare(name + "/weight")) {
    if (!centred_) return;
    bias_ = parameters.value(name + "/bias");
    dbias_ = parameters.gradient_or_spare(name + "/bias");
}

void Norm::forward(Backend& backend, Tensor y, const Statistics& statistics, Tensor x, Tensor residual) const {
    if (centred_)
        backend.layer_norm_forward(y, statistics.mean, statistics.inverse, x, residual, weight_, bias_, epsilon_);
    else
        backend.rms_norm_forward(y, statistics.inverse, x, residual, weight_, epsilon_);
}

void Norm::backward(Backend& backend, Tensor dx, Tensor dy, Tensor x, const Statistics& statistics,
                    Accumulate accumulate) const {
    if (centred_)
        backend.layer_norm_backward(dx, dweight_, dbias_, dy, x, weight_, statistics.mean, statistics.inverse,
                                    accumulate);
    else
        backend.rms_norm_backward(dx, dweight_, dy, x, weight_, statistics.inverse, accumulate);
}

Convolution::Convolution(const ParameterSet& parameters, const std::string& name)
    : weight_(parameters.value(name + "/weight")),
      bias_(parameters.value(name + "/bias")),
      dweight_(parameters.gradient_or_spare(name + "/weight")),
      dbias_(parameters.gradient_or_spare(name + "/bias")) {}

void Convolution::forward(Backend& backend, Tensor y, Tensor x, Tensor history, std::int64_t length,
                          const kernels::Documents& documents) const {
    backend.convolution_forward(y, x, weight_, bias_, history, length, documents);
}

void Convolution::backward(Backend& backend, Tensor dx, Tensor dy, Tensor x, std::int64_t length,
                           const kernels::Documents& documents, Accumulate accumulate) const {
    backend.convolution_backward(dx, dweight_, dbias_, dy, x, weight_, length, documents, accumulate);
}

void Convolution::plan_handover(Arena& arena, Handover& history, Type type, std::int64_t batch,
                                const ContextChain& chain, int tag) const {
    history = Handover(arena, type, {batch, kernel() - 1, width()}, chain, tag);
}

void Convolution::hand_over(Backend& backend, Handover& history, Tensor x, std::int64_t length, bool recompute) const {
    if (recompute) return;
    const Tensor last = history.outgoing();
    const std::int64_t kept = kernel() - 1;
    if (!last.empty())
        for (std::int64_t sequence = 0; sequence < last.size(0); ++sequence)
            backend.copy(last.slice(sequence, 1).reshaped({kept, width()}),
                         x.slice((sequence + 1) * length - kept, kept));
    history.send();
    history.receive();
}

Convolution::Longer Convolution::allocate_longer(Arena& arena, Type type, std::int64_t batch,
                                                 std::int64_t length) const {
    const Shape shape = {batch * (kernel() - 1 + length), width()};
    return {arena.allocate(type, shape), arena.allocate(type, shape), arena.allocate(type, shape)};
}

void Convolution::plan_workspace(Arena& arena, Type type, std::int64_t batch, std::int64_t length,
                                 const ContextChain& chain) const {
    if (chain.first()) return;
    const std::size_t mark = arena.mark();
    allocate_longer(arena, type, batch, length);
    arena.release(mark);
}

// The kernel pads sequences with zeros in front, so each is extended by its history; the history's gradient comes out
// in front.
void Convolution::backward_part(Backend& backend, Arena& workspace, Tensor dx, Tensor dy, Tensor x, Handover& history,
                                Accumulate accumulate, std::int64_t length, const kernels::Documents& documents) const {
    const Tensor before = history.incoming();
    if (before.empty()) return backward(backend, dx, dy, x, length, documents, accumulate);
    const std::int64_t kept = kernel() - 1, batch = x.rows() / length;
    const std::size_t mark = workspace.mark();
    const auto [long_x, long_dy, long_dx] = allocate_longer(workspace, x.type(), batch, length);
    const Tensor dbefore = history.incoming_gradient();
    const auto begin = [&](std::int64_t sequence) { return sequence * (kept + length); };
    backend.fill(long_dy, 0);
    for (std::int64_t sequence = 0; sequence < batch; ++sequence) {
        backend.copy(long_x.slice(begin(sequence), kept), before.slice(sequence, 1));
        backend.copy(long_x.slice(begin(sequence) + kept, length), x.slice(sequence * length, length));
        backend.copy(long_dy.slice(begin(sequence) + kept, length), dy.slice(sequence * length, length));
    }
    kernels::Documents with_history = documents;
    with_history.first_position -= kept;
    backward(backend, long_dx, long_dy, long_x, kept + length, with_history, Accumulate::no);
    for (std::int64_t sequence = 0; sequence < batch; ++sequence) {
        const Tensor to = dbefore.slice(sequence, 1), from = long_dx.slice(begin(sequence), kept);
        const Tensor dinputs = dx.slice(sequence * length, length);
        const Tensor from_inputs = long_dx.slice(begin(sequence) + kept, length);
        if (accumulate == Accumulate::yes) {
            backend.add(to.reshaped(from.shape()), from);
            backend.add(dinputs, from_inputs);
        } else {
            backend.copy(to, from);
            backend.copy(dinputs, from_inputs);
        }
    }
    workspace.release(mark);
}

void Convolution::add_from_next_rank(Backend& backend, Tensor dx, const Handover& history, std::int64_t length) const {
    const Tensor from_behind = history.outgoing_gradient();
    if (from_behind.empty()) return;
    const std::int64_t kept = kernel() - 1;
    for (std::int64_t sequence = 0; sequence < from_behind.size(0); ++sequence)
        backend.add(dx.slice((sequence + 1) * length - kept, kept),
                    from_behind.slice(sequence, 1).reshaped({kept, width()}));
}

void move_convolution_history(Backend& backend, Tensor history, Tensor inputs) {
    const Tensor rows = history.reshaped({history.size(1), history.size(2)});
    const std::int64_t kept = rows.size(0), count = inputs.rows();
    for (std::int64_t row = 0; row < kept; ++row) {
        const std::int64_t from =
            row + count;  // in (history, inputs); rows only move forward, so copying in order is safe
        backend.copy(rows.slice(row, 1), from < kept ? rows.slice(from, 1) : inputs.slice(from - kept, 1));
    }
}

Mlp::Mlp(const ParameterSet& parameters, const std::string& prefix, const config::ModelDescription& model,
         const TensorGroup& group)
    : swiglu_(model.mlp == config::MlpKind::swiglu),
      adds_bias_(group.first()),
      width_(group.part().count(model.mlp_width)),
      type_(parameters.compute_type()),
      up_(parameters, prefix + "mlp/up"),
      down_(parameters, prefix + "mlp/down") {
    if (swiglu_) gate_.emplace_back(parameters, prefix + "mlp/gate");
}

void Mlp::allocate(Arena& arena, Saved& saved, std::int64_t rows, bool widened, bool activated) const {
    const Shape shape = {rows, width_};
    if (widened && swiglu_) saved.gate = arena.allocate(type_, shape);
    if (widened) saved.up = arena.allocate(type_, shape);
    if (activated) saved.activated = arena.allocate(type_, shape);
}

Mlp::Saved Mlp::plan(Arena& arena, std::int64_t rows, Recompute recompute) const {
    Saved saved;
    allocate(arena, saved, rows, recompute != Recompute::selective, !recomputes_cheap(recompute));
    return saved;
}

void Mlp::plan_rest(Arena& workspace, std::int64_t rows, Recompute recompute) const {
    Saved rest;
    allocate(workspace, rest, rows, recompute == Recompute::selective, recomputes_cheap(recompute));
}

Mlp::Saved Mlp::complete(Arena& workspace, const Saved& kept, std::int64_t rows) const {
    Saved all = kept;
    allocate(workspace, all, rows, kept.up.axes() == 0, kept.activated.axes() == 0);
    return all;
}

void Mlp::widen(Backend& backend, const Saved& saved, Tensor x) const {
    if (swiglu_) {
        up_.forward(backend, saved.up, x);
        gate_[0].forward(backend, saved.gate, x);
        backend.swiglu_forward(saved.activated, saved.gate, saved.up);
    } else if (up_.adapter()) {
        up_.forward(backend, saved.up, x);
        backend.gelu_forward(saved.activated, saved.up);
    } else {
        backend.linear_gelu_forward(saved.activated, saved.up, x, up_.weight(), up_.bias());
    }
}

void Mlp::recompute(Backend& backend, const Saved& saved, const Saved& kept, Tensor x) const {
    if (kept.up.axes() == 0) return widen(backend, saved, x);
    if (kept.activated.axes() > 0) return;
    if (swiglu_)
        backend.swiglu_forward(saved.activated, saved.gate, saved.up);
    else
        backend.gelu_forward(saved.activated, saved.up);
}

void Mlp::narrow(Backend& backend, Tensor y, Tensor residual, const Saved& saved) const {
    down_.forward_part(backend, y, saved.activated, residual, adds_bias_);
}

Mlp::Gradients Mlp::allocate_gradients(Arena& arena, std::int64_t rows) const {
    const auto make = [&] { return arena.allocate(type_, {rows, width_}); };
    Gradients made;
    made.dup = make();
    if (swiglu_ || down_.adapter()) made.dactivated = make();
    if (swiglu_) made.dgate = make();
    return made;
}

void Mlp::plan_workspace(Arena& arena, std::int64_t rows) const {
    const std::size_t mark = arena.mark();
    allocate_gradients(arena, rows);
    arena.release(mark);
}

// The products that make dx come first, so that its sum over ranks runs beside those of the parameters.
void Mlp::backward(Backend& backend, Arena& workspace, InputGradient& dx, Tensor dh, const Saved& saved,
                   Tensor x) const {
    const std::size_t mark = workspace.mark();
    const auto [dup, dactivated, dgate] = allocate_gradients(workspace, saved.up.rows());
    if (swiglu_) {
        down_.backward_input(backend, dactivated, dh, Accumulate::no);
        backend.swiglu_backward(dgate, dup, dactivated, saved.gate, saved.up);
        gate_[0].backward_input(backend, dx.part(), dgate, Accumulate::no);
        up_.backward_input(backend, dx.part(), dup, Accumulate::yes);
        dx.complete();
        gate_[0].backward_parameters(backend, dgate, x);
    } else {
        if (down_.adapter()) {
            down_.backward_input(backend, dactivated, dh, Accumulate::no);
            backend.gelu_backward(dup, dactivated, saved.up);
        } else {
            backend.linear_gelu_backward(dup, dh, down_.weight(), saved.up);
        }
        up_.backward_input(backend, dx.part(), dup, Accumulate::no);
        dx.complete();
    }
    up_.backward_parameters(backend, dup, x);
    down_.backward_parameters(backend, dh, saved.activated);
    workspace.release(mark);
}

}  // namespace lockstep::model
