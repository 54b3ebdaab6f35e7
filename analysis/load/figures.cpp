#include "analysis/load/figures.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "analysis/load/configuration.hpp"
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

void count(SpanFigures& span, const trace::StepRow& row, std::size_t ranks, const PhaseSums& mean) {
    if (span.steps == 0) span.first_step = row.step;
    span.last_step = row.step;
    ++span.steps;
    span.tokens += row.tokens;
    span.tokens_per_rank += static_cast<double>(row.tokens) / static_cast<double>(ranks);
    span.skipped += row.skipped != 0 ? 1 : 0;
    span.seconds += row.seconds;
    span.model_flop += row.model_flop;
    span.loss.add(row.loss);
    span.mean.add(mean);
}

// Adds the least and the most time of those ranks that took part.
void add_extremes(SpanFigures& span, const std::vector<RankSpan>& ranks) {
    std::array<double, phase_count> least{}, most{};
    bool first = true;
    for (const RankSpan& rank : ranks) {
        if (rank.steps == 0) continue;
        for (std::size_t p = 0; p < phase_count; ++p) {
            least[p] = first ? rank.phases.seconds[p] : std::min(least[p], rank.phases.seconds[p]);
            most[p] = std::max(most[p], rank.phases.seconds[p]);
        }
        first = false;
    }
    for (std::size_t p = 0; p < phase_count; ++p) {
        span.fastest[p] += least[p];
        span.slowest[p] += most[p];
    }
}

// Adds rows up to one span. Ranks are compared within a launch.
class SpanSums {
  public:
    void open(std::int64_t number, std::size_t ranks) {
        figures_ = {};
        figures_.number = number;
        figures_.ranks.assign(ranks, {});
        of_launch_.assign(ranks, {});
    }
    void add(const trace::StepRow& row, const std::vector<RankSpan>& of_step, const PhaseSums& mean) {
        count(figures_, row, of_step.size(), mean);
        for (std::size_t r = 0; r < of_step.size(); ++r) of_launch_[r].add(of_step[r]);
    }
    void end_launch() {
        add_extremes(figures_, of_launch_);
        for (std::size_t r = 0; r < of_launch_.size(); ++r) {
            figures_.ranks[r].add(of_launch_[r]);
            of_launch_[r] = {};
        }
    }
    std::int64_t number() const { return figures_.number; }
    SpanFigures close(bool keep_ranks) {
        end_launch();
        if (!keep_ranks) figures_.ranks.clear();
        return std::move(figures_);
    }

  private:
    SpanFigures figures_;
    std::vector<RankSpan> of_launch_;
};

class Accumulator {
  public:
    Accumulator(const trace::Run& run, const FigureOptions& options) : options_(options) {
        std::size_t most = 0;
        for (const auto& part : run.parts)
            if (part.rows > 0) most = std::max(most, part.file.ranks());
        if (most == 0) most = run.parts.back().file.ranks();
        figures_.ranks.resize(most);
        latencies_.resize(most);
        for (auto& rank : figures_.ranks) rank.loss_first = rank.loss_last = nothing;
        place_ranks(run);
        all_.open(0, most);
        for (const auto& part : run.parts) {
            if (launch_.number() != part.launch) {
                close_launch();
                launch_.open(part.launch, most);
            }
            add_part(part);
        }
        close_launch();
        close_epoch();
        finish(run);
    }
    RunFigures take() { return std::move(figures_); }

  private:
    void place_ranks(const trace::Run& run) {
        for (std::size_t r = 0; r < figures_.ranks.size(); ++r) {
            std::vector<Cell> hosts, cores, gpus, threads;
            for (const auto& part : run.parts) {
                if (r >= part.file.ranks() || (part.rows == 0 && run.parts.size() > 1)) continue;
                const trace::RankRow& place = part.file.header().ranks[r];
                hosts.emplace_back(place.host);
                cores.emplace_back(place.cores);
                gpus.emplace_back(place.gpu);
                threads.emplace_back(place.threads);
            }
            RankFigures& rank = figures_.ranks[r];
            rank.host = one_or_list(hosts);
            rank.cores = one_or_list(cores);
            rank.gpu = one_or_list(gpus);
            rank.threads = one_or_list(threads);
        }
    }

    void add_part(const trace::RunPart& part) {
        const trace::TraceFile& file = part.file;
        const PhaseMap map(file.header().regions);
        const auto kinds = communication_kinds(file.header().regions);
        for (std::size_t p = 0; p < phase_count; ++p)
            figures_.measured[p] = figures_.measured[p] || map.measures(static_cast<Phase>(p));
        const std::size_t ranks = file.ranks(), regions = file.regions();
        const std::string& detail = file.header().detail;
        const bool detailed = detail == "phase" || detail == "layer";
        constexpr std::size_t block_bytes = std::size_t{16} << 20;
        const std::size_t block = std::max<std::size_t>(block_bytes / (ranks * (regions * 12 + 40)), 1);
        Rows rows;
        std::vector<RankSpan> of_step(ranks);
        for (std::size_t first = 0; first < part.rows; first += block) {
            const std::size_t count = std::min(block, part.rows - first);
            rows.read(file, first, count);
            for (std::size_t i = 0; i < count; ++i) {
                const trace::StepRow& row = file.steps()[first + i];
                double overhead = 0;
                for (std::size_t r = 0; r < ranks; ++r) {
                    const std::size_t cell = i * ranks + r;
                    of_step[r] = {};
                    of_step[r].steps = 1;
                    of_step[r].tokens = static_cast<double>(row.tokens) / static_cast<double>(ranks);
                    of_step[r].seconds = row.seconds;
                    // A trace without regions has no cells to point at.
                    if (regions > 0) {
                        of_step[r].phases = map.sums(&rows.times[cell * regions], &rows.calls[cell * regions]);
                        of_step[r].step_seconds = map.step_seconds(&rows.times[cell * regions]);
                    }
                    of_step[r].loss.add(rows.losses[cell]);
                    if (detailed && !of_step[r].phases.has_step_phases()) {
                        of_step[r].phases.forget_step_phases();
                        if (r == 0) ++untimed_;
                    } else if (detailed) {
                        for (const auto& [kind, ids] : kinds)
                            for (const std::size_t id : ids) add_kind(kind, r, rows.times[cell * regions + id]);
                    }
                    add_to_rank(r, of_step[r], rows.losses[cell], &rows.memory[cell * 3], rows.overhead[cell]);
                    overhead += rows.overhead[cell];
                }
                figures_.overhead += overhead / static_cast<double>(ranks);
                add_step(row, of_step);
            }
        }
    }

    void add_kind(const std::string& kind, std::size_t r, double seconds) {
        std::vector<double>& of_ranks = kinds_[kind];
        of_ranks.resize(figures_.ranks.size());
        if (std::isfinite(seconds)) of_ranks[r] += seconds;
    }

    void add_to_rank(std::size_t r, const RankSpan& span, double loss, const std::uint64_t* memory, double overhead) {
        RankFigures& rank = figures_.ranks[r];
        if (std::isfinite(loss)) {
            if (rank.loss.count == 0) rank.loss_first = loss;
            rank.loss_last = loss;
        }
        rank.add(span);
        rank.allocated = std::max(rank.allocated, memory[0]);
        rank.reserved = std::max(rank.reserved, memory[1]);
        rank.peak = std::max({rank.peak, memory[1], memory[2]});
        rank.overhead += overhead;
        if (span.phases.calls[forward] > 0)
            latencies_[r].push_back(span.phases.seconds[forward] / span.phases.calls[forward]);
    }

    void add_step(const trace::StepRow& row, const std::vector<RankSpan>& of_step) {
        if (epoch_open_ && epoch_.number() != row.epoch) close_epoch();
        if (!epoch_open_) epoch_.open(row.epoch, figures_.ranks.size());
        epoch_open_ = true;
        PhaseSums mean;
        Mean loss;
        for (const RankSpan& rank : of_step) {
            mean.add(rank.phases);
            loss.add(rank.loss.value());
        }
        mean.divide(static_cast<double>(of_step.size()));
        figures_.rank_loss.add(loss.value());
        figures_.hardware_flop += row.hardware_flop;
        for (SpanSums* span : {&epoch_, &launch_, &all_}) span->add(row, of_step, mean);
        SpanFigures step;
        step.number = row.step;
        count(step, row, of_step.size(), mean);
        add_extremes(step, of_step);
        if (options_.ranks_of_steps) step.ranks = of_step;
        figures_.steps.push_back(std::move(step));
    }

    void close_epoch() {
        if (!epoch_open_) return;
        figures_.epochs.push_back(epoch_.close(options_.ranks_of_epochs));
        epoch_open_ = false;
    }

    void close_launch() {
        if (launch_.number() == 0) return;
        all_.end_launch();
        if (epoch_open_) epoch_.end_launch();
        figures_.launches.push_back(launch_.close(false));
    }

    void finish(const trace::Run& run) {
        std::vector<double> all_latencies;
        double overhead = 0, total = 0;
        for (std::size_t r = 0; r < figures_.ranks.size(); ++r) {
            RankFigures& rank = figures_.ranks[r];
            all_latencies.insert(all_latencies.end(), latencies_[r].begin(), latencies_[r].end());
            rank.forward_median = median_of(latencies_[r]);
            overhead += rank.overhead;
            total += rank.phases.total();
        }
        for (const auto& [name, of_ranks] : kinds_) {
            const double sum = std::accumulate(of_ranks.begin(), of_ranks.end(), 0.0);
            const auto [least, most] = std::minmax_element(of_ranks.begin(), of_ranks.end());
            figures_.communication.push_back({name, sum / static_cast<double>(of_ranks.size()), *least, *most});
        }
        figures_.all = all_.close(false);
        figures_.overhead_share = total > 0 ? overhead / total : 0;
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
                            figures_.steps.back().number));
        if (untimed_ > 0)
            notes.push_back(fmt::format(
                "In {} of {} steps the phases overlapped and were not timed one by one: times and calls of a step's "
                "phases are "
                "those of the other {}, while initialization, validation and checkpoint are of the whole run, so that "
                "their shares look too large.",
                untimed_, figures_.steps.size(), figures_.steps.size() - static_cast<std::size_t>(untimed_)));
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
        const auto differs = [&](const auto& part) {
            return part.rows > 0 && part.file.ranks() != figures_.ranks.size();
        };
        if (std::any_of(run.parts.begin(), run.parts.end(), differs))
            notes.push_back(
                "The launches had different numbers of ranks: a rank's figures are of the steps that it took part in, "
                "means are taken in each step over its ranks.");
    }

    FigureOptions options_;
    RunFigures figures_;
    std::vector<std::vector<double>> latencies_;
    std::map<std::string, std::vector<double>> kinds_;  // seconds of each rank
    SpanSums all_, launch_, epoch_;
    bool epoch_open_ = false;
    std::int64_t untimed_ = 0;
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

void RankSpan::add(const RankSpan& more) {
    steps += more.steps;
    tokens += more.tokens;
    seconds += more.seconds;
    step_seconds += more.step_seconds;
    phases.add(more.phases);
    loss.sum += more.loss.sum;
    loss.count += more.loss.count;
}

double RankSpan::tokens_per_second() const {
    return per_second(tokens, step_seconds > 0 ? step_seconds : seconds);
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
