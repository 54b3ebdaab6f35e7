// What a model costs apart from any machine, counted: its blocks and its two ends are run, forward and backward, on an
// imaginary device and among imaginary ranks, and what they ask of backend and communicator is written down. Nothing
// here knows what a layer does.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "config/model_description.hpp"
#include "kernels/operation_work.hpp"
#include "model/block.hpp"

namespace lockstep::model {

// One micro-batch on one rank.
struct CountedShape {
    DeviceKind device = DeviceKind::cpu;
    Type type = Type::fp32;  // that it computes in
    PassShape pass;          // of this rank
    std::int64_t tensor = 1, context = 1;
    bool divides_rows = false;
    Recompute recompute = Recompute::none;
    bool operator<(const CountedShape& other) const;
};

// Operations and messages in their order. Of the ranks of a tensor group the first, of those along a sequence one in
// the middle, which receives and sends.
struct Count {
    std::vector<kernels::Operation> forward;
    std::vector<kernels::Operation> loss;  // of the last stage: logits, loss, their gradients, the final norm's
    std::vector<kernels::Operation> recompute, backward;  // in the backward pass; what it makes again, and all else
};

// The counts of one model, made when they are asked for and kept. A model whose blocks are alike has one of them.
class ModelCount {
  public:
    explicit ModelCount(const config::ModelDescription& model);
    // That of a model, which all who ask share.
    static std::shared_ptr<ModelCount> of(const config::ModelDescription& model);

    const config::ModelDescription& model() const { return model_; }
    // The lowest block that costs what block `number` does.
    std::int64_t alike(std::int64_t number) const { return alike_[static_cast<std::size_t>(number)]; }
    const Count& block(std::int64_t number, const CountedShape& shape);
    const Count& embedding(const CountedShape& shape);
    const Count& head(const CountedShape& shape);  // with the final norm

  private:
    const Count& kept(std::int64_t number, const CountedShape& shape);
    Count count_block(std::int64_t number, const CountedShape& shape) const;
    Count count_end(const StageRange& range, const CountedShape& shape) const;
    config::ModelDescription model_;
    std::vector<std::int64_t> alike_;
    std::map<std::pair<std::int64_t, CountedShape>, Count> counts_;
};

// Model FLOP of one token in sequences of `length` (kernels/operation_work.hpp says how they are counted), of a
// training step, recomputation not counted: three times the forward pass where everything is trained. Of a layer with
// frozen weights: forward; mixing and the gradients of what weights are multiplied with where something in the layer or
// below is trained (of the layer's input: in its norm or below); and the gradients of weights that are trained.
double training_flop_per_token(const config::ModelDescription& model, std::int64_t length);
// What full recomputation does once more in the backward pass, in the blocks that this reaches.
double recomputed_flop_per_token(const config::ModelDescription& model, std::int64_t length);
// Forward, of the head and of an average block.
struct PartFlop {
    double head = 0, block = 0;
};
PartFlop part_flop_per_token(const config::ModelDescription& model, std::int64_t length);

}  // namespace lockstep::model
