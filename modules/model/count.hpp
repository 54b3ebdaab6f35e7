// A model's machine-independent cost, by counting: its blocks and both ends are run forward and backward on an
// imaginary device among imaginary ranks, recording what they ask of backend and communicator. Independent of what
// layers do.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "config/model_description.hpp"
#include "kernels/operation_work.hpp"
#include "model/block.hpp"
#include "model/parameters.hpp"

namespace lockstep::kernels {
class CountingBackend;
}

namespace lockstep::model {

struct CountedShape {
    DeviceKind device = DeviceKind::cpu;
    Type type = Type::fp32;  // compute type
    PassShape pass;          // on this rank
    std::int64_t tensor = 1, context = 1;
    bool divides_rows = false;
    Recompute recompute = Recompute::none;
    bool operator<(const CountedShape& other) const;
};

// Operations and messages, in order. Of a tensor group the first rank; along a sequence the last, which receives most,
// but with neighbours on both sides.
struct Count {
    std::vector<kernels::Operation> forward;
    std::vector<kernels::Operation> loss;                 // last stage: logits, loss, their gradients, the final norm's
    std::vector<kernels::Operation> recompute, backward;  // in the backward pass: recomputation, and the rest
};

// One model's counts, made on demand and cached. Equal blocks share one.
class ModelCount {
  public:
    explicit ModelCount(const config::ModelDescription& model);
    // The shared one of a model.
    static std::shared_ptr<ModelCount> of(const config::ModelDescription& model);

    const config::ModelDescription& model() const { return model_; }
    // The lowest block with the cost of block `number`.
    std::int64_t alike(std::int64_t number) const { return alike_[static_cast<std::size_t>(number)]; }
    const Count& block(std::int64_t number, const CountedShape& shape);
    const Count& embedding(const CountedShape& shape);
    const Count& head(const CountedShape& shape);  // final norm included

  private:
    const Count& kept(std::int64_t number, const CountedShape& shape);
    Count count_block(std::int64_t number, const CountedShape& shape) const;
    Count count_end(const StageRange& range, const CountedShape& shape) const;
    config::ModelDescription model_;
    std::vector<std::int64_t> alike_;
    std::map<std::pair<std::int64_t, CountedShape>, Count> counts_;
};

// What a rank computes with: its parts of the model, its place in the tensor group, the replicas' pieces of the values.
struct CountedRank {
    std::vector<StageRange> chunks;
    Part part;
    std::vector<Piece> owned;
    bool several_micro_batches = false;  // in a step
};
// Runs a micro-batch of the rank's parts of the model, forward and backward, on the backend, among imaginary ranks: as
// the first of a step, and as a later one if there are any.
// Tensors have the sizes that they have on a rank and, except for the offset within the sequence, the same alignment.
void run_imaginary(kernels::CountingBackend& backend, const config::ModelDescription& model, const CountedRank& rank,
                   const CountedShape& shape);

// Model FLOP per token of sequences of `length` in a training step, without recomputation (kernels/operation_work.hpp
// has the convention): three times the forward pass if everything is trained. A layer with frozen weights counts the
// forward pass; mixing and input gradients if something in the layer or below is trained (the layer's input: in its
// norm or below); and weight gradients of what is trained.
double training_flop_per_token(const config::ModelDescription& model, std::int64_t length);
// FLOP that recomputation adds to the backward pass, in the blocks it reaches.
double recomputed_flop_per_token(const config::ModelDescription& model, std::int64_t length, Recompute recompute);
// Forward, of the head and of each block.
struct PartFlop {
    double head = 0;
    std::vector<double> blocks;
};
PartFlop part_flop_per_token(const config::ModelDescription& model, std::int64_t length);

}  // namespace lockstep::model
