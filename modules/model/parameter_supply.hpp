// Where a stage's parameters come from if they are not always there: replicas that divide them gather each part of the
// model before it is needed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/model_description.hpp"

namespace lockstep::model {

// A part of the model by its place in the forward pass: the embedding, block 0, …, the head with its norm.
struct ModelPart {
    std::int64_t place = 0;
    static ModelPart embedding() { return {0}; }
    static ModelPart block(std::int64_t number) { return {1 + number}; }
    static ModelPart head(std::int64_t layers) { return {1 + layers}; }
};

// The parts that compute with a parameter: a tied table is in two.
std::vector<ModelPart> parts_with(const config::ModelDescription& model, const std::string& parameter);

class ParameterSupply {
  public:
    ParameterSupply() = default;
    ParameterSupply(const ParameterSupply&) = delete;
    ParameterSupply& operator=(const ParameterSupply&) = delete;
    virtual ~ParameterSupply() = default;

    // Backend work issued after this may read the trained parameters of `part`, up to the next call. `next` is what
    // will be needed then, if that is known. Collective over the replicas, which need the same parts in the same order.
    virtual void need(ModelPart part, std::optional<ModelPart> next) = 0;
};

}  // namespace lockstep::model
