#include "model/mixer.hpp"

namespace lockstep::model {

const Neighbours& no_neighbours() {
    static const TensorGroup alone;
    static const ContextChain whole;
    static const Neighbours none{alone, whole};
    return none;
}

std::unique_ptr<MixerCarry> Mixer::plan_carry(Arena&, const PassShape&) const {
    return nullptr;
}

std::string block_prefix(std::int64_t number) {
    return "blocks/" + std::to_string(number) + "/";
}

std::string mixer_prefix(std::int64_t number) {
    return block_prefix(number) + "mixer/";
}

}  // namespace lockstep::model
