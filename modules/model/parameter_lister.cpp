#include "model/parameter_lister.hpp"

#include <cmath>

#include "model/adapters.hpp"
#include "model/frozen.hpp"

namespace lockstep::model {

ParameterLister::ParameterLister(const config::ModelDescription& model, std::vector<ParameterDescription>& list,
                                 std::string prefix, double residual_deviation)
    : model_(model), list_(list), prefix_(std::move(prefix)), residual_deviation_(residual_deviation) {}

ParameterDescription& ParameterLister::add(const std::string& name, const Shape& shape, Initial initial, Split split) {
    ParameterDescription parameter;
    parameter.name = prefix_ + name;
    parameter.trained = !is_frozen(model_, parameter.name);
    parameter.shape = shape;
    parameter.initial = initial;
    parameter.split = split;
    list_.push_back(std::move(parameter));
    return list_.back();
}

ParameterDescription& ParameterLister::matrix(const std::string& name, const Shape& shape, Split split,
                                              double deviation) {
    ParameterDescription& added = add(name, shape, Initial::normal, split);
    added.deviation = deviation;
    added.matrix = true;
    return added;
}

ParameterDescription& ParameterLister::exact(const std::string& name, const Shape& shape, Initial initial,
                                             Split split) {
    ParameterDescription& added = add(name, shape, initial, split);
    added.exact = true;
    return added;
}

void ParameterLister::linear(const std::string& name, std::int64_t out, std::int64_t in, Split split, bool bias,
                             double deviation) {
    matrix(name + "/weight", {out, in}, split, deviation);
    if (bias) add(name + "/bias", {out}, Initial::zero, split == Split::axis0 ? Split::axis0 : Split::none);
    adapter(name, out, in, split);
}

void ParameterLister::adapter(const std::string& layer, std::int64_t out, std::int64_t in, Split split) {
    if (!is_adapted(model_, prefix_ + layer)) return;
    const std::int64_t rank = model_.adapters.rank;
    ParameterDescription& a = matrix(layer + adapter_a, {rank, in}, split == Split::axis1 ? Split::axis1 : Split::none,
                                     1 / std::sqrt(static_cast<double>(in)));
    a.initial = Initial::uniform;
    a.dropout = model_.adapters.dropout;
    if (split == Split::axis0) a.gradient_part = GradientPart::of_heads;
    ParameterDescription& b =
        matrix(layer + adapter_b, {out, rank}, split == Split::axis0 ? Split::axis0 : Split::none);
    b.initial = Initial::zero;
    b.scale = adapter_scale(model_);
    if (split == Split::axis1) b.gradient_part = GradientPart::of_heads;
}

void ParameterLister::linear_layers(const std::vector<std::pair<std::string, std::int64_t>>& layers, std::int64_t in,
                                    Split split, bool bias) {
    for (const auto& [name, out] : layers) matrix(name + "/weight", {out, in}, split);
    for (const auto& [name, out] : layers)
        if (bias) add(name + "/bias", {out}, Initial::zero, split == Split::axis0 ? Split::axis0 : Split::none);
    for (const auto& [name, out] : layers) adapter(name, out, in, split);
}

void ParameterLister::norm(const std::string& name) {
    exact(name + "/weight", {model_.width}, Initial::one, Split::none).gradient_part = GradientPart::of_the_rows;
    if (model_.norm == config::NormKind::layer)
        exact(name + "/bias", {model_.width}, Initial::zero, Split::none).gradient_part = GradientPart::of_the_rows;
}

void ParameterLister::convolution(const std::string& name, Split split) {
    exact(name + "/weight", {model_.width, 1, convolution_kernel}, Initial::convolution, split);
    exact(name + "/bias", {model_.width}, Initial::convolution, split);
}

}  // namespace lockstep::model
