#include "optim/gradient_norm.hpp"

#include <utility>

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

GradientNorm::GradientNorm(kernels::Backend& backend, const model::ParameterSet& parameters, NormPlan plan)
    : backend_(backend), parameters_(parameters), plan_(std::move(plan)) {
    if (!plan_.in_blocks) return;
    const model::ParameterLayout& layout = parameters.layout();
    const auto blocks_of = [](std::int64_t count) { return (count + block - 1) / block; };
    std::vector<std::int64_t> first_block = {0};  // of each parameter, and their number
    for (std::size_t i = 0; i < layout.size() && layout.descriptions()[i].trained; ++i)
        first_block.push_back(first_block.back() + blocks_of(layout.count(i)));
    const std::int64_t ranks = plan_.communicator != nullptr ? plan_.communicator->size() : 1;
    memory_ = planned(backend.device(), "gradient norm", [&](Arena& arena) {
        blocks_ = arena.allocate(Type::fp64, {first_block.back(), 2});
        ranks_ = arena.allocate(Type::fp64, {ranks, 2});
    });
    for (const ParameterRange& range : ranges_of(layout, plan_.counted)) {
        if (range.count == 0) continue;
        LOCKSTEP_ASSERT(range.first % block == 0);
        counted_.push_back({blocks_.slice(first_block[range.parameter] + range.first / block, blocks_of(range.count)),
                            {plan_.counted[range.piece].first + range.begin, range.count}});
    }
}

std::int64_t GradientNorm::padding() const {
    if (plan_.in_blocks) return 0;
    std::int64_t padding = 0;
    for (const ParameterRange& range : ranges_of(parameters_.layout(), plan_.counted)) padding += range.padding;
    return padding;
}

void GradientNorm::sum(Tensor totals) const {
    if (plan_.in_blocks) return sum_blocks(totals);
    backend_.fill(totals, 0);
    for (const model::Piece& piece : plan_.counted)
        backend_.sum_of_squares(totals, parameters_.owned_gradients(piece), kernels::Accumulate::yes);
    if (plan_.communicator) plan_.communicator->all_reduce(totals, cluster::Reduce::sum);
    if (plan_.replicas) plan_.replicas->all_reduce(totals, cluster::Reduce::maximum);
}

// What other ranks have is zero here, so that a reduction, whatever its order, only gathers.
void GradientNorm::sum_blocks(Tensor totals) const {
    backend_.fill(blocks_, 0);
    for (const Blocks& counted : counted_)
        backend_.block_sums_of_squares(counted.sums, parameters_.owned_gradients(counted.piece), block);
    if (plan_.owners) plan_.owners->all_reduce(blocks_, cluster::Reduce::sum);
    if (plan_.communicator == nullptr || plan_.communicator->size() == 1) return backend_.sum_rows(totals, blocks_);
    backend_.fill(ranks_, 0);
    const Tensor own = ranks_.slice(plan_.communicator->rank(), 1);
    backend_.sum_rows(own, blocks_);
    plan_.communicator->all_reduce(ranks_, cluster::Reduce::sum);
    backend_.sum_rows(totals, ranks_);
}

}  // namespace lockstep::optim
