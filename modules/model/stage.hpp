// One rank's contiguous part of a model: a range of blocks, with the embedding on the first stage and the final norm,
// head and loss on the last. A whole model on one rank is both.
//
// A micro-batch takes three calls: forward, loss (last stage), backward. `slot` selects one of the sets of saved
// activations, one per micro-batch in flight.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/block.hpp"
#include "model/parameter_supply.hpp"
#include "model/parameters.hpp"
#include "trace/tracer.hpp"

namespace lockstep::model {

// Logits are computed in batches of rows of about this size.
constexpr std::int64_t logits_bytes(DeviceKind device) {
    return std::int64_t{device == DeviceKind::cpu ? 128 : 512} << 20;
}

struct StageOptions {
    StageRange range;
    PassShape shape;       // one micro-batch on one rank
    bool training = true;  // backward follows
    int slots = 1;
    Recompute recompute = Recompute::none;
    const Neighbours* neighbours = nullptr;  // null: none; outlives the stage
    bool restarts_positions = false;         // set_documents() gives the rows of learned positions
    float z_loss = 0;                        // the factor of log² Z, which is added to each token's loss
    Tensor loss_scale;                       // fp64 [1] on the device: factor on losses before the backward pass
    ParameterSupply* supply = nullptr;       // null: all parameters are there; outlives the stage
    trace::Tracer* tracer = nullptr;         // times every block if the run's detail is "layer"
};

class Stage {
  public:
    Stage(Backend& backend, ParameterSet& parameters, const config::ModelDescription& model,
          const StageOptions& options);

    // Which documents the slot's next micro-batch has, until it is set again; at first, each sequence is one. The
    // tensors are read by its passes. places int32 [N]: each token's learned position; empty: as in its sequence.
    void set_documents(int slot, const kernels::Documents& documents, Tensor places);
    // int32 [N, 2], as kernels::Dropout, of the slot's next micro-batches; empty, as at first: adapters have no
    // dropout.
    void set_dropout_tokens(int slot, Tensor tokens) { slots_[static_cast<std::size_t>(slot)].dropout_tokens = tokens; }
    // ids int32 [N] on the first stage; elsewhere hidden_input(slot) must have been filled.
    void forward(int slot, Tensor ids);
    // Last stage, after forward: losses fp32 [N] of targets int32 [N] (negative: ignored), the same on all ranks of the
    // tensor group. When training, also runs the head's backward pass with each row's loss weighted by gradient_scale;
    // logits are computed a few rows at a time and never kept.
    void loss(int slot, Tensor targets, float gradient_scale, Tensor losses);
    void backward(int slot, Tensor ids);
    // Whether anything here or below is trained, so that there is a backward pass; and whether anything below is, so
    // that it computes the gradient of hidden_input.
    bool has_backward() const;
    bool has_backward_below() const { return !options_.range.embedding && trains_before_; }
    // backward in parts, from the last block to the first: blocks [first, last) of this stage, from 0, then the
    // embedding. A block's gradients are complete afterwards.
    void backward_blocks(int slot, std::size_t first, std::size_t last);
    void backward_embedding(int slot, Tensor ids);
    void finish();  // waits for pending sends to neighbours
    // All logits [N, V] of the last forward; single rank only, for tests and small models.
    void logits(int slot, Tensor logits);

    // [n, d], this rank's rows of the residual stream (all N, unless rows are divided).
    Tensor hidden_input(int slot) const { return slots_[static_cast<std::size_t>(slot)].input; }
    Tensor hidden_output(int slot) const;  // what the next stage receives
    // Before backward the gradient of hidden_output, afterwards that of hidden_input. None unless has_backward().
    Tensor hidden_gradient(int slot) const { return slots_[static_cast<std::size_t>(slot)].gradient; }

    void set_inner_rate_factor(double factor);
    void set_timed(bool timed) { timed_ = timed; }  // whether to time blocks
    std::size_t activation_bytes() const { return activations_.capacity(); }
    std::size_t workspace_bytes() const { return workspace_.capacity(); }
    std::size_t table_bytes() const;  // of rotary positions
    const PassShape& shape() const { return options_.shape; }

  private:
    struct Slot {
        PassShape shape;  // with the documents of this micro-batch
        Tensor places;    // int32 [N], learned positions; empty: as in the sequence
        Tensor dropout_tokens;
        Tensor input, gradient, normed;  // [n, d]; normed: input of the head
        Norm::Statistics final_statistics;
        std::vector<Block::Kept> kept;
        std::vector<Block::Saved> saved;  // of blocks with a backward pass; not with full recomputation
    };
    void need(ModelPart part, std::optional<ModelPart> next = {}) const;
    ModelPart part_of(std::size_t block) const;
    ModelPart head_part() const { return ModelPart::head(model_.layers); }
    bool has_block_backward() const;
    void plan(Arena& arena);
    void plan_workspace(Arena& arena) const;
    // Whether block `i` passes a gradient to what is below it.
    bool passes_below(std::size_t i) const { return trains_before_ || i > lowest_; }
    std::int64_t head_rows() const;  // rows of logits computed at a time
    Block::Saved& saved(Slot& slot, std::size_t block);
    config::BlockKind kind_of(std::size_t block) const;
    void embed(Slot& slot, Tensor ids);
    void cross_entropy(Tensor losses, Tensor logits, Tensor targets, float gradient_scale);

    Backend& backend_;
    ParameterSet& parameters_;
    config::ModelDescription model_;
    StageOptions options_;
    const TensorGroup& group_;
    const ContextChain& chain_;
    Type type_;
    Tensor table_, dtable_, position_, dposition_, head_, dhead_;
    const kernels::Accumulate& coming_pass_;  // of the parameters: for dhead_
    std::vector<Block> blocks_;
    std::optional<Norm> final_norm_;
    Arena activations_, workspace_;
    std::vector<Slot> slots_;
    bool trains_final_norm_ = false, trains_head_ = false;
    bool trains_before_ = false;  // anything below the blocks is trained
    std::size_t lowest_ = 0;      // the first block with a backward pass
    // Of the current block, by its kind: with full recomputation, and below the lowest.
    std::map<config::BlockKind, Block::Saved> recomputed_;
    bool timed_ = true;
    std::vector<trace::RegionId> forward_regions_, backward_regions_;
};

}  // namespace lockstep::model
