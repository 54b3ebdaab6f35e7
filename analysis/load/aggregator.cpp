// From the rows of a source to a measurement.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/load/figure_collector.hpp"
#include "analysis/load/row_source.hpp"
#include "analysis/load/selection.hpp"
#include "base/plural.hpp"

namespace lockstep::analysis {
namespace {

constexpr auto forward_phase = static_cast<std::size_t>(Phase::forward);

std::unique_ptr<RowSource> source_of(const trace::Run& run) {
    Imported imported = imported_of(run.header());
    if (imported.imported) return make_table_source(run, std::move(imported));
    return make_trace_source(run);
}

class Aggregator {
  public:
    Aggregator(const trace::Run& run, const MeasureOptions& options)
        : run_(run),
          source_(source_of(run)),
          selection_(run, options, source_->imported(), result_),
          ranks_(selection_.ranks()),
          heat_(ranks_, selection_.used()) {
        if (options.figures) figures_.emplace(run, *options.figures);
        describe();
        sums_.resize(ranks_);
        result_.rank.resize(ranks_);
        for (std::size_t p = 0; p < run.parts.size(); ++p) add_part(p);
        finish();
    }
    Measurement take() { return std::move(result_); }

  private:
    // Of one rank.
    struct RankSums {
        Mean seconds, compute, communication;  // a step
        double whole = 0;                      // seconds of the run
        PhaseSums run;                         // the same, by phase
    };

    void describe() {
        const trace::TraceFile* file = &run_.parts.back().file;
        for (const auto& part : run_.parts)
            if (selection_.takes(part)) file = &part.file;
        const trace::Header& header = file->header();
        result_.path = run_.path;
        result_.imported = source_->imported();
        result_.ranks = static_cast<std::int64_t>(ranks_);
        result_.name = header.run_name;
        result_.started = run_.parts.front().file.header().start_time;
        result_.description = header.description;
        result_.trained_parameters = header.trained_parameters;
        result_.settings = settings_of(header);
        result_.hosts = host_count(header);
        const double batch = result_.setting_number("batch.global");
        if (batch >= 1 && batch < 1e15) result_.batch = static_cast<std::int64_t>(batch);
    }

    void add_part(std::size_t p) {
        const trace::RunPart& part = run_.parts[p];
        const bool takes = selection_.takes(part);
        if (figures_) figures_->begin_part(part);
        if (takes)
            for (std::size_t r = 0; r < ranks_; ++r) {
                const trace::RankRow& place = part.file.header().ranks[r];
                result_.rank[r].host = place.host;
                result_.rank[r].gpu = place.gpu;
                result_.rank[r].cores = place.cores;
                result_.rank[r].threads = place.threads;
            }
        if (!takes && !figures_) {
            for (std::size_t i = 0; i < part.rows; ++i) add_losses(part.file.steps()[i]);
            return;
        }
        std::size_t index = 0;
        bool disturbed = false;
        source_->read(part, [&](const RowSample& sample) {
            add_losses(sample.row);
            if (figures_) figures_->add(sample, *source_);
            if (!takes) return;
            bool counts = selection_.counts(p, index++);
            if (counts && disturbed) {
                counts = false;
                ++result_.disturbed;
            }
            add_row(sample, counts);
            disturbed = sample.disturbs;
        });
        if (figures_) figures_->end_part(*source_);
    }

    void add_losses(const trace::StepRow& row) {
        result_.losses.emplace_back(row.step, row.loss);
        if (const auto validation = validation_of(row)) result_.validations.push_back(*validation);
    }

    void add_row(const RowSample& row, bool counts) {
        result_.all_tokens += static_cast<double>(row.row.tokens);
        result_.counted.add(row.row);
        if (std::isfinite(row.row.seconds)) result_.all_step_seconds += row.row.seconds;
        StepSample sample;
        sample.step = row.row.step;
        sample.tokens = static_cast<double>(row.row.tokens);
        sample.loss = row.row.loss;
        std::array<Mean, phase_count> phases;
        Mean compute, communication;
        std::vector<double> kinds(source_->kinds().size());
        bool timed = false;
        for (std::size_t r = 0; r < ranks_; ++r) {
            const RankSample& rank = row.ranks[r];
            add_to_run(r, rank);
            if (!counts || !rank.present) continue;
            RankSums& sums = sums_[r];
            if (rank.seconds > 0) sums.seconds.add(rank.seconds);
            if (!rank.timed) continue;
            timed = true;
            for (std::size_t p = 0; p < phase_count; ++p) {
                const double seconds = rank.phases.seconds[p];
                if (is_outside_steps(static_cast<Phase>(p)) || !std::isfinite(seconds)) continue;
                result_.rank[r].phases.seconds[p] += seconds;
                result_.rank[r].phases.calls[p] += rank.phases.calls[p];
                phases[p].add(seconds);
            }
            for (Mean* mean : {&sums.compute, &compute}) mean->add(rank.compute);
            for (Mean* mean : {&sums.communication, &communication}) mean->add(rank.communication);
            if (!(sample.longest_compute >= rank.compute)) sample.longest_compute = rank.compute;
            for (std::size_t kind = 0; kind < kinds.size(); ++kind) kinds[kind] += rank.kinds[kind];
            if (std::isfinite(rank.compute)) heat_.add(r, result_.steps.size(), sample.step, rank.compute);
        }
        if (!counts) return;
        if (timed)
            for (std::size_t kind = 0; kind < kinds.size(); ++kind) kind_sums_[source_->kinds()[kind]] += kinds[kind];
        if (std::isfinite(row.seconds) && row.seconds > 0) sample.slowest = row.seconds;
        sample.compute = compute.value();
        sample.communication = communication.value();
        for (std::size_t p = 0; p < phase_count; ++p) sample.phases[p] = timed ? phases[p].value() : unknown;
        if (timed) ++result_.timed_steps;
        tokens_ += sample.tokens;
        result_.steps.push_back(sample);
    }

    // What counts of all rows, warm-up too.
    void add_to_run(std::size_t r, const RankSample& sample) {
        RankMeasurement& rank = result_.rank[r];
        RankSums& sums = sums_[r];
        rank.raise(sample);
        rank.present = rank.present || sample.present;
        for (std::size_t p = 0; p < phase_count; ++p) {
            const double seconds = sample.phases.seconds[p];
            if (!std::isfinite(seconds)) continue;
            sums.run.seconds[p] += seconds;
            sums.run.calls[p] += sample.phases.calls[p];
            if (!source_->imported()) sums.whole += seconds;
        }
        if (source_->imported() && std::isfinite(sample.seconds)) sums.whole += sample.seconds;
    }

    void finish() {
        const bool communicates = source_->measures_communication();
        std::size_t present = 0;
        for (std::size_t r = 0; r < ranks_; ++r) {
            RankMeasurement& rank = result_.rank[r];
            const RankSums& sums = sums_[r];
            rank.seconds = sums.seconds.value();
            rank.compute = sums.compute.value();
            rank.communication = communicates ? sums.communication.value() : unknown;
            for (std::size_t p = 0; p < phase_count; ++p) {
                if (!is_outside_steps(static_cast<Phase>(p))) continue;
                rank.phases.seconds[p] = sums.run.seconds[p];
                rank.phases.calls[p] = sums.run.calls[p];
            }
            if (rank.present) {
                if (!(result_.total_seconds >= sums.whole)) result_.total_seconds = sums.whole;
                result_.whole_run.add(sums.run);
                ++present;
            }
            if (!result_.imported && rank.seconds > 0 && !result_.steps.empty())
                rank.tokens_per_second =
                    tokens_ / static_cast<double>(ranks_) / (rank.seconds * static_cast<double>(result_.steps.size()));
        }
        if (present > 0) result_.whole_run.divide(static_cast<double>(present));
        if (result_.timed_steps > 0 && present > 0)
            for (const auto& [kind, seconds] : kind_sums_)
                result_.communication_kinds[kind] =
                    seconds / static_cast<double>(result_.timed_steps) / static_cast<double>(present);
        result_.heat = heat_.take();
        source_->complete(result_);
        take_accumulation(present > 0);
        if (!communicates)
            for (StepSample& sample : result_.steps) {
                sample.communication = unknown;
                if (!result_.imported) sample.compute = unknown;
            }
        remark();
    }

    void take_accumulation(bool present) {
        double passes = result_.setting_number("batch.accumulation");
        const double pieces = result_.setting_number("parallel.interleave");
        if (!result_.imported && result_.timed_steps > 0 && present)
            passes = result_.rank.front().phases.calls[forward_phase] / static_cast<double>(result_.timed_steps) /
                     (pieces >= 1 ? pieces : 1);
        if (!(passes >= 1 && passes < 1e9)) return;
        result_.accumulation = std::llround(passes);
        result_.settings["accumulation"] = fmt::format("{}", result_.accumulation);
        double replicas = static_cast<double>(ranks_);
        for (const char* key : {"parallel.tensor", "parallel.pipeline", "parallel.context"})
            if (const double degree = result_.setting_number(key); degree >= 1) replicas /= degree;
        const double micro = static_cast<double>(result_.batch) / (replicas * passes);
        if (micro >= 1) result_.settings["micro_batch"] = fmt::format("{:.4g}", micro);
    }

    void remark() {
        auto& remarks = result_.remarks;
        if (result_.steps.empty())
            remarks.push_back(result_.losses.empty() ? "The trace has no steps." : "The warm-up covers all steps.");
        remark_on_end(remarks);
        remark_on_repeats(remarks);
        if (!result_.imported) remark_on_timing();
        if (!result_.imported) remark_on_gaps(remarks);
        remark_on_validations(remarks);
        for (const std::string& sentence : source_->remarks()) remarks.push_back(sentence);
        if (!figures_) return;
        result_.figures = figures_->take();
        note(*result_.figures);
    }

    void note(RunFigures& figures) const {
        auto& notes = figures.notes;
        const std::int64_t steps = figures.all.steps;
        if (steps == 0) notes.push_back("The trace has no steps.");
        remark_on_end(notes);
        if (figures.overlapped > 0)
            notes.push_back(fmt::format(
                "In {} of {} steps the phases overlapped and were not timed individually: times and calls of a step's "
                "phases are from the other {}, while initialization, validation and checkpoint are from the whole run, "
                "so their shares look too large.",
                figures.overlapped, steps, steps - figures.overlapped));
        remark_on_repeats(notes);
        if (figures.all.skipped > 0)
            notes.push_back(fmt::format("{} of {} step{} {} skipped (no update).", figures.all.skipped, steps,
                                        plural(steps), figures.all.skipped == 1 ? "was" : "were"));
        remark_on_gaps(notes);
        remark_on_validations(notes);
        if (std::any_of(run_.parts.begin(), run_.parts.end(),
                        [&](const auto& part) { return part.rows > 0 && part.file.ranks() != figures.ranks.size(); }))
            notes.push_back(
                "The launches had different numbers of ranks: a rank's figures are from the steps it took part in, and "
                "means are over the ranks of each step.");
    }

    void remark_on_end(std::vector<std::string>& remarks) const {
        if (!run_.closed() && !result_.losses.empty())
            remarks.push_back(fmt::format(
                "The last launch did not end properly or is still running: figures go up to the last flush, step {}.",
                result_.losses.back().first));
    }

    void remark_on_repeats(std::vector<std::string>& remarks) const {
        if (run_.superseded > 0)
            remarks.push_back(fmt::format("{} step{} repeated after a resume; only the last execution counts.",
                                          run_.superseded, run_.superseded == 1 ? " was" : "s were"));
    }

    void remark_on_gaps(std::vector<std::string>& remarks) const {
        double missing = 0;  // a damaged file's numbers are beyond integers
        for (std::size_t i = 1; i < result_.losses.size(); ++i)
            missing += std::max(
                static_cast<double>(result_.losses[i].first) - static_cast<double>(result_.losses[i - 1].first) - 1,
                0.0);
        if (missing > 0)
            remarks.push_back(fmt::format("{:.0f} step{} between the first and the last {} missing from the traces.",
                                          missing, plural(missing), missing == 1 ? "is" : "are"));
    }

    void remark_on_validations(std::vector<std::string>& remarks) const {
        if (const std::string remark = remark_on(result_.validations); !remark.empty()) remarks.push_back(remark);
    }

    void remark_on_timing() {
        auto& remarks = result_.remarks;
        const auto steps = static_cast<std::int64_t>(result_.steps.size());
        const std::int64_t timed = result_.timed_steps;
        if (timed > 0 && timed < steps)
            remarks.push_back(fmt::format(
                "In {} of {} steps the phases overlapped and were not timed individually: shares of compute and "
                "communication, and phases, are from the other {}, which are slower.",
                steps - timed, steps, timed));
        if (timed == 0 && steps > 0 && run_.header().detail != "step")
            remarks.push_back(
                "No measured step was timed phase by phase, so compute and communication are unknown; "
                "--sync phase times every step.");
        else if (timed < steps && timed < fewest_timed_steps && timed > 0)
            remarks.push_back(fmt::format(
                "The phases of only {} step{} timed: too few for compute and communication; --sync phase times "
                "every step.",
                timed, timed == 1 ? " was" : "s were"));
    }

    const trace::Run& run_;
    Measurement result_;
    std::unique_ptr<RowSource> source_;
    Selection selection_;
    std::size_t ranks_;
    HeatCollector heat_;
    std::optional<FigureCollector> figures_;
    std::vector<RankSums> sums_;
    std::map<std::string, double> kind_sums_;
    double tokens_ = 0;
};

}  // namespace

Measurement measure(const trace::Run& run, const MeasureOptions& options) {
    return Aggregator(run, options).take();
}

}  // namespace lockstep::analysis
