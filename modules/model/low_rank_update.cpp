#include "model/low_rank_update.hpp"

#include <algorithm>

#include "base/hash.hpp"
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
    const ParameterDescription& description = parameters.description(a);
    update.dropout_.layer = hash64(layer.data(), layer.size());
    update.dropout_.probability = static_cast<float>(description.dropout);
    if (description.split == Split::axis1)
        update.dropout_.first_column = slice_of(description, parameters.layout().part()).offset;
    update.scratch_ = &parameters.adapter_scratch();
    update.coming_pass_ = &parameters.coming_pass();
    return update;
}

kernels::Dropout LowRankUpdate::dropout() const {
    kernels::Dropout dropout = dropout_;
    dropout.tokens = scratch_->tokens;
    return dropout;
}

Tensor LowRankUpdate::dropout_scratch(Tensor like) const {
    return scratch_->dropped.slice(0, like.count()).reshaped(like.shape());
}

Tensor LowRankUpdate::after_dropout(Backend& backend, Tensor x) const {
    if (!drops()) return x;
    const Tensor dropped = dropout_scratch(x);
    backend.dropout(dropped, x, dropout(), Accumulate::no);
    return dropped;
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
    backend.product(y, projected(backend, after_dropout(backend, x), a_, Transpose::yes), Transpose::no, b_,
                    Transpose::yes, Accumulate::yes);
}

void LowRankUpdate::backward_input(Backend& backend, Tensor dx, Tensor dy) const {
    const Tensor projected_dy = projected(backend, dy, b_, Transpose::no);
    if (!drops()) {
        backend.product(dx, projected_dy, Transpose::no, a_, Transpose::no, Accumulate::yes);
        return;
    }
    const Tensor ddropped = dropout_scratch(dx);
    backend.product(ddropped, projected_dy, Transpose::no, a_, Transpose::no, Accumulate::no);
    backend.dropout(dx, ddropped, dropout(), Accumulate::yes);
}

void LowRankUpdate::backward_parameters(Backend& backend, Tensor dy, Tensor x) const {
    if (da_.empty()) return;
    const Tensor dropped = after_dropout(backend, x);
    backend.linear_backward_parameters(db_, {}, dy, projected(backend, dropped, a_, Transpose::yes), *coming_pass_);
    backend.linear_backward_parameters(da_, {}, projected(backend, dy, b_, Transpose::no), dropped, *coming_pass_);
}

void reserve_adapter_scratch(Device device, ParameterSet& parameters, const config::ModelDescription& model,
                             std::int64_t rows) {
    const AdapterScratch& now = parameters.adapter_scratch();
    std::int64_t widest = 0;  // input of those that dropout acts on
    for (const ParameterDescription& parameter : parameters.descriptions())
        if (parameter.dropout > 0 && !parameters.gradient(parameter.name).empty())
            widest = std::max(widest, parameters.working(parameter.name).size(1));
    const auto count_of = [](const Tensor& tensor) { return tensor.empty() ? 0 : tensor.count(); };
    const std::int64_t count = std::max(rows * model.adapters.rank, count_of(now.exact)),
                       dropped = std::max(rows * widest, count_of(now.dropped));
    if (count == count_of(now.exact) && dropped == count_of(now.dropped)) return;
    const Type type = parameters.compute_type();
    AdapterScratch scratch;
    scratch.tokens = now.tokens;
    Arena memory = planned(device, "adapter rows", [&](Arena& arena) {
        scratch.exact = arena.allocate(Type::fp32, {count});
        if (type != Type::fp32) scratch.rounded = arena.allocate(type, {count});
        if (dropped > 0) scratch.dropped = arena.allocate(type, {dropped});
    });
    parameters.set_adapter_scratch(scratch, std::move(memory));
}

}  // namespace lockstep::model
