#include "analysis/figures.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.hpp"

namespace lockstep::analysis {
namespace {

constexpr auto forward = static_cast<std::size_t>(Phase::forward);
constexpr double nothing = std::numeric_limits<double>::quiet_NaN();

double median_of(std::vector<double>& values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    if (values.size() % 2 == 1) return *middle;
    return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

// The rows of one file, block by block.
struct Rows {
    std::vector<double> times, losses, overhead;
    std::vector<std::uint32_t> calls;
    std::vector<std::uint64_t> memory;
    void read(const trace::TraceFile& file, std::size_t first, std::size_t count) {
        file.read_times(first, count, times);
        file.read_calls(first, count, calls);
        file.read_rank_loss(first, count, losses);
        file.read_memory(first, count, memory);
        file.read_overhead(first, count, overhead);
    }
};

class Accumulator {
  public:
    Accumulator(const trace::Run& run, const FigureOptions& options) : options_(options) {
        std::size_t most = 0;
        for (const auto& part : run.parts) most = std::max(most, part.file.ranks());
        figures_.ranks.resize(most);
        latencies_.resize(most);
        epoch_ranks_.resize(most);
        for (auto& rank : figures_.ranks) rank.loss_first = rank.loss_last = nothing;
        for (const auto& part : run.parts)
            for (std::size_t r = 0; r < part.file.ranks(); ++r) figures_.ranks[r].place = part.file.header().ranks[r];
        for (const auto& part : run.parts) add_part(part);
        close_epoch();
        finish(run);
    }
    RunFigures take() { return std::move(figures_); }

  private:
    void add_part(const trace::RunPart& part) {
        const trace::TraceFile& file = part.file;
        const PhaseMap map(file.header().regions);
        const std::size_t ranks = file.ranks(), regions = file.regions();
        constexpr std::size_t block_bytes = std::size_t{16} << 20;
        const std::size_t block = std::max<std::size_t>(block_bytes / (ranks * (regions * 12 + 40)), 1);
        Rows rows;
        std::vector<RankSpan> of_step(ranks);
        for (std::size_t first = 0; first < part.rows; first += block) {
            const std::size_t count = std::min(block, part.rows - first);
            rows.read(file, first, count);
            for (std::size_t i = 0; i < count; ++i) {
                for (std::size_t r = 0; r < ranks; ++r) {
                    const std::size_t cell = i * ranks + r;
                    of_step[r] = {};
                    // A trace without regions has no cells to point at.
                    if (regions > 0) {
                        of_step[r].phases = map.sums(&rows.times[cell * regions], &rows.calls[cell * regions]);
                        of_step[r].step_seconds = map.step_seconds(&rows.times[cell * regions]);
                    }
                    of_step[r].loss.add(rows.losses[cell]);
                    add_to_rank(r, of_step[r], rows.losses[cell], &rows.memory[cell * 3], rows.overhead[cell]);
                }
                add_step(file.steps()[first + i], of_step);
            }
        }
    }

    void add_to_rank(std::size_t r, const RankSpan& span, double loss, const std::uint64_t* memory, double overhead) {
        RankFigures& rank = figures_.ranks[r];
        rank.phases.add(span.phases);
        rank.step_seconds += span.step_seconds;
        if (std::isfinite(loss)) {
            if (rank.loss.count == 0) rank.loss_first = loss;
            rank.loss_last = loss;
        }
        rank.loss.add(loss);
        rank.allocated = std::max(rank.allocated, memory[0]);
        rank.reserved = std::max(rank.reserved, memory[1]);
        rank.peak = std::max(rank.peak, memory[2]);
        rank.overhead += overhead;
        if (span.phases.calls[forward] > 0)
            latencies_[r].push_back(span.phases.seconds[forward] / span.phases.calls[forward]);
    }

    static void count(SpanFigures& span, const trace::StepRow& row) {
        ++span.steps;
        span.tokens += row.tokens;
        span.skipped += row.skipped != 0 ? 1 : 0;
        span.seconds += row.seconds;
        span.model_flop += row.model_flop;
        span.loss.add(row.loss);
    }

    static void reduce(SpanFigures& span, std::vector<RankSpan>& ranks, bool keep) {
        for (const RankSpan& rank : ranks) {
            span.mean.add(rank.phases);
            for (std::size_t p = 0; p < phase_count; ++p)
                span.slowest[p] = std::max(span.slowest[p], rank.phases.seconds[p]);
        }
        span.mean.scale(1 / static_cast<double>(ranks.size()));
        if (keep) span.ranks = ranks;
    }

    void add_step(const trace::StepRow& row, std::vector<RankSpan>& of_step) {
        if (epoch_open_ && epoch_.number != row.epoch) close_epoch();
        if (!epoch_open_) {
            epoch_ = {};
            epoch_.number = row.epoch;
            epoch_open_ = true;
            std::fill(epoch_ranks_.begin(), epoch_ranks_.end(), RankSpan{});
        }
        for (std::size_t r = 0; r < of_step.size(); ++r) {
            epoch_ranks_[r].phases.add(of_step[r].phases);
            epoch_ranks_[r].step_seconds += of_step[r].step_seconds;
            epoch_ranks_[r].loss.sum += of_step[r].loss.sum;
            epoch_ranks_[r].loss.count += of_step[r].loss.count;
        }
        count(epoch_, row);
        count(figures_.all, row);
        figures_.hardware_flop += row.hardware_flop;
        SpanFigures step;
        step.number = row.step;
        count(step, row);
        reduce(step, of_step, options_.ranks_of_steps);
        if (figures_.steps.empty()) figures_.first_step = row.step;
        figures_.last_step = row.step;
        figures_.steps.push_back(std::move(step));
    }

    void close_epoch() {
        if (!epoch_open_) return;
        reduce(epoch_, epoch_ranks_, options_.ranks_of_epochs);
        figures_.epochs.push_back(std::move(epoch_));
        epoch_open_ = false;
    }

    void finish(const trace::Run& run) {
        std::vector<double> all_latencies;
        const auto ranks = static_cast<double>(figures_.ranks.size());
        double overhead = 0;
        for (std::size_t r = 0; r < figures_.ranks.size(); ++r) {
            RankFigures& rank = figures_.ranks[r];
            all_latencies.insert(all_latencies.end(), latencies_[r].begin(), latencies_[r].end());
            rank.forward_median = median_of(latencies_[r]);
            figures_.mean.add(rank.phases);
            overhead += rank.overhead;
            const double seconds = rank.step_seconds > 0 ? rank.step_seconds : figures_.all.seconds;
            rank.tokens_per_second = per_second(static_cast<double>(figures_.all.tokens) / ranks, seconds);
        }
        const double total = figures_.mean.total();
        figures_.overhead_share = total > 0 ? overhead / total : 0;
        figures_.mean.scale(1 / ranks);
        figures_.forward_median = median_of(all_latencies);
        note(run);
    }

    void note(const trace::Run& run) {
        auto& notes = figures_.notes;
        if (figures_.steps.empty()) notes.push_back("The trace holds no step.");
        if (!run.closed() && !figures_.steps.empty())
            notes.push_back(
                fmt::format("The last launch did not end properly or is still running: the figures go up to the "
                            "last flush, step {}.",
                            figures_.last_step));
        if (run.superseded > 0)
            notes.push_back(fmt::format(
                "{} steps were made again after a resume; their first execution is not counted.", run.superseded));
        if (figures_.all.skipped > 0)
            notes.push_back(
                fmt::format("{} of {} steps were skipped (no update).", figures_.all.skipped, figures_.all.steps));
        std::int64_t missing = 0;
        for (std::size_t i = 1; i < figures_.steps.size(); ++i)
            missing += figures_.steps[i].number - figures_.steps[i - 1].number - 1;
        if (missing > 0)
            notes.push_back(fmt::format("{} steps between the first and the last are in no trace.", missing));
        for (const auto& part : run.parts)
            if (part.file.ranks() != figures_.ranks.size()) {
                notes.push_back(
                    "The launches had different numbers of ranks; figures of a rank add up what it did in each.");
                break;
            }
    }

    FigureOptions options_;
    RunFigures figures_;
    std::vector<std::vector<double>> latencies_;
    SpanFigures epoch_;
    std::vector<RankSpan> epoch_ranks_;
    bool epoch_open_ = false;
};

}  // namespace

void Mean::add(double value) {
    if (!std::isfinite(value)) return;
    sum += value;
    ++count;
}

double Mean::value() const {
    return count > 0 ? sum / static_cast<double>(count) : nothing;
}

RunFigures figures_of(const trace::Run& run, const FigureOptions& options) {
    return Accumulator(run, options).take();
}

double per_second(double amount, double seconds) {
    return seconds > 0 ? amount / seconds : 0;
}

double mean_per_call(const PhaseSums& sums, std::size_t phase) {
    return sums.calls[phase] > 0 ? sums.seconds[phase] / sums.calls[phase] : 0;
}

}  // namespace lockstep::analysis
