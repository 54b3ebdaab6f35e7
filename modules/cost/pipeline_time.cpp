#include "cost/pipeline_time.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "layout/pipeline_schedule.hpp"

namespace lockstep::cost {
namespace {

constexpr double unknown = std::numeric_limits<double>::infinity();
// Rounds of micro-batches that are played through; behind them every further one takes as long as the last.
constexpr std::int64_t most_rounds = 4;

class Play {
  public:
    Play(const PipelineWork& work, std::int64_t micro_batches)
        : work_(work), stages_(work.forward.size()), chunks_(work.forward.front().size()), micro_(micro_batches) {
        for (std::size_t stage = 0; stage < stages_; ++stage)
            passes_.push_back(layout::pipeline_schedule(
                {static_cast<std::int64_t>(stages_), static_cast<std::int64_t>(chunks_), micro_batches},
                static_cast<std::int64_t>(stage)));
        ends_[0].assign(stages_ * chunks_ * static_cast<std::size_t>(micro_), unknown);
        ends_[1] = ends_[0];
    }

    double seconds() {
        std::vector<std::size_t> next(stages_, 0);
        std::vector<double> left(stages_), free_at(stages_, 0);
        for (std::size_t stage = 0; stage < stages_; ++stage) left[stage] = work_of(stage, 0);
        const double cores = work_.cores > 0 ? work_.cores : static_cast<double>(stages_);
        double now = 0;
        for (;;) {
            // Who can compute now, and when something changes next.
            double computing = 0, change = unknown;
            bool any = false;
            std::vector<char> runs(stages_, 0);
            for (std::size_t stage = 0; stage < stages_; ++stage) {
                if (next[stage] == passes_[stage].size()) continue;
                any = true;
                const double from = ready(stage, passes_[stage][next[stage]]);
                if (from <= now) {
                    runs[stage] = 1;
                    computing += 1;
                } else {
                    change = std::min(change, from);
                }
            }
            if (!any) return now;
            const double speed = computing > cores ? cores / computing : 1;
            for (std::size_t stage = 0; stage < stages_; ++stage)
                if (runs[stage]) change = std::min(change, now + left[stage] / speed);
            const double spent = (change - now) * speed;
            for (std::size_t stage = 0; stage < stages_; ++stage) {
                if (!runs[stage]) continue;
                left[stage] -= spent;
                // What rounding leaves of a pass must end with it: beside a long time it would never pass.
                if (left[stage] > 1e-9 * work_of(stage, next[stage])) continue;
                const layout::PipelineStep& pass = passes_[stage][next[stage]];
                end(stage, pass.chunk, pass.micro_batch, pass.forward) = change;
                if (++next[stage] < passes_[stage].size()) left[stage] = work_of(stage, next[stage]);
            }
            now = change;
        }
    }

  private:
    double work_of(std::size_t stage, std::size_t number) const { return work_of_pass(stage, passes_[stage][number]); }
    double work_of_pass(std::size_t stage, const layout::PipelineStep& pass) const {
        return (pass.forward ? work_.forward : work_.backward)[stage][static_cast<std::size_t>(pass.chunk)];
    }
    double& end(std::size_t stage, std::int64_t chunk, std::int64_t micro_batch, bool forward) {
        const auto place = (stage * chunks_ + static_cast<std::size_t>(chunk)) * static_cast<std::size_t>(micro_);
        return ends_[forward ? 0 : 1][place + static_cast<std::size_t>(micro_batch)];
    }
    // When what the pass needs has come.
    double ready(std::size_t stage, const layout::PipelineStep& pass) {
        const auto last_stage = stages_ - 1;
        const auto last_chunk = static_cast<std::int64_t>(chunks_) - 1;
        if (pass.forward) {
            if (stage == 0 && pass.chunk == 0) return 0;
            const std::size_t from = stage == 0 ? last_stage : stage - 1;
            return end(from, stage == 0 ? pass.chunk - 1 : pass.chunk, pass.micro_batch, true) + work_.message;
        }
        if (work_of_pass(stage, pass) == 0) return 0;  // no backward pass: nothing trained there or below
        if (stage == last_stage && pass.chunk == last_chunk) return 0;  // its own forward came before
        const std::size_t from = stage == last_stage ? 0 : stage + 1;
        return end(from, stage == last_stage ? pass.chunk + 1 : pass.chunk, pass.micro_batch, false) + work_.message;
    }

    const PipelineWork& work_;
    std::size_t stages_, chunks_;
    std::int64_t micro_;
    std::vector<std::vector<layout::PipelineStep>> passes_;
    std::vector<double> ends_[2];
};

}  // namespace

double pipeline_seconds(const PipelineWork& work) {
    const auto stages = static_cast<std::int64_t>(work.forward.size());
    double longest = 0, all = 0;
    for (std::size_t stage = 0; stage < work.forward.size(); ++stage) {
        const double own = std::accumulate(work.forward[stage].begin(), work.forward[stage].end(), 0.0) +
                           std::accumulate(work.backward[stage].begin(), work.backward[stage].end(), 0.0);
        longest = std::max(longest, own);
        all += own;
    }
    const double each = work.cores > 0 ? std::max(longest, all / work.cores) : longest;
    if (stages == 1) return each * static_cast<double>(work.micro_batches);
    const std::int64_t played = std::min(work.micro_batches, most_rounds * stages);
    return Play(work, played).seconds() + static_cast<double>(work.micro_batches - played) * each;
}

}  // namespace lockstep::cost
