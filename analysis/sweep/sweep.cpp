#include "analysis/sweep/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>

#include "analysis/load/series.hpp"
#include "analysis/output/values.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/plural.hpp"

namespace lockstep::analysis {
namespace {

constexpr double unequal = 0.01;  // share by which work may differ and still be called the same

std::optional<double> as_number(const std::string& value) {
    char* end = nullptr;
    const double number = std::strtod(value.c_str(), &end);
    if (value.empty() || *end != '\0' || !std::isfinite(number)) return std::nullopt;
    return number;
}

// Numbers by value, then words, then missing values.
bool comes_before(const std::string& a, const std::string& b) {
    const auto first = as_number(a), second = as_number(b);
    if (first && second && *first != *second) return *first < *second;
    if (first.has_value() != second.has_value()) return first.has_value();
    if (a.empty() != b.empty()) return b.empty();
    return a < b;
}

std::string last_part(const std::string& key) {
    return key.substr(key.rfind('.') + 1);
}

// Short names that are ambiguous.
const std::map<std::string, std::string>& short_names() {
    static const std::map<std::string, std::string> names = {{"batch", "batch.global"},
                                                             {"context", "parallel.context"},
                                                             {"precision", "precision.compute"},
                                                             {"accumulation", "accumulation"},
                                                             {"micro_batch", "micro_batch"}};
    return names;
}

// The full name of a setting that at least one run has.
std::string resolve(const std::vector<Measurement>& all, const std::string& asked) {
    std::set<std::string> known;
    for (const Measurement& run : all)
        for (const auto& [key, value] : run.settings)
            if (!value.empty()) known.insert(key);
    const auto found = short_names().find(asked);
    std::string name = found == short_names().end() ? asked : found->second;
    if (known.count(name) > 0) return name;
    std::vector<std::string> ending, names;
    for (const std::string& key : known) {
        if (last_part(key) == asked) ending.push_back(key);
        names.push_back(key);
        names.push_back(last_part(key));
    }
    if (ending.size() == 1) return ending.front();
    if (ending.size() > 1)
        throw usage_error("--by {}: ambiguous between {}; give the full name", asked, fmt::join(ending, ", "));
    if (found != short_names().end())
        throw usage_error("--by {}: none of these runs has this setting; name two that they have with --by", asked);
    for (const auto& [shorter, longer] : short_names())
        if (known.count(longer) > 0) names.push_back(shorter);
    const std::string nearest = nearest_name(asked, names);
    throw usage_error("--by {}: no run has this setting{}", asked,
                      nearest.empty() ? "; names are those of a run description, such as batch.length"
                                      : fmt::format(" (did you mean {}?)", nearest));
}

double of_phases(const PhaseSums& sums, double unknown_where_nothing) {
    double seconds = 0, calls = 0;
    for (std::size_t p = 0; p < phase_count; ++p) {
        const auto phase = static_cast<Phase>(p);
        if (phase == Phase::initialization || phase == Phase::validation || phase == Phase::checkpoint) continue;
        seconds += sums.seconds[p];
        calls += sums.calls[p];
    }
    return calls > 0 || seconds > 0 ? seconds : unknown_where_nothing;
}

SweepPhase phase_of(const Measurement& run, Phase phase) {
    const auto p = static_cast<std::size_t>(phase);
    if (!(run.whole_run.calls[p] > 0)) return {};
    // An imported time counts as one call: the table does not say how many it sums.
    const double mean_per_call = run.imported ? unknown : run.whole_run.seconds[p] / run.whole_run.calls[p];
    return {run.whole_run.seconds[p], mean_per_call};
}

// Whether forward, loss and backward were timed in some steps only: on a GPU phases overlap in most.
bool partly_timed(const Measurement& run) {
    return !run.imported && run.timed_steps < static_cast<std::int64_t>(run.steps.size());
}

double positive(double value) {
    return value > 0 ? value : unknown;
}

SweepRow row_of(const Measurement& run) {
    SweepRow row;
    row.total = positive(run.total_seconds);
    // The time in steps of an imported run is known only if the table lists everything else.
    const bool divided = !run.imported || run.whole_run.calls[static_cast<std::size_t>(Phase::validation)] > 0;
    if (!run.imported) row.train = positive(run.all_step_seconds);
    if (divided) row.epoch = of_phases(run.whole_run, unknown);
    row.validation = phase_of(run, Phase::validation);
    row.backward = phase_of(run, Phase::backward);
    row.loss = phase_of(run, Phase::loss);
    row.forward = phase_of(run, Phase::forward);
    if (partly_timed(run)) row.backward.sum = row.loss.sum = row.forward.sum = unknown;
    if (!run.imported) {
        row.step_seconds = run.step_seconds();
        row.step_interval = run.step_interval();
    }
    row.tokens_per_second = run.tokens_per_second();
    row.tokens = positive(run.all_tokens);
    return row;
}

// Medians of every figure over the runs of one pair.
SweepRow median_row(const std::vector<SweepRow>& rows) {
    if (rows.size() == 1) return rows.front();
    const auto of = [&](const auto& member) {
        std::vector<double> values;
        for (const SweepRow& row : rows) values.push_back(member(row));
        return median(std::move(values));
    };
    const auto phase = [&](SweepPhase SweepRow::*member) {
        return SweepPhase{of([&](const SweepRow& row) { return (row.*member).sum; }),
                          of([&](const SweepRow& row) { return (row.*member).mean_per_call; })};
    };
    SweepRow row;
    for (double SweepRow::*member : {&SweepRow::total, &SweepRow::train, &SweepRow::epoch, &SweepRow::step_seconds,
                                     &SweepRow::tokens_per_second, &SweepRow::tokens})
        row.*member = of([&](const SweepRow& one) { return one.*member; });
    for (SweepPhase SweepRow::*member :
         {&SweepRow::validation, &SweepRow::backward, &SweepRow::loss, &SweepRow::forward})
        row.*member = phase(member);
    std::vector<double> medians;
    for (const SweepRow& one : rows) medians.push_back(one.step_seconds);
    // The spread of one run's steps is not the spread between runs.
    row.step_interval = median_interval(std::move(medians));
    return row;
}

void make_rows(Sweep& sweep, const std::vector<Measurement>& all, const std::array<std::string, 2>& settings) {
    const auto before = [](const auto& a, const auto& b) {
        for (std::size_t k = 0; k < 2; ++k)
            if (a[k] != b[k]) return comes_before(a[k], b[k]);
        return false;
    };
    std::map<std::array<std::string, 2>, std::vector<std::size_t>, decltype(before)> pairs(before);
    for (std::size_t i = 0; i < all.size(); ++i)
        pairs[{all[i].setting(settings[0]), all[i].setting(settings[1])}].push_back(i);
    for (const auto& [values, runs] : pairs) {
        std::vector<SweepRow> rows;
        for (const std::size_t run : runs) rows.push_back(row_of(all[run]));
        SweepRow row = median_row(rows);
        row.values = values;
        row.runs = runs;
        sweep.rows.push_back(std::move(row));
    }
}

// Seconds scaled to the largest number of tokens of any row, if all are known.
void compare_work(Sweep& sweep) {
    double least = unknown, most = unknown;
    for (const SweepRow& row : sweep.rows) {
        if (!(row.tokens > 0)) return;
        if (!(least <= row.tokens)) least = row.tokens;
        if (!(most >= row.tokens)) most = row.tokens;
    }
    sweep.by_equal_work = most > least * (1 + unequal);
    std::size_t undivided = 0;
    for (SweepRow& row : sweep.rows) {
        // One-time work such as initialization does not grow with tokens.
        const double in_steps = row.train > 0 ? std::min(row.train, row.total) : row.total;
        row.equal_work = in_steps * (most / row.tokens) + (row.total - in_steps);
        if (!(row.train > 0)) ++undivided;
    }
    if (!sweep.by_equal_work) return;
    std::string how = "each run's seconds in steps are scaled by its tokens, the rest of its total counts once";
    if (undivided == sweep.rows.size())
        how = "each run's total is scaled by its tokens";
    else if (undivided > 0)
        how += "; where the seconds in steps are not known, the total is scaled";
    sweep.remarks.push_back(fmt::format(
        "The runs did not do the same work ({} to {} tokens): the best by time is the one with the shortest time for "
        "{} tokens; {}.",
        whole_words(least), whole_words(most), whole_words(most), how));
}

double time_of(const Sweep& sweep, const SweepRow& row) {
    return sweep.by_equal_work ? row.equal_work : row.total;
}

void find_best(Sweep& sweep) {
    std::size_t rates = 0, times = 0;
    for (std::size_t i = 0; i < sweep.rows.size(); ++i) {
        const SweepRow& row = sweep.rows[i];
        const double time = time_of(sweep, row);
        if (std::isfinite(time)) {
            ++times;
            if (!sweep.best_by_time || time < time_of(sweep, sweep.rows[*sweep.best_by_time])) sweep.best_by_time = i;
        }
        if (std::isfinite(row.tokens_per_second)) {
            ++rates;
            if (!sweep.best_by_throughput ||
                row.tokens_per_second > sweep.rows[*sweep.best_by_throughput].tokens_per_second)
                sweep.best_by_throughput = i;
        }
    }
    const auto of_all = [&](std::size_t known, const char* what) {
        return known == sweep.rows.size() ? std::string()
                                          : fmt::format("; the {} of {} setting{} is unknown", what,
                                                        sweep.rows.size() - known, plural(sweep.rows.size() - known));
    };
    if (sweep.best_by_time) {
        const SweepRow& row = sweep.rows[*sweep.best_by_time];
        sweep.sentences.push_back(fmt::format("Best by time: {}, {} s{}{}.", name_of(row),
                                              fixed_words(time_of(sweep, row), 2),
                                              sweep.by_equal_work ? " for equal work" : "", of_all(times, "time")));
    } else {
        sweep.sentences.emplace_back("Best by time: unknown; no run has a time.");
    }
    if (sweep.best_by_throughput) {
        const SweepRow& row = sweep.rows[*sweep.best_by_throughput];
        sweep.sentences.push_back(fmt::format("Best by throughput: {}, {} tokens/s{}.", name_of(row),
                                              whole_words(row.tokens_per_second), of_all(rates, "rate")));
    } else {
        sweep.sentences.emplace_back("Best by throughput: unknown; no run has a rate.");
    }
}

std::string work_words(const SweepRow& row) {
    return fmt::format("{}: {} s × {} tokens/s = {} tokens", name_of(row), fixed_words(row.total, 2),
                       whole_words(row.tokens_per_second), whole_words(row.total * row.tokens_per_second));
}

// Time × rate is the work: the rows with the least and the most.
void explain(Sweep& sweep) {
    const SweepRow *least = nullptr, *most = nullptr;
    const auto work = [](const SweepRow& row) { return row.total * row.tokens_per_second; };
    for (const SweepRow& row : sweep.rows) {
        if (!std::isfinite(work(row))) continue;
        if (!least || work(row) < work(*least)) least = &row;
        if (!most || work(row) > work(*most)) most = &row;
    }
    const bool differs = least && work(*most) > work(*least) * (1 + unequal);
    // With steps and tokens counted, time outside steps is known, and time × rate need not be the work.
    const bool measured = std::all_of(sweep.rows.begin(), sweep.rows.end(),
                                      [](const SweepRow& row) { return row.tokens > 0 && row.train > 0; });
    const bool two_best =
        sweep.best_by_time && sweep.best_by_throughput && *sweep.best_by_time != *sweep.best_by_throughput;
    if (two_best) {
        const SweepRow& fast = sweep.rows[*sweep.best_by_time];
        const SweepRow& rate = sweep.rows[*sweep.best_by_throughput];
        std::string why;
        if (!std::isfinite(fast.tokens_per_second))
            why = fmt::format(" The rate of {} is unknown: {} is the best of those that have one.", name_of(fast),
                              name_of(rate));
        else if (measured)
            why = fmt::format(" The rate is of steps after the warm-up; {} spent {} s outside its steps, {} {} s.",
                              name_of(fast), fixed_words(fast.total - fast.train, 2), name_of(rate),
                              fixed_words(rate.total - rate.train, 2));
        else if (differs)
            why = " Time × rate, the work, differs between the runs.";
        else
            why = " Time × rate agrees within 1 %, so the two are practically equal.";
        sweep.sentences.push_back(fmt::format("The two differ: {} takes {} s, {} takes {} s.{}", name_of(fast),
                                              fixed_words(time_of(sweep, fast), 2), name_of(rate),
                                              fixed_words(time_of(sweep, rate), 2), why));
    }
    if (differs && !measured)
        sweep.remarks.push_back(
            fmt::format("Time × rate differs by {} % ({}; {}). Either the runs did not do the same work, or their "
                        "rates leave out a part of the time: initialization, warm-up, validation, checkpoints.",
                        fixed_words(100 * (work(*most) / work(*least) - 1), 0), work_words(*least), work_words(*most)));
}

// What follows from the two settings by the arithmetic of batches and ranks: batch = replicas × micro-batch × passes.
bool follows(const std::string& key, const std::array<std::string, 2>& settings) {
    const auto is_key = [&](const char* name) { return settings[0] == name || settings[1] == name; };
    if (settings[0] == key || settings[1] == key) return true;
    if (key == "accumulation" || key == "batch.accumulation" || key == "micro_batch") return true;
    if (key == "batch.micro") return is_key("accumulation") || is_key("micro_batch") || is_key("batch.accumulation");
    if (key == "hosts" || key == "parallel.data") return is_key("ranks");
    return false;
}

void remark_differences(Sweep& sweep, const std::vector<Measurement>& all, const std::array<std::string, 2>& settings) {
    std::vector<const Measurement*> runs;
    for (const Measurement& run : all) runs.push_back(&run);
    for (const Difference& difference : differences_of(runs)) {
        if (follows(difference.key, settings)) continue;
        sweep.remarks.push_back(fmt::format("The runs also differ in {}.", words_of(difference)));
    }
    // A remark on several runs is printed once.
    std::vector<std::pair<std::string, std::string>> said;
    const auto say = [&](const std::string& name, const std::string& remark) {
        const auto found = std::find_if(said.begin(), said.end(), [&](const auto& one) { return one.first == remark; });
        if (found == said.end())
            said.emplace_back(remark, name);
        else
            found->second.append(", ").append(name);
    };
    for (const Measurement& run : all) {
        for (const std::string& remark : run.remarks) say(run.name, remark);
        if (partly_timed(run) && run.whole_run.has_step_phases())
            say(run.name,
                fmt::format("{} of {} measured steps were timed phase by phase: forward, loss and backward have no "
                            "total, and their means cover only the timed calls.",
                            run.timed_steps, run.steps.size()));
    }
    for (const auto& [remark, names] : said) sweep.remarks.push_back(names + ": " + remark);
}

}  // namespace

std::string name_of(const SweepRow& row) {
    const auto shown = [](const std::string& value) { return value.empty() ? std::string("-") : value; };
    return shown(row.values[0]) + " × " + shown(row.values[1]);
}

Sweep sweep_of(const std::vector<Measurement>& measurements, const std::vector<std::string>& keys) {
    if (keys.size() != 2) throw usage_error("--by takes two settings, {} given: --by batch,accumulation", keys.size());
    Sweep sweep;
    std::array<std::string, 2> settings;
    for (std::size_t k = 0; k < 2; ++k) {
        sweep.keys[k] = keys[k];
        settings[k] = resolve(measurements, keys[k]);
    }
    if (settings[0] == settings[1])
        throw usage_error("--by {},{}: both are the setting {}; name two", keys[0], keys[1], settings[0]);
    make_rows(sweep, measurements, settings);
    compare_work(sweep);
    find_best(sweep);
    explain(sweep);
    remark_differences(sweep, measurements, settings);
    if (std::any_of(sweep.rows.begin(), sweep.rows.end(), [](const auto& row) { return row.runs.size() > 1; }))
        sweep.remarks.emplace_back(
            "Settings with several runs show the median over their runs; the step interval is then that of the runs' "
            "medians, if there are 6 or more.");
    return sweep;
}

}  // namespace lockstep::analysis
