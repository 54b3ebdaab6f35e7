#include "analysis/load/measurement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "analysis/load/checks.hpp"
#include "analysis/load/selection.hpp"

namespace lockstep::analysis {
namespace {

constexpr auto communication_phase = static_cast<std::size_t>(Phase::communication);
constexpr auto forward_phase = static_cast<std::size_t>(Phase::forward);
constexpr std::size_t most_cells = 128;         // rows and columns of a heat map
constexpr std::int64_t fewest_timed_steps = 6;  // for shares of compute and communication, where steps are sampled

// The sum and number of what is finite.
struct Sum {
    double sum = 0;
    std::int64_t count = 0;
    void add(double value) {
        if (!std::isfinite(value)) return;
        sum += value;
        ++count;
    }
    double mean() const { return count > 0 ? sum / static_cast<double>(count) : unknown; }
};

class Measurer {
  public:
    Measurer(const trace::Run& run, const MeasureOptions& options) : run_(run), imported_(imported_of(run.header())) {
        result_.path = run.path;
        result_.imported = imported_.imported;
        if (imported_.imported)
            result_.remarks.insert(result_.remarks.end(), imported_.remarks.begin(), imported_.remarks.end());
        const Selection selection(run, options, imported_.imported, result_);
        ranks_ = selection.ranks();
        result_.ranks = static_cast<std::int64_t>(ranks_);
        describe(selection);
        open_heat(selection.used());
        sums_.resize(ranks_);
        result_.rank.resize(ranks_);
        for (std::size_t p = 0; p < run.parts.size(); ++p) add_part(p, selection);
        finish();
    }
    Measurement take() { return std::move(result_); }

  private:
    struct RankSums {
        Sum seconds, compute, communication;
        double whole = 0;  // of all regions, over the run
        PhaseSums run;     // the same, by phase
    };

    void describe(const Selection& selection) {
        const trace::TraceFile* file = &run_.parts.back().file;
        for (const auto& part : run_.parts)
            if (selection.takes(part)) file = &part.file;
        const trace::Header& header = file->header();
        result_.name = header.run_name;
        result_.started = run_.parts.front().file.header().start_time;
        result_.description = header.description;
        result_.settings = settings_of(header);
        std::set<std::string> hosts;
        for (const auto& rank : header.ranks) hosts.insert(rank.host);
        result_.hosts = static_cast<std::int64_t>(hosts.size());
        const double batch = result_.setting_number("batch.global");
        if (batch >= 1 && batch < 1e15) result_.batch = static_cast<std::int64_t>(batch);
    }

    void open_heat(std::size_t used) {
        columns_ = std::min(used, most_cells);
        rows_ = std::min(ranks_, most_cells);
        result_.heat.first_step.assign(columns_, 0);
        for (std::size_t row = 0; row < rows_; ++row)
            result_.heat.first_rank.push_back(static_cast<std::int64_t>((row * ranks_ + rows_ - 1) / rows_));
        result_.heat.seconds.assign(rows_ * columns_, unknown);
        used_ = used;
    }

    void heat(std::size_t rank, std::int64_t step, double seconds) {
        const std::size_t column = result_.steps.size() * columns_ / used_, row = rank * rows_ / ranks_;
        if (result_.heat.first_step[column] == 0) result_.heat.first_step[column] = step;
        double& cell = result_.heat.seconds[row * columns_ + column];
        if (!(cell >= seconds)) cell = seconds;
    }

    void add_part(std::size_t p, const Selection& selection) {
        const trace::RunPart& part = run_.parts[p];
        const trace::TraceFile& file = part.file;
        if (!selection.takes(part)) {
            for (std::size_t i = 0; i < part.rows; ++i)
                result_.losses.emplace_back(file.steps()[i].step, file.steps()[i].loss);
            return;
        }
        for (std::size_t r = 0; r < ranks_; ++r) {
            result_.rank[r].host = file.header().ranks[r].host;
            result_.rank[r].gpu = file.header().ranks[r].gpu;
            result_.rank[r].cores = file.header().ranks[r].cores;
            result_.rank[r].threads = file.header().ranks[r].threads;
        }
        const PhaseMap map(file.header().regions);
        const auto kinds = communication_kinds(file.header().regions);
        const std::vector<std::size_t> disturb = disturbing(file.header().regions);
        const std::size_t regions = file.regions();
        const bool detailed = imported_.imported || file.header().detail == "phase" || file.header().detail == "layer";
        constexpr std::size_t block_bytes = std::size_t{16} << 20;
        const std::size_t block = std::max<std::size_t>(block_bytes / (ranks_ * (regions * 12 + 24)), 1);
        std::vector<double> times;
        std::vector<std::uint32_t> calls;
        std::vector<std::uint64_t> memory;
        bool disturbed = false;  // the row before ended with one of these
        if (!imported_.imported) checks_.begin_part(file);
        for (std::size_t first = 0; first < part.rows; first += block) {
            const std::size_t count = std::min(block, part.rows - first);
            file.read_times(first, count, times);
            file.read_calls(first, count, calls);
            file.read_memory(first, count, memory);
            for (std::size_t i = 0; i < count; ++i) {
                const trace::StepRow& row = file.steps()[first + i];
                const double* of_step = times.data() + i * ranks_ * regions;
                if (!imported_.imported) checks_.row(row, of_step);
                const std::uint32_t* called = calls.data() + i * ranks_ * regions;
                bool counts = selection.counts(p, first + i);
                if (counts && disturbed) {
                    counts = false;
                    ++result_.disturbed;
                }
                add_row(row, map, kinds, of_step, called, memory.data() + i * ranks_ * 3, regions, counts, detailed);
                disturbed = false;
                for (const std::size_t id : disturb)
                    for (std::size_t r = 0; r < ranks_; ++r) disturbed = disturbed || called[r * regions + id] > 0;
            }
        }
        if (!imported_.imported) checks_.events(file.read_events());
    }

    // The regions after which ranks come back at different times and wait for each other in the next step: checkpoint
    // and validation. Where one follows every step, that is how the run was.
    std::vector<std::size_t> disturbing(const std::vector<trace::RegionRow>& regions) const {
        std::vector<std::size_t> ids;
        if (imported_.imported || ranks_ < 2) return ids;
        for (const auto& region : regions)
            if ((region.path == "checkpoint" || region.path == "validation") &&
                result_.setting_number(region.path + ".every") != 1)
                ids.push_back(static_cast<std::size_t>(region.id));
        return ids;
    }

    void add_row(const trace::StepRow& row, const PhaseMap& map,
                 const std::map<std::string, std::vector<std::size_t>>& kinds, const double* times,
                 const std::uint32_t* calls, const std::uint64_t* memory, std::size_t regions, bool counts,
                 bool detailed) {
        result_.losses.emplace_back(row.step, row.loss);
        result_.all_tokens += static_cast<double>(row.tokens);
        if (std::isfinite(row.seconds)) result_.all_step_seconds += row.seconds;
        StepSample sample;
        sample.step = row.step;
        sample.tokens = static_cast<double>(row.tokens);
        sample.loss = row.loss;
        std::array<Sum, phase_count> phases;
        Sum compute, communication;
        double longest = 0;
        bool timed = false;
        for (std::size_t r = 0; r < ranks_; ++r) {
            RankMeasurement& rank = result_.rank[r];
            RankSums& sums = sums_[r];
            rank.allocated = std::max(rank.allocated, memory[r * 3]);
            rank.reserved = std::max(rank.reserved, memory[r * 3 + 1]);
            rank.peak = std::max({rank.peak, memory[r * 3 + 1], memory[r * 3 + 2]});
            if (regions == 0) continue;
            const PhaseSums own = map.sums(times + r * regions, calls + r * regions);
            const double step =
                imported_.imported ? imported_total(r, times + r * regions) : map.step_seconds(times + r * regions);
            bool anything = false;
            for (std::size_t p = 0; p < phase_count; ++p)
                if (std::isfinite(own.seconds[p])) {
                    sums.run.seconds[p] += own.seconds[p];
                    sums.run.calls[p] += own.calls[p];
                    if (!imported_.imported) sums.whole += own.seconds[p];
                    anything = anything || own.seconds[p] > 0;
                }
            rank.present = rank.present || anything;
            if (imported_.imported && std::isfinite(step)) sums.whole += step;
            if (!counts || !anything) continue;
            const bool timed_here = !detailed || own.has_step_phases() || imported_.imported;
            if (std::isfinite(step) && step > 0) {
                longest = std::max(longest, step);
                sums.seconds.add(step);
            }
            if (!detailed || !timed_here) continue;
            timed = true;
            for (std::size_t p = 0; p < phase_count; ++p) {
                if (is_outside_steps(static_cast<Phase>(p)) || !std::isfinite(own.seconds[p])) continue;
                rank.phases.seconds[p] += own.seconds[p];
                rank.phases.calls[p] += own.calls[p];
                phases[p].add(own.seconds[p]);
            }
            const double waited = own.seconds[communication_phase];
            const double worked = imported_.imported ? imported_compute(own, times + r * regions, step) : step - waited;
            sums.compute.add(worked);
            sums.communication.add(waited);
            compute.add(worked);
            communication.add(waited);
            if (!(sample.longest_compute >= worked)) sample.longest_compute = worked;
            for (const auto& [kind, ids] : kinds)
                for (const std::size_t id : ids)
                    if (std::isfinite(times[r * regions + id])) kind_sums_[kind] += times[r * regions + id];
            if (std::isfinite(worked)) heat(r, row.step, worked);
        }
        if (!counts) return;
        sample.slowest = imported_.imported ? (longest > 0 ? longest : unknown) : row.seconds;
        if (!(std::isfinite(sample.slowest) && sample.slowest > 0)) sample.slowest = unknown;
        sample.compute = compute.mean();
        sample.communication = communication.mean();
        for (std::size_t p = 0; p < phase_count; ++p) sample.phases[p] = timed ? phases[p].mean() : unknown;
        if (timed) ++result_.timed_steps;
        tokens_ += sample.tokens;
        result_.steps.push_back(sample);
    }

    double imported_total(std::size_t rank, const double* times) const {
        const auto& totals = imported_.total;
        if (imported_.whole && !totals.empty()) return totals.front();
        if (!imported_.whole && rank < totals.size()) return totals[rank];
        return roots(times);
    }

    // What the parts come to, where the table gave no total.
    double roots(const double* times) const {
        Sum sum;
        for (const auto& region : run_.header().regions)
            if (region.parent < 0) sum.add(times[region.id]);
        return sum.count > 0 ? sum.sum : unknown;
    }

    // What a table calls compute, or what is not communication.
    double imported_compute(const PhaseSums& own, const double* times, double total) const {
        for (const auto& region : run_.header().regions)
            if (region.path == "epoch/step/compute") return times[region.id];
        if (!measures_communication()) return unknown;
        return total - own.seconds[communication_phase];
    }
    bool measures_communication() const {
        const auto& regions = run_.header().regions;
        return std::any_of(regions.begin(), regions.end(), [](const auto& one) { return one.name == "communication"; });
    }

    void finish() {
        for (std::size_t r = 0; r < ranks_; ++r) {
            RankMeasurement& rank = result_.rank[r];
            const RankSums& sums = sums_[r];
            rank.seconds = sums.seconds.mean();
            rank.compute = sums.compute.mean();
            rank.communication = measures_communication() ? sums.communication.mean() : unknown;
            for (std::size_t p = 0; p < phase_count; ++p) {
                if (!is_outside_steps(static_cast<Phase>(p))) continue;
                rank.phases.seconds[p] = sums.run.seconds[p];
                rank.phases.calls[p] = sums.run.calls[p];
            }
            if (rank.present) {
                if (!(result_.total_seconds >= sums.whole)) result_.total_seconds = sums.whole;
                result_.whole_run.add(sums.run);
                ++present_;
            }
            if (!imported_.imported && rank.seconds > 0 && !result_.steps.empty())
                rank.tokens_per_second =
                    tokens_ / static_cast<double>(ranks_) / (rank.seconds * static_cast<double>(result_.steps.size()));
        }
        if (present_ > 0) result_.whole_run.divide(static_cast<double>(present_));
        if (result_.timed_steps > 0 && present_ > 0)
            for (const auto& [kind, seconds] : kind_sums_)
                result_.communication_kinds[kind] =
                    seconds / static_cast<double>(result_.timed_steps) / static_cast<double>(present_);
        shorten_heat();
        take_imported_rates();
        take_accumulation();
        if (!measures_communication())
            for (StepSample& sample : result_.steps) {
                sample.communication = unknown;
                if (!imported_.imported) sample.compute = unknown;
            }
        remark();
    }

    // Without the columns in which no step was timed.
    void shorten_heat() {
        HeatMap& heat = result_.heat;
        HeatMap shorter;
        shorter.first_rank = heat.first_rank;
        std::vector<std::size_t> kept;
        for (std::size_t c = 0; c < columns_; ++c)
            if (heat.first_step[c] != 0) kept.push_back(c);
        for (const std::size_t c : kept) shorter.first_step.push_back(heat.first_step[c]);
        for (std::size_t row = 0; row < rows_; ++row)
            for (const std::size_t c : kept) shorter.seconds.push_back(heat.seconds[row * columns_ + c]);
        heat = std::move(shorter);
    }

    void take_imported_rates() {
        if (!imported_.imported) return;
        const auto& rates = imported_.tokens_per_second;
        if (imported_.whole) {
            if (!rates.empty()) result_.imported_tokens_per_second = rates.front();
            for (RankMeasurement& rank : result_.rank) rank.present = true;
        } else {
            Sum together;
            for (std::size_t r = 0; r < std::min(rates.size(), ranks_); ++r) {
                result_.rank[r].tokens_per_second = rates[r];
                result_.rank[r].present = result_.rank[r].present || std::isfinite(rates[r]);
                together.add(rates[r]);
            }
            // A sum over some of the ranks is no rate of all.
            if (together.count == result_.ranks) result_.imported_tokens_per_second = together.sum;
        }
        result_.whole = imported_.whole;
    }

    void take_accumulation() {
        double passes = result_.setting_number("batch.accumulation");
        const double pieces = result_.setting_number("parallel.interleave");
        if (!result_.imported && result_.timed_steps > 0 && present_ > 0)
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
        if (result_.steps.empty()) {
            remarks.push_back(result_.losses.empty() ? "The trace holds no step."
                                                     : "No step is left after the warm-up.");
        }
        if (!run_.closed() && !result_.losses.empty())
            remarks.push_back(
                fmt::format("The last launch did not end properly or is still running: the figures go up to the last "
                            "flush, step {}.",
                            result_.losses.back().first));
        if (run_.superseded > 0)
            remarks.push_back(fmt::format(
                "{} steps were made again after a resume; their first execution does not count.", run_.superseded));
        if (!result_.imported && result_.timed_steps > 0 &&
            result_.timed_steps < static_cast<std::int64_t>(result_.steps.size()))
            remarks.push_back(fmt::format(
                "In {} of {} steps the phases overlapped and were not timed one by one: shares of compute and "
                "communication, and phases, are of the other {}, which are slower.",
                static_cast<std::int64_t>(result_.steps.size()) - result_.timed_steps, result_.steps.size(),
                result_.timed_steps));
        if (imported_.imported) return;
        const auto& detail = run_.header().detail;
        if (result_.timed_steps == 0 && !result_.steps.empty() && detail != "step")
            remarks.push_back(
                "In no step that counts were the phases timed one by one: compute and communication are not known; "
                "--sync phase times every step.");
        else if (result_.timed_steps < static_cast<std::int64_t>(result_.steps.size()) &&
                 result_.timed_steps < fewest_timed_steps && result_.timed_steps > 0)
            remarks.push_back(fmt::format(
                "The phases of only {} steps were timed: too few for compute and communication; --sync phase times "
                "every step.",
                result_.timed_steps));
        double missing = 0;  // a damaged file's numbers are beyond integers
        for (std::size_t i = 1; i < result_.losses.size(); ++i)
            missing += std::max(
                static_cast<double>(result_.losses[i].first) - static_cast<double>(result_.losses[i - 1].first) - 1,
                0.0);
        if (missing > 0)
            remarks.push_back(fmt::format("{:.0f} steps between the first and the last are in no trace.", missing));
        for (const std::string& sentence : checks_.remarks()) remarks.push_back(sentence);
    }

    const trace::Run& run_;
    Imported imported_;
    Measurement result_;
    TraceChecks checks_;
    std::size_t ranks_ = 0, rows_ = 0, columns_ = 0, used_ = 0, present_ = 0;
    std::vector<RankSums> sums_;
    std::map<std::string, double> kind_sums_;
    double tokens_ = 0;
};

std::vector<double> of_steps(const Measurement& measurement, double StepSample::*member) {
    std::vector<double> values;
    for (const StepSample& step : measurement.steps) values.push_back(step.*member);
    return values;
}

}  // namespace

double Measurement::step_seconds() const {
    return median(of_steps(*this, &StepSample::slowest));
}

double Measurement::average_step_seconds() const {
    Sum own;
    double longest = 0;
    for (const RankMeasurement& one : rank) {
        own.add(one.seconds);
        longest = std::max(longest, one.seconds);
    }
    if (whole || longest <= 0 || own.count != ranks) return unknown;
    return step_seconds() * own.mean() / longest;
}

double Measurement::step_tokens() const {
    const double tokens = mean(of_steps(*this, &StepSample::tokens));
    return tokens > 0 ? tokens : unknown;
}

Interval Measurement::step_interval() const {
    return median_interval(of_steps(*this, &StepSample::slowest));
}

double Measurement::tokens_per_second() const {
    if (std::isfinite(imported_tokens_per_second)) return imported_tokens_per_second;
    double tokens = 0, seconds = 0;
    for (const StepSample& step : steps)
        if (std::isfinite(step.slowest)) {
            tokens += step.tokens;
            seconds += step.slowest;
        }
    return tokens > 0 && seconds > 0 ? tokens / seconds : unknown;
}

double Measurement::usual_rate() const {
    if (imported) return tokens_per_second();
    const double rate = step_tokens() / step_seconds();
    return std::isfinite(rate) ? rate : unknown;
}

double Measurement::compute_seconds() const {
    return part_of_step(&StepSample::compute);
}

double Measurement::communication_seconds() const {
    return part_of_step(&StepSample::communication);
}

double Measurement::part_of_step(double StepSample::*part) const {
    if (timed_steps < static_cast<std::int64_t>(steps.size()) && timed_steps < fewest_timed_steps) return unknown;
    const double value = mean(of_steps(*this, part));
    if (imported) return value;
    const double whole_step =
        mean(of_steps(*this, &StepSample::compute)) + mean(of_steps(*this, &StepSample::communication));
    return whole_step > 0 ? step_seconds() * value / whole_step : unknown;
}

std::string Measurement::setting(const std::string& key) const {
    const auto found = settings.find(key);
    return found == settings.end() ? std::string() : found->second;
}

double Measurement::setting_number(const std::string& key) const {
    const std::string value = setting(key);
    try {
        std::size_t used = 0;
        const double number = std::stod(value, &used);
        return used == value.size() ? number : unknown;
    } catch (const std::exception&) {
        return unknown;
    }
}

Measurement measure(const trace::Run& run, const MeasureOptions& options) {
    return Measurer(run, options).take();
}

}  // namespace lockstep::analysis
