// Lists the learned tensors of a model's layers, in order; also used by mixers.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "config/model_description.hpp"
#include "model/parameter_description.hpp"

namespace lockstep::model {

class ParameterLister {
  public:
    static constexpr double default_deviation = 0.02;
    static constexpr std::int64_t convolution_kernel = 4;

    // prefix: prepended to all names given below. residual_deviation: of projections into the residual stream.
    ParameterLister(const config::ModelDescription& model, std::vector<ParameterDescription>& list,
                    std::string prefix = "", double residual_deviation = default_deviation);

    // A vector or tensor in the compute type. References are valid until the next parameter is added.
    ParameterDescription& add(const std::string& name, const Shape& shape, Initial initial, Split split);
    // A weight of a matrix product or an embedding: normally distributed, decaying.
    ParameterDescription& matrix(const std::string& name, const Shape& shape, Split split,
                                 double deviation = default_deviation);
    // Used in fp32 whatever the compute type.
    ParameterDescription& exact(const std::string& name, const Shape& shape, Initial initial, Split split);

    // Layers (model/layers.hpp). A Linear's weight is [out, in]; its bias is divided with its outputs.
    void linear(const std::string& name, std::int64_t out, std::int64_t in, Split split, bool bias,
                double deviation = default_deviation);
    // Layers of one input (model/projections.hpp), by name and outputs: weights first, so that they are one matrix.
    void linear_layers(const std::vector<std::pair<std::string, std::int64_t>>& layers, std::int64_t in, Split split,
                       bool bias);
    void norm(const std::string& name);                      // the model's kind, over the residual stream
    void convolution(const std::string& name, Split split);  // depthwise, over [width] channels

    double residual_deviation() const { return residual_deviation_; }

  private:
    // The adapter of a Linear, if it is to have one. A divided layer divides one factor; of the other, each rank has a
    // partial gradient.
    void adapter(const std::string& layer, std::int64_t out, std::int64_t in, Split split);

    const config::ModelDescription& model_;
    std::vector<ParameterDescription>& list_;
    std::string prefix_;
    double residual_deviation_;
};

}  // namespace lockstep::model
