// The registry of a model's learned tensors: names (as in checkpoints), shapes, initial values, how tensor parallelism
// would split them; and their memory on one rank.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "config/model_description.hpp"
#include "device/memory.hpp"
#include "device/tensor.hpp"
#include "kernels/backend.hpp"

namespace lockstep::model {

enum class Initial { normal, zero, one, convolution };  // N(0, deviation²); 0; 1; uniform ±1/√kernel
enum class Split { none, axis0, axis1 };                // which axis tensor parallelism cuts

struct ParameterDescription {
    std::string name;  // "blocks/0/mixer/query/weight"
    Shape shape;
    Initial initial = Initial::normal;
    double deviation = 0.02;
    Split split = Split::none;
    bool matrix = false;  // a weight of a matrix product or an embedding: decay = "matrices" decays it
};

// What part of the model a rank owns: blocks [first_block, last_block), with or without the two ends.
struct StageRange {
    std::int64_t first_block = 0, last_block = 0;
    bool embedding = true, head = true;
};
StageRange whole_model(const config::ModelDescription& model);

// In a fixed order: embedding, blocks, final norm, head. A tied head has no tensor of its own; a last stage that has
// not the embedding then holds a copy of it under the same name.
std::vector<ParameterDescription> describe_parameters(const config::ModelDescription& model, const StageRange& range);
std::int64_t parameter_count(const config::ModelDescription& model);

// Values and gradients, fp32, and where the compute type is another the working copies of the values in that type: each
// kind in one arena and in the same order, so that the optimizer and the reductions see one flat tensor. Tensors begin
// at multiples of `alignment` elements; the padding between them is zero in all.
class ParameterSet {
  public:
    static constexpr std::int64_t alignment = 128;
    ParameterSet(Device device, std::vector<ParameterDescription> descriptions, bool with_gradients,
                 Type compute = Type::fp32);
    const std::vector<ParameterDescription>& descriptions() const { return descriptions_; }
    bool has(const std::string& name) const { return index_.count(name) > 0; }
    Tensor value(const std::string& name) const;
    Tensor working(const std::string& name) const;   // of the compute type: for products and embeddings
    Tensor gradient(const std::string& name) const;  // empty without gradients
    Type compute_type() const { return compute_; }
    Tensor all_values() const { return all_values_; }
    Tensor all_working() const { return all_working_; }  // empty where the compute type is fp32
    Tensor all_gradients() const { return all_gradients_; }
    std::size_t bytes() const { return values_.capacity() + working_.capacity(); }
    // A tensor of `arena` laid out like the values: where parameter `index` lies in a flat tensor of all.
    std::int64_t offset(std::size_t index) const { return offsets_[index]; }
    Tensor part(Tensor all, std::size_t index) const;
    // Initial values: a function of (seed, name, element) alone.
    void initialize(kernels::Backend& backend, std::uint64_t seed);
    void refresh_working(kernels::Backend& backend);  // from the values

  private:
    std::size_t at(const std::string& name) const;
    std::vector<ParameterDescription> descriptions_;
    std::map<std::string, std::size_t> index_;
    std::vector<std::int64_t> offsets_;
    Type compute_;
    Arena values_, working_, gradients_;
    Tensor all_values_, all_working_, all_gradients_;
};

}  // namespace lockstep::model
