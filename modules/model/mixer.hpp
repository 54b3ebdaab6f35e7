// What mixes tokens in a block: causal attention, or TTT.
#pragma once

#include <memory>
#include <string>

#include "config/model_description.hpp"
#include "kernels/backend.hpp"
#include "model/context_chain.hpp"
#include "model/parameters.hpp"
#include "model/tensor_group.hpp"

namespace lockstep::model {

using kernels::Backend;

// What one forward pass keeps for its backward pass. A stage has as many sets as micro-batches can be under way at
// once.
struct MixerSaved {
    virtual ~MixerSaved() = default;
};

// What a pass hands to the neighbours along a divided sequence, and what it got from them; kept where the rest is made
// again.
struct MixerCarry {
    virtual ~MixerCarry() = default;
    virtual void finish() = 0;  // waits for what was sent
};

// What decoding one sequence keeps from token to token.
struct MixerState {
    virtual ~MixerState() = default;
};

// Of one micro-batch on one rank: sequences, and tokens of each (this rank's stretch of them).
struct PassShape {
    std::int64_t batch = 0, length = 0;
    std::int64_t rows() const { return batch * length; }
};

// Who shares the work of a layer with this rank.
struct Neighbours {
    const TensorGroup& group;
    const ContextChain& chain;
};
const Neighbours& no_neighbours();

class Mixer {
  public:
    Mixer() = default;
    Mixer(const Mixer&) = delete;
    Mixer& operator=(const Mixer&) = delete;
    virtual ~Mixer() = default;

    virtual std::unique_ptr<MixerSaved> plan(Arena& arena, const PassShape& shape, bool training) const = 0;
    virtual std::unique_ptr<MixerCarry> plan_carry(Arena& arena, const PassShape& shape) const = 0;  // null: none
    // y [N, d] = this rank's part of mixer(x [N, d]). `again`: as before, to have `saved` once more; nothing is handed
    // over.
    virtual void forward(Backend& backend, Arena& workspace, Tensor y, MixerSaved& saved, MixerCarry* carry, Tensor x,
                         const PassShape& shape, bool again) = 0;
    // this rank's part of dx (overwritten; empty: nobody below needs it) from dy; the gradients of parameters are +=
    virtual void backward(Backend& backend, Arena& workspace, Tensor dx, Tensor dy, MixerSaved& saved,
                          MixerCarry* carry, Tensor x, const PassShape& shape) = 0;

    // Decoding: one sequence, x [n, d] are the n tokens from `position` on.
    virtual std::unique_ptr<MixerState> plan_state(Arena& arena, std::int64_t context) const = 0;
    virtual void start_sequence(Backend& backend, MixerState& state) const = 0;
    virtual void decode(Backend& backend, Arena& workspace, Tensor y, MixerState& state, Tensor x,
                        std::int64_t position) = 0;

    virtual std::size_t table_bytes() const = 0;  // of rotary positions

    // A factor on the inner learning rate of TTT, for its warm-up.
    virtual void set_inner_rate_factor(double) {}
};

// Of block `number`.
std::unique_ptr<Mixer> make_attention_mixer(Backend& backend, const ParameterSet& parameters, std::int64_t number,
                                            const config::ModelDescription& model, const Neighbours& neighbours);
std::unique_ptr<Mixer> make_ttt_mixer(Backend& backend, const ParameterSet& parameters, std::int64_t number,
                                      const config::ModelDescription& model, const Neighbours& neighbours);
std::unique_ptr<Mixer> make_mixer(Backend& backend, const ParameterSet& parameters, std::int64_t number,
                                  const config::ModelDescription& model, const Neighbours& neighbours);
std::string block_prefix(std::int64_t number);  // "blocks/0/"

// Tags of what is handed along a sequence: each block has so many.
constexpr int handover_tags = 6, tag_of_state = 0, tag_of_mixer_convolution = 2, tag_of_block_convolution = 4;
inline int handover_tag(std::int64_t number, int what) {
    return static_cast<int>(number) * handover_tags + what;
}

}  // namespace lockstep::model
