// Linear layers of the same input, such as a mixer's queries, keys and values: one product where their weights lie side
// by side in memory, and their outputs are columns of one matrix.
#pragma once

#include <optional>
#include <vector>

#include "model/layers.hpp"

namespace lockstep::model {

class Projections {
  public:
    explicit Projections(std::vector<Linear> layers);
    std::int64_t outputs(std::size_t layer) const { return layers_[layer].outputs(); }
    // The layers' outputs as columns of one matrix with aligned rows.
    std::vector<Tensor> allocate(Arena& arena, Type type, std::int64_t rows) const;

    void forward(Backend& backend, const std::vector<Tensor>& outputs, Tensor x) const;
    // dx may be empty if nothing below needs it.
    void backward_input(Backend& backend, Tensor dx, const std::vector<Tensor>& doutputs, Accumulate accumulate) const;
    void backward_parameters(Backend& backend, const std::vector<Tensor>& doutputs, Tensor x) const;

  private:
    std::optional<Tensor> in_one_matrix(const std::vector<Tensor>& outputs) const;
    std::vector<Linear> layers_;
    std::vector<std::int64_t> first_;  // column of each layer, and the end
    std::optional<Linear> joined_;     // all layers as one
    bool gradients_joined_ = false;    // joined_ has the gradients: none or all of them are frozen
};

}  // namespace lockstep::model
