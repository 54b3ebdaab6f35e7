#include "model/mixer.hpp"

namespace lockstep::model {

const Neighbours& no_neighbours() {
    static const TensorGroup alone;
    static const ContextChain whole;
    static const Neighbours none{alone, whole};
    return none;
}

std::string block_prefix(std::int64_t number) {
    return "blocks/" + std::to_string(number) + "/";
}

std::unique_ptr<Mixer> make_mixer(Backend& backend, const ParameterSet& parameters, std::int64_t number,
                                  const config::ModelDescription& model, const Neighbours& neighbours) {
    return model.is_ttt() ? make_ttt_mixer(backend, parameters, number, model, neighbours)
                          : make_attention_mixer(backend, parameters, number, model, neighbours);
}

}  // namespace lockstep::model
