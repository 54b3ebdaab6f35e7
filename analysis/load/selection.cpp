#include "analysis/load/selection.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/format.hpp"
#include "base/plural.hpp"

namespace lockstep::analysis {
namespace {

constexpr std::int64_t usual_warm_up = 9;
constexpr std::int64_t fewest_per_warm_up = 5;  // steps of a launch for each step left out

}  // namespace

Selection::Selection(const trace::Run& run, const MeasureOptions& options, bool imported, Measurement& measurement) {
    std::map<std::size_t, std::int64_t> steps_of_ranks;
    for (const auto& part : run.parts) steps_of_ranks[part.file.ranks()] += static_cast<std::int64_t>(part.rows);
    std::int64_t most = -1, all = 0;
    for (const auto& [count, steps] : steps_of_ranks) {
        all += steps;
        if (steps >= most) most = steps, ranks_ = count;
    }
    if (most < all)
        measurement.remarks.push_back(
            fmt::format("The launches had different numbers of ranks: only the {} of {} steps on {} rank{} are used.",
                        most, all, ranks_, plural(ranks_)));
    std::map<std::int64_t, std::int64_t> launch_steps, position;
    for (const auto& part : run.parts) launch_steps[part.launch] += static_cast<std::int64_t>(part.rows);
    std::map<std::int64_t, std::int64_t> steps_of_tokens;
    for (const auto& part : run.parts) {
        const std::int64_t steps = launch_steps[part.launch];
        std::int64_t warm_up = options.warm_up;
        if (warm_up < 0) warm_up = std::min(usual_warm_up, steps / fewest_per_warm_up);
        if (imported) warm_up = 0;
        std::vector<bool> counts(part.rows, takes(part));
        for (std::size_t i = 0; i < part.rows; ++i) {
            if (position[part.launch]++ < warm_up && counts[i]) {
                counts[i] = false;
                ++measurement.warm_up;
            }
            if (counts[i]) ++steps_of_tokens[part.file.steps()[i].tokens];
        }
        counts_.push_back(std::move(counts));
    }
    if (steps_of_tokens.size() > 1) keep_one_size(run, steps_of_tokens, measurement);
    for (const auto& counts : counts_)
        used_ += static_cast<std::size_t>(std::count(counts.begin(), counts.end(), true));
}

void Selection::keep_one_size(const trace::Run& run, const std::map<std::int64_t, std::int64_t>& steps_of_tokens,
                              Measurement& measurement) {
    std::int64_t tokens = 0, most = 0, all = 0;
    for (const auto& [size, steps] : steps_of_tokens) {
        all += steps;
        if (steps >= most) most = steps, tokens = size;
    }
    measurement.remarks.push_back(
        fmt::format("The batch changed during the run: only the {} of {} steps of {} tokens are used.", most, all,
                    with_commas(tokens)));
    for (std::size_t p = 0; p < counts_.size(); ++p)
        for (std::size_t i = 0; i < counts_[p].size(); ++i)
            if (run.parts[p].file.steps()[i].tokens != tokens) counts_[p][i] = false;
}

}  // namespace lockstep::analysis
