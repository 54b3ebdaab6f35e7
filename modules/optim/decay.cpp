#include "optim/decay.hpp"

#include "optim/parameter_ranges.hpp"

namespace lockstep::optim {

using kernels::DecayBits;

bool decays(const config::OptimizerSection& settings, const model::ParameterDescription& parameter) {
    return settings.decay == config::Decay::all || parameter.matrix;
}

DecayMap::DecayMap(kernels::Backend& backend, const model::ParameterSet& parameters,
                   const config::OptimizerSection& settings) {
    memory_ = planned(backend.device(), "which weights decay", [&](Arena& arena) {
        words_.clear();
        for (const model::Piece& piece : parameters.owned())
            words_.push_back(arena.allocate(Type::int32, {DecayBits::words_for(piece.count)}));
    });
    if (backend.device().imaginary) return;  // decay does not affect sizes
    std::vector<std::vector<std::uint32_t>> words;
    for (const Tensor& tensor : words_) words.emplace_back(static_cast<std::size_t>(tensor.count()));
    for (const ParameterRange& range : ranges_of(parameters.layout(), parameters.owned())) {
        if (!decays(settings, parameters.descriptions()[range.parameter])) continue;
        // Padding is zero in value, gradient and state: decaying it does no harm.
        const std::int64_t end = (range.begin + range.count + range.padding) / DecayBits::elements;
        for (std::int64_t bit = range.begin / DecayBits::elements; bit < end; ++bit)
            words[range.piece][static_cast<std::size_t>(bit / DecayBits::bits)] |= 1u << (bit % DecayBits::bits);
    }
    for (std::size_t piece = 0; piece < words_.size(); ++piece)
        if (words_[piece].count() > 0) backend.upload(words_[piece], words[piece].data());
}

}  // namespace lockstep::optim
