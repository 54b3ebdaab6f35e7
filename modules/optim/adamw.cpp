#include "optim/adamw.hpp"

#include <algorithm>

namespace lockstep::optim {
namespace {

constexpr std::int64_t unit = 16, units_a_word = 32;  // how Backend::adamw is told which elements decay
constexpr std::int64_t decision_places = 8;

std::int64_t words_for(std::int64_t count) {
    return (count + unit * units_a_word - 1) / (unit * units_a_word);
}

std::int64_t end_of(const model::ParameterLayout& layout, std::size_t index) {  // with its padding
    return index + 1 < layout.size() ? layout.offset(index + 1) : layout.total();
}

std::int64_t elements_of(const std::vector<model::Piece>& pieces) {
    std::int64_t count = 0;
    for (const model::Piece& piece : pieces) count += piece.count;
    return count;
}

std::size_t moment_bytes(std::int64_t count) {
    return 2 * static_cast<std::size_t>(count) * sizeof(float) + Arena::device_alignment;
}

struct State {  // beside the moments
    std::vector<Tensor> decays;
    Tensor decision, totals;
};
State plan_state(Arena& arena, const std::vector<model::Piece>& owned) {
    State state;
    for (const model::Piece& piece : owned)
        state.decays.push_back(arena.allocate(Type::int32, {words_for(piece.count)}));
    state.decision = arena.allocate(Type::fp64, {decision_places});
    state.totals = arena.allocate(Type::fp64, {2});
    return state;
}

}  // namespace

std::vector<model::Piece> counted_pieces(const model::ParameterSet& parameters, const model::Part& part,
                                         bool skip_table) {
    const model::ParameterLayout& layout = parameters.layout();
    std::vector<model::Piece> counted;
    for (const model::Piece& owned : parameters.owned())
        for (std::size_t i = 0; i < layout.size(); ++i) {
            const auto& parameter = layout.descriptions()[i];
            if (parameter.split == model::Split::none && part.rank != 0) continue;
            if (skip_table && parameter.name == "embedding/weight") continue;
            const std::int64_t first = std::max(owned.first, layout.offset(i));
            const std::int64_t last = std::min(owned.first + owned.count, end_of(layout, i));
            if (first >= last) continue;
            if (!counted.empty() && counted.back().first + counted.back().count == first)
                counted.back().count += last - first;
            else
                counted.push_back({first, last - first});
        }
    return counted;
}

AdamW::AdamW(kernels::Backend& backend, model::ParameterSet& parameters, const config::OptimizerSection& settings,
             NormPlan norm, kernels::LossScaling scaling)
    : backend_(backend), parameters_(parameters), settings_(settings), norm_(std::move(norm)), scaling_(scaling) {
    const std::int64_t count = elements_of(parameters.owned());
    memory_ = Arena(backend.device(), moment_bytes(count), "optimizer moments");
    if (count > 0) all_moments_ = memory_.allocate(Type::fp32, {2 * count});
    Arena measure(backend.device());
    static_cast<void>(plan_state(measure, parameters.owned()));
    small_ = Arena(backend.device(), measure.peak(), "optimizer state");
    State state = plan_state(small_, parameters.owned());
    decays_ = std::move(state.decays);
    decision_ = state.decision;
    totals_ = state.totals;
    std::int64_t first = 0;
    for (std::size_t piece = 0; piece < parameters.owned().size(); ++piece) {
        const std::int64_t length = parameters.owned()[piece].count;
        first_moments_.push_back(length > 0 ? all_moments_.slice(first, length) : Tensor());
        second_moments_.push_back(length > 0 ? all_moments_.slice(count + first, length) : Tensor());
        first += length;
        if (length > 0) mark_decaying(piece);
    }
    set_progress({});
}

std::size_t AdamW::planned_bytes(Device device, const std::vector<model::Piece>& owned) {
    Arena state(device);
    static_cast<void>(plan_state(state, owned));
    return moment_bytes(elements_of(owned)) + state.peak();
}

void AdamW::mark_decaying(std::size_t piece) {
    const model::ParameterLayout& layout = parameters_.layout();
    const model::Piece& range = parameters_.owned()[piece];
    std::vector<std::uint32_t> words(static_cast<std::size_t>(decays_[piece].count()));
    for (std::size_t i = 0; i < layout.size(); ++i) {
        if (settings_.decay != config::Decay::all && !layout.descriptions()[i].matrix) continue;
        // Padding is zero in value, gradient and moments, so that it may decay too.
        const std::int64_t first = std::max(range.first, layout.offset(i));
        const std::int64_t last = std::min(range.first + range.count, end_of(layout, i));
        for (std::int64_t at = (first - range.first) / unit; first < last && at < (last - range.first) / unit; ++at)
            words[static_cast<std::size_t>(at / units_a_word)] |= 1u << (at % units_a_word);
    }
    backend_.upload(decays_[piece], words.data());
}

void AdamW::set_progress(const Progress& progress) {
    using kernels::Decision;
    std::vector<double> decision(decision_places);
    decision[Decision::updates] = static_cast<double>(progress.updates);
    decision[Decision::loss_scale] = progress.loss_scale;
    decision[Decision::good_steps] = static_cast<double>(progress.good_steps);
    decision[Decision::bad_steps] = static_cast<double>(progress.bad_steps);
    backend_.upload(decision_, decision.data());
}

std::int64_t AdamW::padding() const {
    const model::ParameterLayout& layout = parameters_.layout();
    std::int64_t padding = 0;
    for (const model::Piece& piece : norm_.counted)
        for (std::size_t i = 0; i < layout.size(); ++i) {
            const std::int64_t first = std::max(piece.first, layout.offset(i) + layout.count(i));
            const std::int64_t last = std::min(piece.first + piece.count, end_of(layout, i));
            padding += std::max<std::int64_t>(0, last - first);
        }
    return padding;
}

void AdamW::update(double learning_rate, Tensor loss) {
    const Tensor gradients = parameters_.all_gradients();
    backend_.fill(totals_, 0);
    for (const model::Piece& piece : norm_.counted)
        backend_.sum_of_squares(totals_, gradients.slice(piece.first, piece.count), kernels::Accumulate::yes);
    if (norm_.communicator) norm_.communicator->all_reduce(totals_, cluster::Reduce::sum);
    if (norm_.replicas) norm_.replicas->all_reduce(totals_, cluster::Reduce::maximum);
    backend_.decide_update(decision_, loss, totals_, settings_.clip, scaling_);
    for (std::size_t piece = 0; piece < parameters_.owned().size(); ++piece) {
        const model::Piece& range = parameters_.owned()[piece];
        if (range.count == 0) continue;
        const Tensor working = parameters_.all_working();
        backend_.adamw(parameters_.owned_value(piece),
                       working.empty() ? working : working.slice(range.first, range.count),
                       gradients.slice(range.first, range.count), first_moments_[piece], second_moments_[piece],
                       decays_[piece], decision_,
                       {static_cast<float>(learning_rate), static_cast<float>(settings_.beta1),
                        static_cast<float>(settings_.beta2), static_cast<float>(settings_.epsilon),
                        static_cast<float>(settings_.weight_decay)});
    }
    parameters_.refresh_exact(backend_);
}

}  // namespace lockstep::optim
