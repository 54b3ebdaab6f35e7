#include "layout/run_layout.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "layout/batch_plan.hpp"
#include "layout/even_cut.hpp"
#include "layout/rank_share.hpp"
#include "model/count.hpp"
#include "model/mixers/registry.hpp"
#include "optim/registry.hpp"

namespace lockstep::layout {
namespace {

constexpr std::size_t names_at_most = 3;  // grids named in an error

// A machine that does so many operations while it moves a byte.
constexpr double operations_a_byte = 20;

std::string grid_text(const config::Grid& grid) {
    std::string text = fmt::format("data {} x tensor {} x pipeline {}", grid.data, grid.tensor, grid.pipeline);
    if (grid.context > 1) text += fmt::format(" x context {}", grid.context);
    return text;
}

// The possible grids of so many ranks, the nearest to `wanted` first: those that change the fewest axes, by the
// smallest factors.
std::vector<config::Grid> nearest_grids(const config::RunDescription& description, std::int64_t ranks,
                                        const config::Grid& wanted) {
    std::vector<std::pair<double, config::Grid>> found;
    for (const std::int64_t tensor : divisors(ranks))
        for (const std::int64_t context : divisors(ranks / tensor))
            for (const std::int64_t pipeline : divisors(ranks / tensor / context)) {
                const config::Grid grid{tensor, context, ranks / tensor / context / pipeline, pipeline};
                if (!why_impossible(description, grid).empty()) continue;
                const auto far = [](std::int64_t a, std::int64_t b) {
                    return std::abs(std::log2(static_cast<double>(a) / static_cast<double>(b)));
                };
                found.emplace_back(far(grid.tensor, wanted.tensor) + far(grid.pipeline, wanted.pipeline) +
                                       far(grid.context, wanted.context) + far(grid.data, wanted.data) / 4,
                                   grid);
            }
    std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<config::Grid> grids;
    for (const auto& [distance, grid] : found) grids.push_back(grid);
    return grids;
}

}  // namespace

std::vector<std::int64_t> divisors(std::int64_t number) {
    std::vector<std::int64_t> list;
    for (std::int64_t divisor = 1; divisor * divisor <= number; ++divisor)
        if (number % divisor == 0) {
            list.push_back(divisor);
            if (divisor * divisor != number) list.push_back(number / divisor);
        }
    std::sort(list.begin(), list.end());
    return list;
}

std::string why_impossible(const config::RunDescription& description, const config::Grid& grid) {
    const config::ModelDescription& model = description.model;
    const std::int64_t interleave = description.parallel.interleave;
    const model::MixerLayout of_mixer{grid.tensor, grid.context, description.parallel.sequence,
                                      description.batch.length};
    for (std::int64_t block = 0; block < model.period(); ++block)
        if (const std::string why =
                model::mixer_type(model.mixer(block)).why_impossible(model, model.layer(block), of_mixer);
            !why.empty())
            return model.period() == 1 ? why : fmt::format("{} (layer {})", why, block);
    if (description.data.separates_documents())
        if (const std::string why = model::why_documents_are_joined(model, description.batch.length, "batch.length");
            !why.empty())
            return why;
    if (model.mlp_width % grid.tensor != 0)
        return fmt::format("parallel.tensor = {} does not divide model.mlp_width = {}", grid.tensor, model.mlp_width);
    if (grid.tensor > model.vocabulary)
        return fmt::format("parallel.tensor = {} is more than model.vocabulary = {}", grid.tensor, model.vocabulary);
    if (grid.pipeline * interleave > model.layers)
        return fmt::format(
            "parallel.pipeline x parallel.interleave = {} is more than model.layers = {}, which would leave some "
            "stages without a block",
            grid.pipeline * interleave, model.layers);
    if (description.parallel.zero == 0 && grid.replicas() > 1 &&
        optim::optimizer_of(description.optimizer).needs_division())
        return fmt::format(
            "optimizer.kind = \"{}\" on {} replicas needs parallel.zero = 1, 2 or 3, so that each "
            "matrix is updated only once and the replicas stay identical",
            description.optimizer.kind, grid.replicas());
    if (description.parallel.offload != config::Offload::none && description.run.device != config::DeviceChoice::cpu &&
        !optim::optimizer_of(description.optimizer).can_offload())
        return fmt::format(
            "parallel.offload = \"moments\" does not support optimizer.kind = \"{}\": set it to \"none\"",
            description.optimizer.kind);
    if (interleave > 1 && grid.pipeline == 1)
        return fmt::format("parallel.interleave = {} needs parallel.pipeline > 1", interleave);
    try {
        micro_batch_size(description.batch, parts_of_batch(description, grid), interleave > 1 ? grid.pipeline : 1, 1);
    } catch (const Error& error) {
        return error.what();
    }
    if (const std::int64_t lanes = description.parallel.lanes; lanes % grid.data != 0)
        return fmt::format("parallel.lanes = {} cannot be divided evenly among {} replicas of the model", lanes,
                           grid.data);
    return "";
}

config::Grid choose_grid(const config::RunDescription& description, std::int64_t ranks) {
    const auto& parallel = description.parallel;
    for (const auto& [key, count] :
         {std::pair{"parallel.tensor", parallel.tensor}, std::pair{"parallel.pipeline", parallel.pipeline},
          std::pair{"parallel.context", parallel.context}, std::pair{"parallel.data", parallel.data}})
        if (count > ranks)
            throw usage_error("{} = {} is more than the {} rank{} that were started", key, count, ranks, plural(ranks));
    const std::int64_t fixed = parallel.tensor * parallel.context * parallel.pipeline;
    config::Grid wanted = parallel;
    if (wanted.data == 0) wanted.data = std::max<std::int64_t>(1, ranks / fixed);
    std::string problem;
    if (parallel.data > 0 && wanted.ranks() != ranks)
        problem = fmt::format("{} needs {} rank{}, but {} {} started", grid_text(wanted), wanted.ranks(),
                              plural(wanted.ranks()), ranks, ranks == 1 ? "was" : "were");
    else if (ranks % fixed != 0)
        problem = fmt::format(
            "parallel.tensor x parallel.pipeline x parallel.context = {} does not divide the {} rank{} that {} "
            "started",
            fixed, ranks, plural(ranks), ranks == 1 ? "was" : "were");
    else
        problem = why_impossible(description, wanted);
    if (problem.empty()) return wanted;
    if (description.parallel.lanes > 0)  // another grid would give other bits
        if (const std::int64_t most = most_ranks(description, ranks); most > 0)
            throw usage_error("{}; start {} rank{} instead", problem, most, plural(most));
    std::vector<std::string> names;
    for (const auto& grid : nearest_grids(description, ranks, wanted))
        if (names.size() < names_at_most) names.push_back(grid_text(grid));
    if (names.empty())
        throw usage_error("{}; with the other keys unchanged, no grid of {} rank{} is possible", problem, ranks,
                          plural(ranks));
    throw usage_error("{}; possible with {} rank{}: {}", problem, ranks, plural(ranks), fmt::join(names, ", or "));
}

std::int64_t most_ranks(const config::RunDescription& description, std::int64_t limit) {
    config::Grid grid = description.parallel;
    const std::int64_t model_ranks = grid.tensor * grid.context * grid.pipeline;
    for (const std::int64_t axis : {grid.tensor, grid.context, grid.pipeline, grid.data, model_ranks})
        if (axis > limit) return 0;
    const bool any_data = grid.data == 0;
    // More replicas than sequences of a step are never possible.
    if (any_data) grid.data = std::min(limit / model_ranks, description.batch.global);
    for (; grid.data > 0; --grid.data) {
        if (grid.ranks() <= limit && why_impossible(description, grid).empty()) return grid.ranks();
        if (!any_data) break;
    }
    return 0;
}

std::vector<model::StageRange> cut_model(const config::ModelDescription& model, std::int64_t length,
                                         std::int64_t pieces) {
    const auto width = static_cast<double>(model.width);
    const auto [head, blocks] = model::part_flop_per_token(model, length);
    // A row is read and written forward, its gradient read, the table's read and written: half of it forward's share.
    const double embedding = operations_a_byte * 5 * width * sizeof(float) / 3;
    std::vector<model::StageRange> ranges;
    std::int64_t first = 0;
    for (const std::int64_t count : cut_evenly(blocks, pieces, embedding, head)) {
        ranges.push_back({first, first + count, false, false});
        first += count;
    }
    ranges.front().embedding = true;
    ranges.back().head = true;
    return ranges;
}

}  // namespace lockstep::layout
