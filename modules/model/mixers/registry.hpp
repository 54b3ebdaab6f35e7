// The mixers by name. A mixer is one MixerType: what everything outside it needs to know before there is a rank, a
// device or a tensor, and how to make its run-time half (model/mixer.hpp). A program may register more of them, built
// into the product or not; nobody else asks for a mixer's name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/model_description.hpp"
#include "device/tensor.hpp"
#include "kernels/backend.hpp"
#include "model/parameter_lister.hpp"

namespace lockstep::model {

class Mixer;
class ParameterSet;
struct Neighbours;
struct PassShape;

// A layout, as far as it concerns a mixer.
struct MixerLayout {
    std::int64_t tensor = 1, context = 1;  // ranks
    bool divides_rows = false;             // parallel.sequence: tensor ranks divide the rows between layers
    std::int64_t length = 0;               // tokens of a whole sequence, all context ranks together
};

// Its name is the value of model.mixer, its keys those of [model.SECTION].
class MixerType : public config::Kind {
  public:
    using Kind::Kind;
    // Why a layout is impossible, as a sentence without a full stop; "" if it is possible. Here: tensor ranks divide
    // the heads, and only a mixer that hands over takes divided sequences.
    virtual std::string why_impossible(const config::ModelDescription& model, const MixerLayout& layout) const;
    virtual bool hands_over() const { return false; }  // its state, along a divided sequence

    // Its parameters, behind "blocks/N/mixer/".
    virtual void describe(const config::ModelDescription& model, ParameterLister& lister) const = 0;
    // Whether projections that write to the residual stream begin smaller the deeper the model (GPT-2).
    virtual bool scales_residual_projections() const { return true; }
    // Whether the block puts a norm and a causal convolution before the mixer's norm.
    virtual bool convolves_before(const config::ModelDescription&) const { return false; }
    // What the inner learning rate starts with, as a share of what it is after the outer warm-up.
    virtual double initial_inner_rate(const config::ModelDescription&) const { return 1; }

    // Floats that the CPU's kernels keep to work in, over all threads, for such a micro-batch on one of `tensor` ranks.
    virtual std::int64_t scratch_floats(const config::ModelDescription&, std::int64_t /*tensor*/, const PassShape&,
                                        Type /*compute*/, int /*threads*/) const {
        return 0;
    }

    // For memory models of programs that are described, not run:
    // whether it scores pairs of tokens, which a program may write to memory
    virtual bool scores_pairs() const { return false; }

    // Of block `number`.
    virtual std::unique_ptr<Mixer> make(kernels::Backend& backend, const ParameterSet& parameters, std::int64_t number,
                                        const config::ModelDescription& model, const Neighbours& neighbours) const = 0;
};

// Before main, or at the start of a test; true, for static objects. A name twice: fault error.
inline bool register_mixer(std::unique_ptr<const MixerType> type) {
    return config::register_kind(config::Family::mixer, std::move(type));
}
const MixerType& mixer_type(const config::ModelDescription& model);  // unknown: usage error that names the known ones
std::string names_that_hand_over();                                  // "ttt-linear and ttt-mlp"

}  // namespace lockstep::model
