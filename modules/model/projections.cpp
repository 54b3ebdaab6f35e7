#include "model/projections.hpp"

#include <utility>

namespace lockstep::model {
namespace {

// One tensor of each layer as one, along the first axis; nothing if they are not neighbours, or only some layers have
// one. If none has, that is an empty tensor.
std::optional<Tensor> joined(const std::vector<Linear>& layers, Tensor (Linear::*tensor_of)() const) {
    const Tensor first = (layers.front().*tensor_of)();
    std::size_t bytes = 0;
    std::int64_t rows = 0;
    for (const Linear& layer : layers) {
        const Tensor tensor = (layer.*tensor_of)();
        if (tensor.empty() != first.empty()) return std::nullopt;
        if (tensor.empty()) continue;
        if (tensor.type() != first.type() || tensor.data() != static_cast<char*>(first.data()) + bytes)
            return std::nullopt;
        bytes += tensor.bytes();
        rows += tensor.size(0);
    }
    if (first.empty()) return Tensor();
    Shape shape = first.shape();
    shape.front() = rows;
    return Tensor(first.data(), first.type(), shape);
}

}  // namespace

Projections::Projections(std::vector<Linear> layers) : layers_(std::move(layers)), first_{0} {
    for (const Linear& layer : layers_) first_.push_back(first_.back() + layer.outputs());
    const std::optional<Tensor> weight = joined(layers_, &Linear::weight), bias = joined(layers_, &Linear::bias);
    if (!weight || !bias) return;
    const std::optional<Tensor> dweight = joined(layers_, &Linear::weight_gradient);
    const std::optional<Tensor> dbias = joined(layers_, &Linear::bias_gradient);
    gradients_joined_ = dweight && dbias;
    joined_.emplace(*weight, *bias, gradients_joined_ ? *dweight : Tensor(), gradients_joined_ ? *dbias : Tensor(),
                    layers_.front().coming_pass());
}

std::vector<Tensor> Projections::allocate(Arena& arena, Type type, std::int64_t rows) const {
    const Tensor all = arena.allocate_aligned_rows(type, rows, first_.back());
    std::vector<Tensor> parts;
    for (std::size_t layer = 0; layer < layers_.size(); ++layer)
        parts.push_back(all.columns(first_[layer], outputs(layer)));
    return parts;
}

// The matrix of which the outputs are all columns, if they are, and if the layers are one.
std::optional<Tensor> Projections::in_one_matrix(const std::vector<Tensor>& outputs) const {
    LOCKSTEP_ASSERT(outputs.size() == layers_.size());
    if (!joined_) return std::nullopt;
    const Tensor& first = outputs.front();
    const std::int64_t rows = first.rows(), stride = rows > 1 ? first.stride() : first_.back();
    if (stride < first_.back()) return std::nullopt;
    for (std::size_t layer = 0; layer < outputs.size(); ++layer) {
        const auto before = static_cast<std::size_t>(first_[layer]) * type_bytes(first.type());
        const Tensor& output = outputs[layer];
        LOCKSTEP_ASSERT(output.rows() == rows && output.size(-1) == this->outputs(layer));
        if (output.strided_data() != static_cast<char*>(first.strided_data()) + before ||
            (rows > 1 && output.stride() != stride))
            return std::nullopt;
    }
    return Tensor(first.strided_data(), first.type(), {rows, first_.back()}, stride);
}

void Projections::forward(Backend& backend, const std::vector<Tensor>& outputs, Tensor x) const {
    const auto all = in_one_matrix(outputs);
    if (all) joined_->forward(backend, *all, x);
    for (std::size_t layer = 0; layer < layers_.size(); ++layer)
        if (!all)
            layers_[layer].forward(backend, outputs[layer], x);
        else if (const auto& adapter = layers_[layer].adapter())
            adapter->forward(backend, outputs[layer], x);
}

void Projections::backward_input(Backend& backend, Tensor dx, const std::vector<Tensor>& doutputs,
                                 Accumulate accumulate) const {
    if (const auto all = in_one_matrix(doutputs)) {
        joined_->backward_input(backend, dx, *all, accumulate);
        for (std::size_t layer = 0; layer < layers_.size(); ++layer)
            if (const auto& adapter = layers_[layer].adapter(); adapter && !dx.empty())
                adapter->backward_input(backend, dx, doutputs[layer]);
        return;
    }
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
        layers_[layer].backward_input(backend, dx, doutputs[layer], accumulate);
        accumulate = Accumulate::yes;
    }
}

void Projections::backward_parameters(Backend& backend, const std::vector<Tensor>& doutputs, Tensor x) const {
    const auto all = gradients_joined_ ? in_one_matrix(doutputs) : std::nullopt;
    if (all) joined_->backward_parameters(backend, *all, x);
    for (std::size_t layer = 0; layer < layers_.size(); ++layer)
        if (!all)
            layers_[layer].backward_parameters(backend, doutputs[layer], x);
        else if (const auto& adapter = layers_[layer].adapter())
            adapter->backward_parameters(backend, doutputs[layer], x);
}

}  // namespace lockstep::model
