// A model's learned tensors: names (as in checkpoints), shapes, initial values, and how ranks that share a layer divide
// them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/model_description.hpp"
#include "device/tensor.hpp"

namespace lockstep::model {

// N(0, deviation²); uniform ±deviation; 0; 1; uniform ±1/√kernel; log r, r uniform up to 16; log(eˢ - 1), log s
// uniform, s from 0.001 to 0.1 (the last two: decays of Gated DeltaNet; its biases are Mamba-2's, Dao & Gu 2024,
// arXiv:2405.21060)
enum class Initial { normal, uniform, zero, one, convolution, decay_rate, decay_bias };
enum class Split { none, axis0, axis1 };  // the axis divided by tensor parallelism

// What a rank's gradient of an undivided tensor is if several ranks share the layer.
enum class GradientPart {
    whole,       // the same on each of them
    of_heads,    // partial, from the rank's heads or columns: to be summed
    of_the_rows  // partial, from the rows the rank normalizes: to be summed if rows are divided
};

struct ParameterDescription {
    std::string name;  // "blocks/0/mixer/query/weight"
    Shape shape;       // of the whole tensor
    Initial initial = Initial::normal;
    double deviation = 0.02;
    double scale = 1;    // of what an adapter's second factor adds
    double dropout = 0;  // of what an adapter's first factor reads: the probability
    Split split = Split::none;
    bool matrix = false;  // a weight of a matrix product or an embedding; decays with decay = "matrices"
    bool exact = false;   // used in fp32 whatever the compute type
    bool trained = true;  // false: frozen (model/frozen.hpp)
    GradientPart gradient_part = GradientPart::whole;
};

// A range of blocks [first_block, last_block), with or without either end of the model.
struct StageRange {
    std::int64_t first_block = 0, last_block = 0;
    bool embedding = true, head = true;
};
StageRange whole_model(const config::ModelDescription& model);
// Whether all blocks have the same parameters, and all of them are trained.
bool blocks_are_alike(const config::ModelDescription& model);

// In a fixed order: embedding, blocks, final norm, head. A tied head has no tensor of its own; a stage with the head
// but not the embedding has a copy of the embedding table under the same name.
std::vector<ParameterDescription> describe_parameters(const config::ModelDescription& model,
                                                      const std::vector<StageRange>& ranges);
std::vector<ParameterDescription> describe_parameters(const config::ModelDescription& model, const StageRange& range);
std::int64_t parameter_count(const config::ModelDescription& model);

// One rank's part of what `size` ranks divide: contiguous and as even as possible.
struct Part {
    std::int64_t rank = 0, size = 1;
    std::int64_t first(std::int64_t whole) const { return whole * rank / size; }
    std::int64_t count(std::int64_t whole) const { return whole * (rank + 1) / size - first(whole); }
};

// A rank's slice of a tensor: [offset, offset + extent) of one axis.
struct Slice {
    int axis = 0;
    std::int64_t offset = 0, extent = 0;
    Shape shape;  // of the slice
};
Slice slice_of(const ParameterDescription& parameter, const Part& part);

// The layout of a rank's slices in one flat tensor, the same on all ranks of a tensor group: trained parameters in the
// order of the descriptions, then frozen ones, so that gradients and optimizer state cover a prefix. Each begins at a
// multiple of `alignment` elements; padding is zero in values, gradients and optimizer state.
class ParameterLayout {
  public:
    static constexpr std::int64_t alignment = 128;
    ParameterLayout(std::vector<ParameterDescription> descriptions, Part part);
    const std::vector<ParameterDescription>& descriptions() const { return descriptions_; }  // in layout order
    std::size_t size() const { return descriptions_.size(); }
    const Part& part() const { return part_; }
    const Slice& slice(std::size_t index) const { return slices_[index]; }
    std::int64_t offset(std::size_t index) const { return offsets_[index]; }
    std::int64_t count(std::size_t index) const { return element_count(slices_[index].shape); }
    std::int64_t total() const { return total_; }  // elements, including padding
    std::int64_t trained_total() const {
        return trained_total_;
    }                                             // elements of the trained parameters, which come first
    std::size_t at(std::int64_t position) const;  // the last parameter that begins at or before it

  private:
    std::vector<ParameterDescription> descriptions_;
    Part part_;
    std::vector<Slice> slices_;
    std::vector<std::int64_t> offsets_;
    std::int64_t total_ = 0, trained_total_ = 0;
};

}  // namespace lockstep::model
