#include "analysis/compare/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "base/error.hpp"
#include "base/format.hpp"

namespace lockstep::analysis {
namespace {

constexpr std::uint64_t seed = 1;  // the same runs give the same intervals

bool is_outside_steps(Phase phase) {
    return phase == Phase::initialization || phase == Phase::validation || phase == Phase::checkpoint;
}

std::vector<double> finite(std::vector<double> samples) {
    samples.erase(std::remove_if(samples.begin(), samples.end(), [](double one) { return !std::isfinite(one); }),
                  samples.end());
    return samples;
}

Figure figure_of(const std::vector<double>& samples) {
    Figure figure;
    figure.samples = samples.size();
    figure.seconds = median(samples);
    figure.interval = median_interval(samples);
    figure.present = std::any_of(samples.begin(), samples.end(), [](double one) { return one > 0; });
    return figure;
}

// Of long runs fewer: their intervals are narrow, and a median of each resample takes time.
int resamples_of(std::size_t samples) {
    constexpr std::size_t most_work = 20'000'000, fewest = 200;
    return static_cast<int>(
        std::clamp(most_work / std::max<std::size_t>(samples, 1), fewest, std::size_t{usual_resamples}));
}

CompareRow row_of(std::string name, std::string of, const std::vector<double>& in_a, const std::vector<double>& in_b) {
    CompareRow row;
    row.name = std::move(name);
    row.of = std::move(of);
    const Groups samples = {finite(in_a), finite(in_b)};
    row.a = figure_of(samples[0]);
    row.b = figure_of(samples[1]);
    if (row.a.present != row.b.present) {
        row.finding = row.a.present ? Finding::only_a : Finding::only_b;
        return row;
    }
    row.difference = row.b.seconds - row.a.seconds;
    if (row.a.seconds > 0) row.ratio = row.b.seconds / row.a.seconds;
    row.ratio_interval = bootstrap_interval(
        samples, [](const Groups& drawn) { return median(drawn[1]) / median(drawn[0]); }, seed, Resample::blocks,
        resamples_of(samples[0].size() + samples[1].size()));
    if (row.ratio_interval.known())
        row.finding = row.ratio_interval.low > 1    ? Finding::slower
                      : row.ratio_interval.high < 1 ? Finding::faster
                                                    : Finding::within_noise;
    return row;
}

ComparedRun run_of(const Measurement& run) {
    ComparedRun one;
    one.path = run.path;
    one.name = run.name;
    one.ranks = run.ranks;
    one.steps = static_cast<std::int64_t>(run.steps.size());
    one.warm_up = run.warm_up;
    one.timed_steps = run.timed_steps;
    one.imported = run.imported;
    one.tokens_per_second = run.tokens_per_second();
    for (const RankMeasurement& rank : run.rank) one.peak = std::max(one.peak, rank.peak);
    return one;
}

std::vector<double> steps_of(const Measurement& run) {
    std::vector<double> samples;
    for (const StepSample& step : run.steps) samples.push_back(step.slowest);
    return samples;
}

std::vector<double> phase_of(const Measurement& run, std::size_t phase, bool whole_run) {
    if (!whole_run) {
        std::vector<double> samples;
        for (const StepSample& step : run.steps) samples.push_back(step.phases[phase]);
        return samples;
    }
    if (!(run.whole_run.calls[phase] > 0) && !(run.whole_run.seconds[phase] > 0)) return {};
    return {run.whole_run.seconds[phase]};
}

std::vector<double> total_of(const Measurement& run) {
    if (!(run.total_seconds > 0)) return {};
    return {run.total_seconds};
}

// Means over the whole run where it is compared as a whole, and of what lies outside the steps.
void add_rows(Comparison& comparison, const Measurement& a, const Measurement& b) {
    const bool as_runs = a.imported || b.imported;
    comparison.whole =
        as_runs ? row_of("run", "run", total_of(a), total_of(b)) : row_of("step", "step", steps_of(a), steps_of(b));
    for (std::size_t p = 0; p < phase_count; ++p) {
        const bool of_run = as_runs || is_outside_steps(static_cast<Phase>(p));
        CompareRow row =
            row_of(phase_names[p], of_run ? "run" : "step", phase_of(a, p, of_run), phase_of(b, p, of_run));
        if (row.a.present || row.b.present) comparison.phases.push_back(std::move(row));
    }
}

void add_losses(Comparison& comparison, const Measurement& a, const Measurement& b) {
    std::map<std::int64_t, double> of_a;
    for (const auto& [step, loss] : a.losses)
        if (std::isfinite(loss)) of_a[step] = loss;
    for (const auto& [step, loss] : b.losses) {
        const auto found = of_a.find(step);
        if (found == of_a.end() || !std::isfinite(loss)) continue;
        if (comparison.last_common_step && *comparison.last_common_step > step) continue;
        comparison.last_common_step = step;
        comparison.a.loss = found->second;
        comparison.b.loss = loss;
    }
}

double tokens_of_a_step(const Measurement& run) {
    std::vector<double> tokens;
    for (const StepSample& step : run.steps) tokens.push_back(step.tokens);
    return median(std::move(tokens));
}

void add_remarks(Comparison& comparison, const Measurement& a, const Measurement& b) {
    auto& remarks = comparison.remarks;
    const auto both = [&](const auto& add) {
        add("A", a);
        add("B", b);
    };
    if (a.imported != b.imported)
        remarks.push_back(fmt::format(
            "{} is imported: its figures are of the whole run, so those of the other are, too, its warm-up included.",
            a.imported ? "A" : "B"));
    else if (a.imported)
        remarks.emplace_back("Both are imported: a single value of each run, so no interval.");
    const double tokens_a = tokens_of_a_step(a), tokens_b = tokens_of_a_step(b);
    if (tokens_a > 0 && tokens_b > 0 && std::abs(tokens_b / tokens_a - 1) > 1e-9)
        remarks.push_back(fmt::format(
            "A {} of A has {} tokens, of B {}: its seconds are not of the same work. The tokens/s compare.",
            comparison.whole.name, with_commas(std::llround(tokens_a)), with_commas(std::llround(tokens_b))));
    both([&](const char* letter, const Measurement& run) {
        if (run.imported) return;
        if (run.timed_steps == 0 && !run.steps.empty())
            remarks.push_back(fmt::format("{}: no step was timed phase by phase.", letter));
        else if (run.timed_steps < static_cast<std::int64_t>(run.steps.size()))
            remarks.push_back(fmt::format("{}: phases are of the {} of {} steps that were timed phase by phase.",
                                          letter, run.timed_steps, run.steps.size()));
    });
    both([&](const char* letter, const Measurement& run) {
        for (const std::string& remark : run.remarks) remarks.push_back(fmt::format("{}: {}", letter, remark));
    });
}

std::string percent(double ratio) {
    return fmt::format("{:.1f} % {}", 100 * std::abs(ratio - 1), ratio < 1 ? "faster" : "slower");
}

Verdict verdict_of(const Comparison& comparison, double allowed) {
    Verdict verdict;
    verdict.allowed = allowed;
    const CompareRow& row = comparison.whole;
    double ratio = row.ratio;
    std::string by = fmt::format("by the median {}", row.name);
    if (row.of == "run") by = "by the time of the whole run";
    if (!std::isfinite(ratio)) {
        ratio = comparison.a.tokens_per_second / comparison.b.tokens_per_second;
        by = "by the tokens/s";
    }
    if (!std::isfinite(ratio))
        throw usage_error("--slower-than: {} and {} have neither times nor rates that can be compared",
                          comparison.a.path, comparison.b.path);
    const std::string share = fmt::format("{:.4g} %", 100 * allowed);
    const bool beyond = ratio > 1 + allowed;
    const Interval& interval = row.ratio_interval;
    const std::string is = fmt::format("B is {} than A {}", percent(ratio), by);
    if (!interval.known()) {
        verdict.slower = beyond;
        verdict.sentence = fmt::format(
            "{}, {} the {} allowed. There is no interval ({} and {} samples; it takes {} of both): this is by the two "
            "numbers alone.",
            is, beyond ? "more than" : "within", share, row.a.samples, row.b.samples, fewest_samples);
        return verdict;
    }
    const std::string range =
        fmt::format("ratio {:.4f}, 95 % interval {:.4f} to {:.4f}", ratio, interval.low, interval.high);
    if (!beyond) {
        verdict.sentence = fmt::format("{} ({}), within the {} allowed.", is, range, share);
    } else if (interval.low > 1) {
        verdict.slower = true;
        verdict.sentence = fmt::format("{} ({}), more than the {} allowed, and clearly slower.", is, range, share);
    } else {
        verdict.sentence = fmt::format(
            "{} ({}), more than the {} allowed, but the interval holds 1: this is within the noise and does not count.",
            is, range, share);
    }
    return verdict;
}

}  // namespace

Comparison compare(const Measurement& a, const Measurement& b, std::optional<double> slower_than) {
    Comparison comparison;
    comparison.a = run_of(a);
    comparison.b = run_of(b);
    add_rows(comparison, a, b);
    add_losses(comparison, a, b);
    comparison.settings = differences_of({&a, &b});
    add_remarks(comparison, a, b);
    if (slower_than) comparison.verdict = verdict_of(comparison, *slower_than);
    return comparison;
}

double share_of_words(const std::string& words) {
    std::string digits = words;
    const bool percent_sign = !digits.empty() && digits.back() == '%';
    if (percent_sign) digits.pop_back();
    char* end = nullptr;
    const double number = std::strtod(digits.c_str(), &end);
    const bool whole = !digits.empty() && *end == '\0' && std::isfinite(number) && number >= 0;
    if (!whole) throw usage_error("--slower-than is '{}'; it takes a share: 5% or 0.05", words);
    if (percent_sign) return number / 100;
    if (number > 1)
        throw usage_error("--slower-than {} would be {} %; write {}% or {}", words, 100 * number, words, number / 100);
    return number;
}

std::string words_of(Finding finding) {
    switch (finding) {
        case Finding::slower:
            return "B is slower";
        case Finding::faster:
            return "B is faster";
        case Finding::within_noise:
            return "within the noise";
        case Finding::no_interval:
            return "no interval";
        case Finding::only_a:
            return "only A has it";
        case Finding::only_b:
            return "only B has it";
    }
    return "";
}

}  // namespace lockstep::analysis
