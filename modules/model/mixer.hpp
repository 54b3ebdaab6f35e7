// What mixes tokens in a block: causal attention, or TTT.
#pragma once

#include <memory>
#include <string>

#include "config/model_description.hpp"
#include "kernels/backend.hpp"
#include "model/parameters.hpp"

namespace lockstep::model {

using kernels::Backend;

// What one forward pass keeps for its backward pass. A stage has as many sets as micro-batches can be under way at
// once.
struct MixerSaved {
    virtual ~MixerSaved() = default;
};

// What decoding one sequence keeps from token to token.
struct MixerState {
    virtual ~MixerState() = default;
};

struct PassShape {
    std::int64_t batch = 0, length = 0;
    std::int64_t rows() const { return batch * length; }
};

class Mixer {
  public:
    Mixer() = default;
    Mixer(const Mixer&) = delete;
    Mixer& operator=(const Mixer&) = delete;
    virtual ~Mixer() = default;

    virtual std::unique_ptr<MixerSaved> plan(Arena& arena, const PassShape& shape, bool training) const = 0;
    // y [N, d] = mixer(x [N, d])
    virtual void forward(Backend& backend, Arena& workspace, Tensor y, MixerSaved& saved, Tensor x,
                         const PassShape& shape) = 0;
    // dx (overwritten) from dy; the gradients of parameters are +=
    virtual void backward(Backend& backend, Arena& workspace, Tensor dx, Tensor dy, MixerSaved& saved, Tensor x,
                          const PassShape& shape) = 0;

    // Decoding: one sequence, x [n, d] are the n tokens from `position` on.
    virtual std::unique_ptr<MixerState> plan_state(Arena& arena, std::int64_t context) const = 0;
    virtual void start_sequence(Backend& backend, MixerState& state) const = 0;
    virtual void decode(Backend& backend, Arena& workspace, Tensor y, MixerState& state, Tensor x,
                        std::int64_t position) = 0;

    // A factor on the inner learning rate of TTT, for its warm-up.
    virtual void set_inner_rate_factor(double) {}
};

std::unique_ptr<Mixer> make_attention_mixer(Backend& backend, const ParameterSet& parameters, const std::string& prefix,
                                            const config::ModelDescription& model);
std::unique_ptr<Mixer> make_ttt_mixer(Backend& backend, const ParameterSet& parameters, const std::string& prefix,
                                      const config::ModelDescription& model);
std::unique_ptr<Mixer> make_mixer(Backend& backend, const ParameterSet& parameters, const std::string& prefix,
                                  const config::ModelDescription& model);

}  // namespace lockstep::model
