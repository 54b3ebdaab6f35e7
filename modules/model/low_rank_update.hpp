// What an adapter adds to its linear layer (model/adapters.hpp). It keeps no activations: the backward pass projects
// the layer's input again. Where the parameters are given dropout tokens, both see that input after dropout.
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
    // In a pass with dropout: x after it, until the next one; else x itself.
    Tensor after_dropout(kernels::Backend& backend, Tensor x) const;
    kernels::Dropout dropout() const;
    bool drops() const { return !scratch_->tokens.empty(); }
    Tensor dropout_scratch(Tensor like) const;
    // scale · rows op(matrix), [N, rank], until the next one
    Tensor projected(kernels::Backend& backend, Tensor rows, Tensor matrix, kernels::Transpose transpose) const;

    Tensor a_, b_, da_, db_;
    float scale_ = 1;
    kernels::Dropout dropout_;  // without the tokens
    const AdapterScratch* scratch_ = nullptr;
    const kernels::Accumulate* coming_pass_ = nullptr;
};

// Gives the parameters memory for what adapters compute of so many rows at least; none if the model has no adapters.
void reserve_adapter_scratch(Device device, ParameterSet& parameters, const config::ModelDescription& model,
                             std::int64_t rows);

}  // namespace lockstep::model
