// One block of the residual stream: h += convolution(norm h) where asked for; h += mixer(norm h); h += mlp(norm h).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "model/layers.hpp"
#include "model/mixer.hpp"

namespace lockstep::model {

class Block {
  public:
    // What one forward pass keeps. `output` is the residual stream after the block, the input of the next.
    struct Saved {
        Tensor convolution_normed, after_convolution, mixer_normed, after_mixer, mlp_normed, output;  // [N, d]
        Norm::Statistics convolution_statistics, mixer_statistics, mlp_statistics;
        std::unique_ptr<MixerSaved> mixer;
        Mlp::Saved mlp;
    };
    struct State {
        std::unique_ptr<MixerState> mixer;
        Tensor history;  // [1, kernel-1, d] of the block's own convolution
    };

    Block(Backend& backend, const ParameterSet& parameters, std::int64_t number, const config::ModelDescription& model);
    Saved plan(Arena& arena, const PassShape& shape, bool training) const;
    void forward(Backend& backend, Arena& workspace, Saved& saved, Tensor h, const PassShape& shape);
    // dh [N, d]: in, the gradient of `output`; out, that of h.
    void backward(Backend& backend, Arena& workspace, Tensor dh, Saved& saved, Tensor h, const PassShape& shape);

    State plan_state(Arena& arena, std::int64_t context) const;
    void start_sequence(Backend& backend, State& state) const;
    void decode(Backend& backend, Arena& workspace, Tensor h, State& state, std::int64_t position);  // h in place

    Mixer& mixer() { return *mixer_; }

  private:
    std::int64_t width_;
    Type type_;
    std::optional<Norm> convolution_norm_;
    std::optional<Convolution> convolution_;
    Norm mixer_norm_, mlp_norm_;
    std::unique_ptr<Mixer> mixer_;
    Mlp mlp_;
};

}  // namespace lockstep::model
