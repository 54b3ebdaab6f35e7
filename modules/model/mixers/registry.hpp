// Mixers by name. A mixer is one MixerType: what the rest of the program needs before there is a rank, device or
// tensor, and the factory of its run-time half (model/mixer.hpp). Programs may register more; nothing else compares
// mixer names.
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

// The part of a layout that concerns mixers.
struct MixerLayout {
    std::int64_t tensor = 1, context = 1;  // ranks
    bool divides_rows = false;             // parallel.sequence: tensor ranks divide the rows between layers
    std::int64_t length = 0;               // tokens per sequence, over all context ranks
};

// How the tokens of a sequence that is divided among ranks meet.
enum class SequenceDivision {
    none,      // they cannot
    chain,     // a state goes from rank to rank: each begins behind the one before
    exchange,  // messages among all ranks: all work at the same time
};

// Its name is a value of model.mixer, its keys those of [model.SECTION]. `layer` is one that it mixes: heads and widths
// are the layer's.
class MixerType : public config::Kind {
  public:
    using Kind::Kind;
    // Why a layout is impossible, without a full stop; "" if it is possible. By default, tensor ranks divide the heads,
    // and context ranks the sequences of mixers that can.
    virtual std::string why_impossible(const config::ModelDescription& model, const config::LayerShape& layer,
                                       const MixerLayout& layout) const;
    virtual SequenceDivision sequence_division() const { return SequenceDivision::none; }

    // Its parameters, named relative to "blocks/N/mixer/".
    virtual void describe(const config::ModelDescription& model, const config::LayerShape& layer,
                          ParameterLister& lister) const = 0;
    // Whether the initial values of projections into the residual stream scale down with depth (GPT-2).
    virtual bool scales_residual_projections() const { return true; }
    // Whether the block has a norm and a causal convolution before the mixer's norm.
    virtual bool convolves_before(const config::ModelDescription&) const { return false; }
    // The inner learning rate's initial value, relative to that after the outer warm-up.
    virtual double initial_inner_rate(const config::ModelDescription&) const { return 1; }
    // Makes the inner learning rate `factor` times what it is, without a warm-up: for a layout that knows none.
    virtual void settle_inner_rate(config::ModelDescription&, double /*factor*/) const {}

    // Floats of CPU kernel workspace, over all threads, for such a micro-batch on one of `tensor` ranks.
    virtual std::int64_t scratch_floats(const config::ModelDescription&, const config::LayerShape&,
                                        std::int64_t /*tensor*/, const PassShape&, Type /*compute*/,
                                        int /*threads*/) const {
        return 0;
    }

    // Bytes of scratch memory that its kernels take on a GPU, where it is large.
    virtual std::size_t gpu_scratch_bytes(const config::ModelDescription&, const config::LayerShape&,
                                          std::int64_t /*tensor*/, const PassShape&, Type /*compute*/) const {
        return 0;
    }

    // For memory models of other programs, described but not run:
    // whether it computes scores of token pairs, which a program may write to memory
    virtual bool scores_pairs() const { return false; }

    // Whether its passes respect PassShape::documents; without, a run that keeps documents apart is refused.
    virtual bool keeps_documents_apart() const { return false; }
    // Tokens that documents that are kept apart must begin at multiples of, so that sequences can be divided.
    virtual std::int64_t document_alignment(const config::ModelDescription&) const { return 1; }

    // The mixer of one block.
    virtual std::unique_ptr<Mixer> make(kernels::Backend& backend, const ParameterSet& parameters,
                                        const config::ModelDescription& model, const config::LayerShape& layer,
                                        const Neighbours& neighbours) const = 0;
};

// Why a sequence cannot be divided into stretches, one behind the other, of a mixer with convolutions; or "".
std::string why_stretches_are_impossible(const MixerLayout& layout);

// Before main, or at the start of a test; true, for static objects. A duplicate name: fault error.
inline bool register_mixer(std::unique_ptr<const MixerType> type) {
    return config::register_kind(config::Family::mixer, std::move(type));
}
const MixerType& mixer_type(const std::string& name);  // unknown: usage error that lists the known ones
// Each of a model's mixers once, in the order of its blocks; usage error like above.
std::vector<const MixerType*> mixer_types(const config::ModelDescription& model);
bool divides_sequences(const config::ModelDescription& model);           // every mixer can
bool exchanges_along_sequences(const config::ModelDescription& model);   // a mixer does
std::int64_t document_alignment(const config::ModelDescription& model);  // of all its mixers
// Why sequences of `length` tokens cannot hold documents that are kept apart, or "". `key` names the length.
std::string why_documents_are_joined(const config::ModelDescription& model, std::int64_t length,
                                     const std::string& key);

}  // namespace lockstep::model
