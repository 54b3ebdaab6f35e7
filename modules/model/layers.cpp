#include "model/layers.hpp"

namespace lockstep::model {

using kernels::Transpose;

Linear::Linear(const ParameterSet& parameters, const std::string& name)
    : weight_(parameters.working(name + "/weight")), dweight_(parameters.gradient(name + "/weight")) {
    if (!parameters.has(name + "/bias")) return;
    bias_ = parameters.working(name + "/bias");
    dbias_ = parameters.gradient(name + "/bias");
}

void Linear::forward(Backend& backend, Tensor y, Tensor x, Tensor residual) const {
    backend.linear_forward(y, x, weight_, bias_, residual);
}

void Linear::backward(Backend& backend, Tensor dx, Tensor dy, Tensor x, Accumulate accumulate) const {
    backend.product(dx, dy, Transpose::no, weight_, Transpose::no, accumulate);
    backward_parameters(backend, dy, x);
}

void Linear::backward_parameters(Backend& backend, Tensor dy, Tensor x) const {
    backend.product(dweight_, dy, Transpose::yes, x, Transpose::no, Accumulate::yes);
    if (!bias_.empty()) backend.bias_backward(dbias_, dy);
}

void Norm::Statistics::plan(Arena& arena, std::int64_t rows, bool with_mean) {
    inverse = arena.allocate(Type::fp32, {rows});
    if (with_mean) mean = arena.allocate(Type::fp32, {rows});
}

Norm::Norm(const ParameterSet& parameters, const std::string& name, double epsilon)
    : centred_(parameters.has(name + "/bias")),
      epsilon_(static_cast<float>(epsilon)),
      weight_(parameters.value(name + "/weight")),
      dweight_(parameters.gradient(name + "/weight")) {
    if (!centred_) return;
    bias_ = parameters.value(name + "/bias");
    dbias_ = parameters.gradient(name + "/bias");
}

void Norm::forward(Backend& backend, Tensor y, const Statistics& statistics, Tensor x, Tensor residual) const {
    if (centred_)
        backend.layer_norm_forward(y, statistics.mean, statistics.inverse, x, residual, weight_, bias_, epsilon_);
    else
        backend.rms_norm_forward(y, statistics.inverse, x, residual, weight_, epsilon_);
}

void Norm::backward(Backend& backend, Tensor dx, Tensor dy, Tensor x, const Statistics& statistics) const {
    if (centred_)
        backend.layer_norm_backward(dx, dweight_, dbias_, dy, x, weight_, statistics.mean, statistics.inverse);
    else
        backend.rms_norm_backward(dx, dweight_, dy, x, weight_, statistics.inverse);
}

Convolution::Convolution(const ParameterSet& parameters, const std::string& name)
    : weight_(parameters.value(name + "/weight")),
      bias_(parameters.value(name + "/bias")),
      dweight_(parameters.gradient(name + "/weight")),
      dbias_(parameters.gradient(name + "/bias")) {}

void Convolution::forward(Backend& backend, Tensor y, Tensor x, Tensor history, std::int64_t length) const {
    backend.convolution_forward(y, x, weight_, bias_, history, length);
}

void Convolution::backward(Backend& backend, Tensor dx, Tensor dy, Tensor x, std::int64_t length) const {
    backend.convolution_backward(dx, dweight_, dbias_, dy, x, weight_, length);
}

void move_convolution_history(Backend& backend, Tensor history, Tensor inputs) {
    const Tensor rows = history.reshaped({history.size(1), history.size(2)});
    const std::int64_t kept = rows.size(0), count = inputs.rows(), width = rows.size(1);
    const Tensor all = inputs.reshaped({count, width});
    for (std::int64_t row = 0; row < kept; ++row) {
        const std::int64_t from =
            row + count;  // in (history, inputs); rows move towards the front, so in order is safe
        backend.copy(rows.slice(row, 1), from < kept ? rows.slice(from, 1) : all.slice(from - kept, 1));
    }
}

Mlp::Mlp(const ParameterSet& parameters, const std::string& prefix, const config::ModelDescription& model)
    : swiglu_(model.mlp == "swiglu"),
      width_(model.mlp_width),
      type_(parameters.compute_type()),
      up_(parameters, prefix + "mlp/up"),
      down_(parameters, prefix + "mlp/down") {
    if (swiglu_) gate_.emplace_back(parameters, prefix + "mlp/gate");
}

void Mlp::plan(Arena& arena, Saved& saved, std::int64_t rows) const {
    if (swiglu_) saved.gate = arena.allocate(type_, {rows, width_});
    saved.up = arena.allocate(type_, {rows, width_});
    saved.activated = arena.allocate(type_, {rows, width_});
}

void Mlp::forward(Backend& backend, Tensor y, Tensor residual, const Saved& saved, Tensor x) const {
    if (swiglu_) {
        up_.forward(backend, saved.up, x);
        gate_[0].forward(backend, saved.gate, x);
        backend.swiglu_forward(saved.activated, saved.gate, saved.up);
    } else {
        backend.linear_gelu_forward(saved.activated, saved.up, x, up_.weight(), up_.bias());
    }
    down_.forward(backend, y, saved.activated, residual);
}

void Mlp::backward(Backend& backend, Arena& workspace, Tensor dx, Tensor dh, const Saved& saved, Tensor x) const {
    const std::size_t mark = workspace.mark();
    const Shape shape = saved.up.shape();
    const Tensor dup = workspace.allocate(type_, shape);
    if (swiglu_) {
        const Tensor dactivated = workspace.allocate(type_, shape), dgate = workspace.allocate(type_, shape);
        down_.backward(backend, dactivated, dh, saved.activated, Accumulate::no);
        backend.swiglu_backward(dgate, dup, dactivated, saved.gate, saved.up);
        gate_[0].backward(backend, dx, dgate, x, Accumulate::no);
        up_.backward(backend, dx, dup, x, Accumulate::yes);
    } else {
        backend.linear_gelu_backward(dup, dh, down_.weight(), saved.up);
        down_.backward_parameters(backend, dh, saved.activated);
        up_.backward(backend, dx, dup, x, Accumulate::no);
    }
    workspace.release(mark);
}

}  // namespace lockstep::model
