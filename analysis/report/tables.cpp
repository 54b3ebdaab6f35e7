// The tables of the report that no other command has, with few digits.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/output/values.hpp"
#include "analysis/report/report.hpp"
#include "analysis/report/text.hpp"
#include "base/clock.hpp"
#include "base/format.hpp"

namespace lockstep::analysis {
namespace {

// "2026-05-28 21:33".
std::string day_and_minute(double wall_seconds) {
    std::string words = calendar_time(wall_seconds).substr(0, 16);
    std::replace(words.begin(), words.end(), 'T', ' ');
    return words;
}

Cell count_or_nothing(std::int64_t count) {
    if (count > 0) return count;
    return {};
}

Cell interval_cell(const Interval& interval) {
    if (!interval.known()) return {};
    return seconds_interval(interval.low, interval.high);
}

Cell seconds_cell(double seconds) {
    if (!std::isfinite(seconds)) return {};
    return short_seconds(seconds);
}

Cell with_digits(double value, int digits) {
    if (!std::isfinite(value)) return {};
    return fmt::format("{:.{}g}", value, digits);
}

Cell words_or_nothing(const std::string& words) {
    if (words.empty()) return {};
    return words;
}

Cell bytes_cell(double bytes) {
    if (bytes > 0 && std::isfinite(bytes)) return human_bytes(bytes);
    return {};
}

}  // namespace

Table runs_table(const std::vector<Measurement>& measurements, const Labels& labels) {
    Table table({{"run", "run"},
                 {"ranks", "ranks"},
                 {"hosts", "hosts"},
                 {"batch", "batch, sequences"},
                 {"accumulation", "accumulation"},
                 {"steps", "steps that count"},
                 {"warm_up", "warm-up left out"},
                 {"time", "step time"},
                 {"interval", "95 % interval"},
                 {"rate", "tokens/s, median step"},
                 {"energy", "J/token"},
                 {"instructions_per_cycle", "IPC"},
                 {"frequency", "GHz over CPU time"},
                 {"machine", "machine"},
                 {"commit", "program, commit"},
                 {"started", "started, UTC"}});
    for (std::size_t i = 0; i < measurements.size(); ++i) {
        const Measurement& one = measurements[i];
        std::string machine = one.setting("gpu");
        if (machine.empty() && !one.setting("threads").empty() && !one.imported)
            machine = fmt::format("CPU, {} {} per rank", one.setting("threads"),
                                  one.setting("threads") == "1" ? "thread" : "threads");
        const std::string program = one.setting("program_version"), commit = one.setting("commit");
        const double rate = one.usual_rate();
        table.add_row(
            {labels[i], one.ranks, one.imported ? Cell() : count_or_nothing(one.hosts), count_or_nothing(one.batch),
             count_or_nothing(one.accumulation),
             one.imported ? Cell() : Cell(static_cast<std::int64_t>(one.steps.size())),
             one.imported ? Cell() : Cell(one.warm_up),
             one.imported && std::isfinite(one.step_seconds())
                 ? Cell(short_seconds(one.step_seconds()) + " (whole run)")
                 : seconds_cell(one.step_seconds()),
             interval_cell(one.step_interval()), std::isfinite(rate) ? Cell(std::llround(rate)) : Cell(),
             with_digits(one.counted.joules_per_token(), 4), with_digits(one.counted.instructions_per_cycle(), 3),
             with_digits(one.counted.cycles_per_second() / 1e9, 3), words_or_nothing(machine),
             one.imported ? std::string("imported") : program + (commit.empty() ? "" : ", " + commit.substr(0, 8)),
             one.imported || !(one.started > 0) ? Cell() : Cell(day_and_minute(one.started))});
    }
    return without_empty_columns(table);
}

Table predictions_table(const ScalingSeries& series) {
    Table table({{"law", "law"},
                 {"ranks", "ranks"},
                 {"speedup", "speedup"},
                 {"interval", "95 % interval"},
                 {"efficiency", "efficiency"}});
    const auto base = static_cast<double>(series.points[series.base].ranks);
    for (const Fit& fit : series.fits) {
        if (!fit.refusal.empty()) continue;
        for (const Prediction& prediction : fit.predictions) {
            const auto speedup = [&](double value) { return law_speedup(fit, series, prediction.ranks, value); };
            Cell interval;
            if (prediction.interval.known()) {
                const double one = speedup(prediction.interval.low), other = speedup(prediction.interval.high);
                interval = short_number(std::min(one, other)) + " to " + short_number(std::max(one, other));
            }
            table.add_row({fit.title, short_number(prediction.ranks), short_number(speedup(prediction.value)), interval,
                           percent(speedup(prediction.value) * base / prediction.ranks)});
        }
    }
    return table;
}

Table phases_table(const std::vector<Measurement>& measurements, const Labels& labels) {
    std::vector<std::size_t> shown;
    for (std::size_t phase = 0; phase < phase_count; ++phase)
        if (std::any_of(measurements.begin(), measurements.end(), [&](const Measurement& one) {
                const std::vector<double> shares = phase_shares(one);
                return !shares.empty() && shares[phase] > 0;
            }))
            shown.push_back(phase);
    std::vector<Column> columns = {{"run", "run"}, {"ranks", "ranks"}, {"steps", "steps timed by phase"}};
    for (const std::size_t phase : shown) columns.push_back({phase_names[phase], phase_title(phase)});
    Table table(columns);
    for (std::size_t i = 0; i < measurements.size(); ++i) {
        const Measurement& one = measurements[i];
        if (phase_shares(one).empty()) continue;
        std::vector<Cell> cells = {labels[i], one.ranks, one.imported ? Cell() : Cell(one.timed_steps)};
        double present = 0;
        for (const RankMeasurement& rank : one.rank) present += rank.present ? 1 : 0;
        for (const std::size_t phase : shown) {
            double seconds = 0;
            for (const RankMeasurement& rank : one.rank)
                if (rank.present) seconds += rank.phases.seconds[phase];
            const double steps = one.imported ? 1 : static_cast<double>(one.timed_steps);
            cells.emplace_back(short_seconds(seconds / present / steps));
        }
        table.add_row(std::move(cells));
    }
    return table;
}

Table step_times_table(const std::vector<Measurement>& measurements, const Labels& labels) {
    Table table({{"run", "run"},
                 {"ranks", "ranks"},
                 {"steps", "steps"},
                 {"shortest", "shortest"},
                 {"median", "median"},
                 {"interval", "95 % interval of the median"},
                 {"p95", "95 % take at most"},
                 {"p99", "99 % take at most"},
                 {"longest", "longest"}});
    for (std::size_t i = 0; i < measurements.size(); ++i) {
        const Measurement& one = measurements[i];
        std::vector<double> times;
        for (const StepSample& step : one.steps)
            if (std::isfinite(step.slowest)) times.push_back(step.slowest);
        if (one.imported || times.empty()) continue;
        table.add_row({labels[i], one.ranks, static_cast<std::int64_t>(times.size()), short_seconds(quantile(times, 0)),
                       short_seconds(median(times)), interval_cell(one.step_interval()),
                       short_seconds(quantile(times, 0.95)), short_seconds(quantile(times, 0.99)),
                       short_seconds(quantile(times, 1))});
    }
    return table;
}

Table losses_table(const std::vector<Measurement>& measurements, const Labels& labels) {
    Table table({{"run", "run"},
                 {"steps", "steps"},
                 {"first", "first loss", 4},
                 {"last", "last loss", 4},
                 {"lowest", "lowest loss", 4},
                 {"at", "at step"},
                 {"validation", "last validation loss", 4},
                 {"validation_at", "at step"},
                 {"bits", "bits per byte", 4},
                 {"best", "lowest validation loss", 4},
                 {"best_at", "at step"}});
    for (std::size_t i = 0; i < measurements.size(); ++i) {
        const Validations& validations = measurements[i].validations;
        std::vector<std::pair<std::int64_t, double>> losses;
        for (const auto& loss : measurements[i].losses)
            if (std::isfinite(loss.second)) losses.push_back(loss);
        if (losses.empty()) continue;
        const auto lowest = *std::min_element(losses.begin(), losses.end(),
                                              [](const auto& a, const auto& b) { return a.second < b.second; });
        std::vector<Cell> cells = {labels[i],
                                   static_cast<std::int64_t>(losses.size()),
                                   losses.front().second,
                                   losses.back().second,
                                   lowest.second,
                                   lowest.first};
        if (!validations.empty()) {
            const Validation &last = validations.back(), &best = best_of(validations);
            for (Cell cell :
                 {Cell(last.loss), Cell(last.step), known(last.bits_per_byte), Cell(best.loss), Cell(best.step)})
                cells.push_back(std::move(cell));
        }
        cells.resize(table.columns().size());
        table.add_row(std::move(cells));
    }
    return without_empty_columns(table);
}

Table ranks_table(const std::vector<Measurement>& measurements, const Labels& labels) {
    Table table({{"run", "run"},
                 {"ranks", "ranks"},
                 {"fastest", "least computation per step"},
                 {"mean", "mean"},
                 {"slowest", "most"},
                 {"rank", "by rank"},
                 {"allocated", "allocated, most"},
                 {"reserved", "reserved, most"},
                 {"smallest", "peak, lowest rank"},
                 {"peak", "peak, highest rank"}});
    for (std::size_t i = 0; i < measurements.size(); ++i) {
        const Measurement& one = measurements[i];
        double least = INFINITY, most = 0, sum = 0, allocated = 0, reserved = 0, lowest = INFINITY, highest = 0;
        std::int64_t count = 0, slowest = -1;
        for (std::size_t r = 0; r < one.rank.size(); ++r) {
            const RankMeasurement& rank = one.rank[r];
            if (!rank.present) continue;
            allocated = std::max(allocated, static_cast<double>(rank.allocated));
            reserved = std::max(reserved, static_cast<double>(rank.reserved));
            lowest = std::min(lowest, static_cast<double>(rank.peak));
            highest = std::max(highest, static_cast<double>(rank.peak));
            if (!std::isfinite(rank.compute)) continue;
            least = std::min(least, rank.compute);
            sum += rank.compute;
            ++count;
            if (rank.compute > most) most = rank.compute, slowest = static_cast<std::int64_t>(r);
        }
        if (count == 0 && highest <= 0) continue;
        table.add_row({labels[i], one.ranks, seconds_cell(count > 0 ? least : unknown),
                       seconds_cell(count > 0 ? sum / static_cast<double>(count) : unknown),
                       seconds_cell(count > 0 ? most : unknown), slowest >= 0 && one.ranks > 1 ? Cell(slowest) : Cell(),
                       bytes_cell(allocated), bytes_cell(reserved), bytes_cell(lowest), bytes_cell(highest)});
    }
    return without_empty_columns(table);
}

}  // namespace lockstep::analysis
