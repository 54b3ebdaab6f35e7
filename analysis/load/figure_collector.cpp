#include "analysis/load/figure_collector.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "analysis/load/configuration.hpp"

namespace lockstep::analysis {
namespace {

constexpr auto forward = static_cast<std::size_t>(Phase::forward);

double median_or_zero(std::vector<double> values) {
    return values.empty() ? 0 : median(std::move(values));
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

void add_row(SpanFigures& span, const trace::StepRow& row, std::size_t ranks, const PhaseSums& mean) {
    if (span.steps == 0) span.first_step = row.step;
    span.last_step = row.step;
    ++span.steps;
    span.tokens += row.tokens;
    span.tokens_per_rank += static_cast<double>(row.tokens) / static_cast<double>(ranks);
    span.skipped += row.skipped != 0 ? 1 : 0;
    span.seconds += row.seconds;
    span.model_flop += row.model_flop;
    span.counted.add(row);
    span.loss.add(row.loss);
    if (const auto validation = validation_of(row)) span.validations.push_back(*validation);
    span.mean.add(mean);
}

}  // namespace

void SpanSums::open(std::int64_t number, std::size_t ranks) {
    figures_ = {};
    figures_.number = number;
    figures_.ranks.assign(ranks, {});
    of_launch_.assign(ranks, {});
}

void SpanSums::add(const trace::StepRow& row, const std::vector<RankSpan>& of_step, const PhaseSums& mean) {
    add_row(figures_, row, of_step.size(), mean);
    for (std::size_t r = 0; r < of_step.size(); ++r) of_launch_[r].add(of_step[r]);
}

void SpanSums::end_launch() {
    add_extremes(figures_, of_launch_);
    for (std::size_t r = 0; r < of_launch_.size(); ++r) figures_.ranks[r].add(of_launch_[r]);
    std::fill(of_launch_.begin(), of_launch_.end(), RankSpan());
}

SpanFigures SpanSums::close(bool keep_ranks) {
    end_launch();
    if (!keep_ranks) figures_.ranks = {};  // with its memory
    return std::move(figures_);
}

FigureCollector::FigureCollector(const trace::Run& run, const FigureOptions& options) : run_(run), options_(options) {
    std::size_t most = 0;
    for (const auto& part : run.parts)
        if (part.rows > 0) most = std::max(most, part.file.ranks());
    if (most == 0) most = run.parts.back().file.ranks();
    figures_.ranks.resize(most);
    latencies_.resize(most);
    for (auto& rank : figures_.ranks) rank.loss_first = rank.loss_last = unknown;
    place_ranks();
}

void FigureCollector::begin_part(const trace::RunPart& part) {
    kinds_of_part_.clear();
    if (launch_.number() == part.launch) return;
    close_launch();
    launch_.open(part.launch, figures_.ranks.size());
}

void FigureCollector::place_ranks() {
    for (std::size_t r = 0; r < figures_.ranks.size(); ++r) {
        std::vector<Cell> hosts, cores, gpus, threads;
        for (const auto& part : run_.parts) {
            if (r >= part.file.ranks() || (part.rows == 0 && run_.parts.size() > 1)) continue;
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

void FigureCollector::find_kinds(const RowSource& source) {
    for (const std::string& kind : source.kinds()) {
        kinds_[kind].resize(figures_.ranks.size());
        kinds_of_part_.push_back(&kinds_[kind]);
    }
}

void FigureCollector::add(const RowSample& sample, const RowSource& source) {
    const std::size_t ranks = sample.ranks.size();
    const trace::StepRow& row = sample.row;
    of_step_.assign(ranks, {});
    double overhead = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
        const RankSample& rank = sample.ranks[r];
        RankSpan& span = of_step_[r];
        span.steps = 1;
        span.tokens = static_cast<double>(row.tokens) / static_cast<double>(ranks);
        span.seconds = row.seconds;
        span.phases = rank.phases;
        span.step_seconds = rank.step_seconds;
        span.loss.add(rank.loss);
        if (rank.overlapped) span.phases.forget_step_phases();
        if (rank.timed && kinds_of_part_.empty()) find_kinds(source);
        if (rank.timed)
            for (std::size_t kind = 0; kind < rank.kinds.size(); ++kind) (*kinds_of_part_[kind])[r] += rank.kinds[kind];
        add_to_rank(r, span, rank);
        overhead += rank.overhead;
    }
    if (!sample.ranks.empty() && sample.ranks.front().overlapped) ++figures_.overlapped;
    figures_.overhead += overhead / static_cast<double>(ranks);
    add_step(row, of_step_);
}

void FigureCollector::end_part(const RowSource& source) {
    for (std::size_t p = 0; p < phase_count; ++p)
        figures_.measured[p] = figures_.measured[p] || source.measures(static_cast<Phase>(p));
}

void FigureCollector::add_to_rank(std::size_t r, const RankSpan& span, const RankSample& sample) {
    RankFigures& rank = figures_.ranks[r];
    if (std::isfinite(sample.loss)) {
        if (std::isnan(rank.loss_first)) rank.loss_first = sample.loss;
        rank.loss_last = sample.loss;
    }
    rank.raise(sample);
    rank.overhead += sample.overhead;
    if (span.phases.calls[forward] > 0)
        latencies_[r].push_back(span.phases.seconds[forward] / span.phases.calls[forward]);
}

void FigureCollector::add_step(const trace::StepRow& row, const std::vector<RankSpan>& of_step) {
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
    epoch_.add(row, of_step, mean);
    launch_.add(row, of_step, mean);
    add_row(figures_.all, row, of_step.size(), mean);
    SpanFigures& step = figures_.steps.emplace_back();
    step.number = row.step;
    add_row(step, row, of_step.size(), mean);
    add_extremes(step, of_step);
    if (options_.ranks_of_steps) step.ranks = of_step;
}

void FigureCollector::close_epoch() {
    if (!epoch_open_) return;
    figures_.epochs.push_back(epoch_.close(options_.ranks_of_epochs));
    epoch_open_ = false;
}

void FigureCollector::close_launch() {
    if (launch_.number() == 0) return;
    add_extremes(figures_.all, launch_.of_launch());
    for (std::size_t r = 0; r < figures_.ranks.size(); ++r) figures_.ranks[r].add(launch_.of_launch()[r]);
    if (epoch_open_) epoch_.end_launch();
    figures_.launches.push_back(launch_.close(false));
}

RunFigures FigureCollector::take() {
    close_launch();
    close_epoch();
    std::vector<double> all_latencies;
    double overhead = 0, total = 0;
    for (std::size_t r = 0; r < figures_.ranks.size(); ++r) {
        RankFigures& rank = figures_.ranks[r];
        all_latencies.insert(all_latencies.end(), latencies_[r].begin(), latencies_[r].end());
        rank.forward_median = median_or_zero(std::move(latencies_[r]));
        overhead += rank.overhead;
        total += rank.phases.total();
    }
    for (const auto& [name, of_ranks] : kinds_) {
        const double sum = std::accumulate(of_ranks.begin(), of_ranks.end(), 0.0);
        const auto [least, most] = std::minmax_element(of_ranks.begin(), of_ranks.end());
        figures_.communication.push_back({name, sum / static_cast<double>(of_ranks.size()), *least, *most});
    }
    figures_.overhead_share = total > 0 ? overhead / total : 0;
    figures_.forward_median = median_or_zero(std::move(all_latencies));
    return std::move(figures_);
}

}  // namespace lockstep::analysis
