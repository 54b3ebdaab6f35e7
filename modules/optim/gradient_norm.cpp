#include "optim/gradient_norm.hpp"

#include "optim/parameter_ranges.hpp"

namespace lockstep::optim {

std::vector<model::Piece> counted_pieces(const model::ParameterSet& parameters, const model::Part& part,
                                         bool skip_table) {
    std::vector<model::Piece> counted;
    for (const ParameterRange& range : ranges_of(parameters.layout(), parameters.owned())) {
        const model::ParameterDescription& parameter = parameters.descriptions()[range.parameter];
        if (parameter.split == model::Split::none && part.rank != 0) continue;
        if (skip_table && parameter.name == "embedding/weight") continue;
        const std::int64_t first = parameters.owned()[range.piece].first + range.begin;
        const std::int64_t count = range.count + range.padding;
        if (!counted.empty() && counted.back().first + counted.back().count == first)
            counted.back().count += count;
        else
            counted.push_back({first, count});
    }
    return counted;
}

std::int64_t counted_padding(const model::ParameterLayout& layout, const NormPlan& plan) {
    std::int64_t padding = 0;
    for (const ParameterRange& range : ranges_of(layout, plan.counted)) padding += range.padding;
    return padding;
}

void sum_gradients(kernels::Backend& backend, Tensor gradients, const NormPlan& plan, Tensor totals) {
    backend.fill(totals, 0);
    for (const model::Piece& piece : plan.counted)
        backend.sum_of_squares(totals, gradients.slice(piece.first, piece.count), kernels::Accumulate::yes);
    if (plan.communicator) plan.communicator->all_reduce(totals, cluster::Reduce::sum);
    if (plan.replicas) plan.replicas->all_reduce(totals, cluster::Reduce::maximum);
}

}  // namespace lockstep::optim
