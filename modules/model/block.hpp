// One block of the residual stream: h += convolution(norm h), if configured; h += mixer(norm h); h += mlp(norm h).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "model/layers.hpp"
#include "model/mixer.hpp"

namespace lockstep::model {

class Block {
  public:
    // What a forward pass saves, and full recomputation refills. Of N rows this rank keeps n of the residual stream:
    // all, or its part if rows are divided.
    struct Saved {
        Tensor convolution_normed, after_convolution, mixer_normed, after_mixer, mlp_normed;  // [n, d]
        Norm::Statistics convolution_statistics, mixer_statistics, mlp_statistics;
        std::unique_ptr<MixerSaved> mixer;
        Mlp::Saved mlp;
    };
    // Always kept: the block's output, which is the next block's input, and what was handed over.
    struct Kept {
        Tensor output;  // [n, d]
        std::unique_ptr<MixerCarry> mixer;
        Handover convolution;
        void finish();  // waits for pending sends to neighbours
    };
    struct State {
        std::unique_ptr<MixerState> mixer;
        Tensor history;  // [1, kernel-1, d] of the block's own convolution
    };

    Block(Backend& backend, const ParameterSet& parameters, std::int64_t number, const config::ModelDescription& model,
          const Neighbours& neighbours = no_neighbours());
    Saved plan(Arena& arena, const PassShape& shape, bool training, Recompute recompute) const;
    // `output`: where to put it; if empty, its own memory.
    Kept plan_kept(Arena& arena, const PassShape& shape, Tensor output = {}) const;
    Tensor plan_output(Arena& arena, const PassShape& shape) const;
    // Allocates and releases the temporaries of a pass; to_below: as in backward.
    void plan_workspace(Arena& arena, const PassShape& shape, Recompute recompute, Direction direction,
                        bool to_below = true) const;

    void forward(Backend& backend, Arena& workspace, Saved& saved, Kept& kept, Tensor h, const PassShape& shape);
    // Refills `saved`; no communication along the sequence.
    void recompute(Backend& backend, Arena& workspace, Saved& saved, Kept& kept, Tensor h, const PassShape& shape);
    // dh [n, d]: on entry the gradient of `output`, on return that of h. If nothing below needs that (`to_below` =
    // false), the pass ends at the lowest trained layer and dh is undefined.
    void backward(Backend& backend, Arena& workspace, Tensor dh, Saved& saved, Kept& kept, Tensor h,
                  const PassShape& shape, bool to_below = true);

    State plan_state(Arena& arena, std::int64_t context, std::int64_t tokens) const;
    void plan_decoding(Arena& arena, std::int64_t tokens) const;  // temporaries of decode
    void start_sequence(Backend& backend, State& state) const;
    void decode(Backend& backend, Arena& workspace, Tensor h, State& state, std::int64_t position);  // updates h

    Mixer& mixer() { return *mixer_; }
    const Mixer& mixer() const { return *mixer_; }
    bool trains() const;  // any of its parameters

  private:
    struct Trained {
        bool convolution_norm, convolution, mixer_norm, mixer, mlp_norm, mlp;
    };
    static Trained trained_of(const ParameterSet& parameters, const std::string& prefix);
    // Layers that the backward pass goes through, and those whose inputs it reaches.
    struct Passed {
        bool convolution, mixer_input, mixer, mlp_input, mlp;
    };
    Passed passed(bool to_below) const;
    void pass(Backend& backend, Arena& workspace, Saved& saved, Kept& kept, Tensor h, const PassShape& shape,
              bool recompute);
    Tensor kept_or_recomputed(Backend& backend, Arena& workspace, const Norm& norm, Tensor normed,
                              const Norm::Statistics& statistics, Tensor x) const;
    std::int64_t number_, width_;
    Trained trained_;
    Type type_;
    const TensorGroup& group_;
    const ContextChain& chain_;
    std::optional<Norm> convolution_norm_;
    std::optional<Convolution> convolution_;
    Norm mixer_norm_, mlp_norm_;
    std::unique_ptr<Mixer> mixer_;
    Mlp mlp_;
};

}  // namespace lockstep::model
