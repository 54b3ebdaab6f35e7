// Run-time interface of what mixes a block's tokens. model/mixers/ has one implementation per mixer, found by name
// through model/mixers/registry.hpp.
#pragma once

#include <memory>
#include <string>

#include "config/model_description.hpp"
#include "kernels/backend.hpp"
#include "model/context_chain.hpp"
#include "model/parameters.hpp"
#include "model/recompute.hpp"
#include "model/tensor_group.hpp"

namespace lockstep::model {

using kernels::Backend;

// What a forward pass saves for its backward pass. A stage has one set per micro-batch in flight.
struct MixerSaved {
    virtual ~MixerSaved() = default;
};

// What a pass hands over to its neighbours along a divided sequence. Kept even if `MixerSaved` is recomputed.
struct MixerCarry {
    virtual ~MixerCarry() = default;
    virtual void finish() = 0;  // waits for pending sends
};

// State of one sequence while decoding.
struct MixerState {
    virtual ~MixerState() = default;
};

// One micro-batch on one rank: sequences, and tokens per sequence (this rank's part, which documents.first_position is
// the first of).
struct PassShape {
    std::int64_t batch = 0, length = 0;
    kernels::Documents documents = {};
    std::int64_t rows() const { return batch * length; }
};

// The ranks that share a layer with this one.
struct Neighbours {
    const TensorGroup& group;
    const ContextChain& chain;
};
const Neighbours& no_neighbours();

enum class Direction { forward, backward };

// A mixer owns no memory but constant tables: parameters are views into the ParameterSet, the rest comes from arenas.
// The plan functions allocate exactly what the passes use; they and the passes must run on an imaginary device, so
// tensors are accessed only through the backend (a mixer's own arithmetic: Backend::custom).
class Mixer {
  public:
    Mixer() = default;
    Mixer(const Mixer&) = delete;
    Mixer& operator=(const Mixer&) = delete;
    virtual ~Mixer() = default;

    // What is cheap to compute again need not be saved where recomputes_cheap().
    virtual std::unique_ptr<MixerSaved> plan(Arena& arena, const PassShape& shape, bool training,
                                             Recompute recompute) const = 0;
    // Null: no handover.
    virtual std::unique_ptr<MixerCarry> plan_carry(Arena& arena, const PassShape& shape) const;
    // Allocates and releases the temporaries of forward or backward.
    virtual void plan_workspace(Arena& arena, const PassShape& shape, Recompute recompute,
                                Direction direction) const = 0;
    // y [N, d] = this rank's part of mixer(x [N, d]). `recompute`: refill `saved`, without handover;
    // messages among all ranks of a sequence are sent again.
    virtual void forward(Backend& backend, Arena& workspace, Tensor y, MixerSaved& saved, MixerCarry* carry, Tensor x,
                         const PassShape& shape, bool recompute) = 0;
    // dx from dy: dx.part() is overwritten unless it is empty, and dx.complete() may be called once that is done and
    // nothing will touch it again. Gradients of parameters are added to, except as Linear says.
    virtual void backward(Backend& backend, Arena& workspace, InputGradient& dx, Tensor dy, MixerSaved& saved,
                          MixerCarry* carry, Tensor x, const PassShape& shape) = 0;

    // Decoding of one sequence of up to `context` tokens: x [n, d] are the n tokens from `position` on, `tokens` at
    // most.
    virtual std::unique_ptr<MixerState> plan_state(Arena& arena, std::int64_t context, std::int64_t tokens) const = 0;
    virtual void plan_decoding(Arena& arena, std::int64_t tokens) const = 0;  // temporaries of decode
    virtual void start_sequence(Backend& backend, MixerState& state) const = 0;
    virtual void decode(Backend& backend, Arena& workspace, Tensor y, MixerState& state, Tensor x,
                        std::int64_t position) = 0;

    virtual std::size_t table_bytes() const { return 0; }  // of constants, such as rotary positions

    // A factor on an inner model's learning rate during its warm-up.
    virtual void set_inner_rate_factor(double) {}
};

std::string block_prefix(std::int64_t number);  // "blocks/0/"
std::string mixer_prefix(std::int64_t number);  // "blocks/0/mixer/"

// Tags of handovers along a sequence. A Handover takes two; a mixer has the tags 0 to mixer_tags - 1 of its block.
constexpr int mixer_tags = 8, tag_of_block_convolution = mixer_tags, handover_tags = mixer_tags + 2;
inline int handover_tag(std::int64_t number, int what) {
    return static_cast<int>(number) * handover_tags + what;
}

}  // namespace lockstep::model
