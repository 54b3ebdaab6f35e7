#include "model/low_rank_update.hpp"

#include "model/adapters.hpp"

namespace lockstep::model {

using kernels::Accumulate;
using kernels::Backend;
using kernels::Transpose;

std::optional<LowRankUpdate> LowRankUpdate::of(const ParameterSet& parameters, const std::string& layer) {
    const std::string a = layer + adapter_a, b = layer + adapter_b;
    if (!parameters.has(a)) return std::nullopt;
    LowRankUpdate update;
    update.a_ = parameters.working(a);
    update.b_ = parameters.working(b);
    update.da_ = parameters.gradient(a);
    update.db_ = parameters.gradient(b);
    parameters.overwrite_in_first_pass(a);
    parameters.overwrite_in_first_pass(b);
    update.scale_ = static_cast<float>(parameters.description(b).scale);
    update.scratch_ = &parameters.adapter_scratch();
    update.coming_pass_ = &parameters.coming_pass();
    return update;
}

Tensor LowRankUpdate::projected(Backend& backend, Tensor rows, Tensor matrix, Transpose transpose) const {
    const Shape shape = {rows.rows(), a_.size(0)};
    const std::int64_t count = element_count(shape);
    const Tensor exact = scratch_->exact.slice(0, count).reshaped(shape);
    backend.product(exact, rows, Transpose::no, matrix, transpose, Accumulate::no);
    if (scale_ != 1) backend.scale(exact, scale_);
    if (scratch_->rounded.empty()) return exact;
    const Tensor rounded = scratch_->rounded.slice(0, count).reshaped(shape);
    backend.copy(rounded, exact);
    return rounded;
}

void LowRankUpdate::forward(Backend& backend, Tensor y, Tensor x) const {
    backend.product(y, projected(backend, x, a_, Transpose::yes), Transpose::no, b_, Transpose::yes, Accumulate::yes);
}

void LowRankUpdate::backward_input(Backend& backend, Tensor dx, Tensor dy) const {
    backend.product(dx, projected(backend, dy, b_, Transpose::no), Transpose::no, a_, Transpose::no, Accumulate::yes);
}

void LowRankUpdate::backward_parameters(Backend& backend, Tensor dy, Tensor x) const {
    if (da_.empty()) return;
    backend.linear_backward_parameters(db_, {}, dy, projected(backend, x, a_, Transpose::yes), *coming_pass_);
    backend.linear_backward_parameters(da_, {}, projected(backend, dy, b_, Transpose::no), x, *coming_pass_);
}

Arena make_adapter_scratch(Device device, ParameterSet& parameters, const config::ModelDescription& model,
                           std::int64_t rows) {
    const std::int64_t count = rows * model.adapters.rank;
    const Type type = parameters.compute_type();
    AdapterScratch scratch;
    if (count == 0) return {};
    Arena memory = planned(device, "adapters' rows", [&](Arena& arena) {
        scratch.exact = arena.allocate(Type::fp32, {count});
        if (type != Type::fp32) scratch.rounded = arena.allocate(type, {count});
    });
    parameters.set_adapter_scratch(scratch);
    return memory;
}

}  // namespace lockstep::model
