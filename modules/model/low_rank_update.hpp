// What an adapter adds to its linear layer (model/adapters.hpp). It keeps no activations: the backward pass projects
// the layer's input again. Where the parameters are given dropout tokens, both see what dropout leaves of that input.
#pragma once

#include <optional>
#include <string>

#include "config/model_description.hpp"
#include "kernels/backend.hpp"
#include "model/parameters.hpp"

namespace lockstep::model {

class LowRankUpdate {
  public:
    // Nothing if the layer has no adapter. The parameters outlive it.
    static std::optional<LowRankUpdate> of(const ParameterSet& parameters, const std::string& layer);

    // y [N, out] += scale · (x [N, in] aᵀ) bᵀ. With a layer that ranks divide, x or y are the rank's columns and y is
    // a partial sum wherever the layer's is.
    void forward(kernels::Backend& backend, Tensor y, Tensor x) const;
    void backward_input(kernels::Backend& backend, Tensor dx, Tensor dy) const;  // dx +=
    void backward_parameters(kernels::Backend& backend, Tensor dy, Tensor x) const;

  private:
    LowRankUpdate() = default;
    // Of a pass with dropout: what is left of x, until the next one; else x.
    Tensor left_of(kernels::Backend& backend, Tensor x) const;
    kernels::Dropout dropout() const;
    bool drops() const { return !scratch_->tokens.empty(); }
    Tensor room_for_left(Tensor like) const;
    // scale · rows op(matrix), [N, rank], until the next one
    Tensor projected(kernels::Backend& backend, Tensor rows, Tensor matrix, kernels::Transpose transpose) const;

    Tensor a_, b_, da_, db_;
    float scale_ = 1;
    kernels::Dropout dropout_;  // without the tokens
    const AdapterScratch* scratch_ = nullptr;
    const kernels::Accumulate* coming_pass_ = nullptr;
};

// Memory for what adapters project up to so many rows to, which layers of these parameters use from now on; empty if
// the model has no adapters. Lives as long as they compute.
Arena make_adapter_scratch(Device device, ParameterSet& parameters, const config::ModelDescription& model,
                           std::int64_t rows);

}  // namespace lockstep::model
