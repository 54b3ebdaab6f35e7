#include "analysis/compare/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "analysis/output/values.hpp"
#include "base/error.hpp"
#include "base/format.hpp"

namespace lockstep::analysis {
namespace {

constexpr std::uint64_t seed = 1;      // the same runs give the same intervals
constexpr double least_share = 0.001;  // of a step: what differs by less is not worth a word

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
        enough_resamples(samples[0].size() + samples[1].size()));
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
    if (!run.validations.empty()) {
        one.last_validation = run.validations.back();
        one.best_validation = best_of(run.validations);
    }
    for (const RankMeasurement& rank : run.rank) one.peak = std::max(one.peak, rank.peak);
    return one;
}

std::vector<double> steps_of(const Measurement& run, bool by_token) {
    std::vector<double> samples;
    for (const StepSample& step : run.steps) samples.push_back(by_token ? step.slowest / step.tokens : step.slowest);
    return samples;
}

// Of a step or of the whole run; unknown where nobody counted them.
double tokens_of(const Measurement& run, bool of_run) {
    if (of_run) return run.all_tokens > 0 ? run.all_tokens : unknown;
    std::vector<double> tokens;
    for (const StepSample& step : run.steps) tokens.push_back(step.tokens);
    const double middle = median(std::move(tokens));
    return middle > 0 ? middle : unknown;
}

bool differ(double a, double b) {
    return std::abs(b / a - 1) > 1e-9;
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

std::vector<double> total_of(const Measurement& run, bool by_token) {
    if (!(run.total_seconds > 0)) return {};
    return {by_token ? run.total_seconds / run.all_tokens : run.total_seconds};
}

double least_difference_of(const CompareRow& step) {
    const Interval& interval = step.ratio_interval;
    if (!interval.known()) return unknown;
    return std::max((interval.high - interval.low) / (2 * step.ratio), least_share) *
           std::min(step.a.seconds, step.b.seconds);
}

// Below `least` seconds slower and faster are not told apart.
void leave_out_small(CompareRow& row, double least) {
    const bool differs = row.finding == Finding::slower || row.finding == Finding::faster;
    if (differs && std::abs(row.difference) < least) row.finding = Finding::negligible;
}

// Means over the whole run where it is compared as a whole, and of what lies outside the steps.
void add_rows(Comparison& comparison, const Measurement& a, const Measurement& b) {
    const bool as_runs = a.imported || b.imported;
    const auto whole = [&](const std::string& name, bool by_token) {
        return as_runs ? row_of(name, name, total_of(a, by_token), total_of(b, by_token))
                       : row_of(name, name, steps_of(a, by_token), steps_of(b, by_token));
    };
    comparison.whole = whole(as_runs ? "run" : "step", false);
    if (!as_runs) comparison.least_difference = least_difference_of(comparison.whole);
    leave_out_small(comparison.whole, least_share * comparison.whole.a.seconds);
    if (differ(tokens_of(a, as_runs), tokens_of(b, as_runs))) {
        comparison.undivided = std::move(comparison.whole);
        comparison.whole = whole("token", true);
        leave_out_small(comparison.whole, least_share * comparison.whole.a.seconds);
    }
    for (std::size_t p = 0; p < phase_count; ++p) {
        const bool of_run = as_runs || is_outside_steps(static_cast<Phase>(p));
        CompareRow row =
            row_of(phase_names[p], of_run ? "run" : "step", phase_of(a, p, of_run), phase_of(b, p, of_run));
        if (!of_run) leave_out_small(row, comparison.least_difference);
        if (row.a.present || row.b.present) comparison.phases.push_back(std::move(row));
    }
    // The rest of a run of which no part is known is the run.
    const bool only_rest = comparison.phases.size() == 1 &&
                           comparison.phases.front().name == phase_names[static_cast<std::size_t>(Phase::other)];
    if (as_runs && only_rest) comparison.phases.clear();
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

void add_validations(Comparison& comparison, const Measurement& a, const Measurement& b) {
    auto of_a = a.validations.rbegin();
    auto of_b = b.validations.rbegin();
    while (of_a != a.validations.rend() && of_b != b.validations.rend() && of_a->step != of_b->step)
        if (of_a->step > of_b->step)
            ++of_a;
        else
            ++of_b;
    if (of_a == a.validations.rend() || of_b == b.validations.rend()) return;
    comparison.a.common_validation = *of_a;
    comparison.b.common_validation = *of_b;
}

void add_remarks(Comparison& comparison, const Measurement& a, const Measurement& b) {
    auto& remarks = comparison.remarks;
    const auto both = [&](const auto& add) {
        add("A", a);
        add("B", b);
    };
    if (a.imported != b.imported)
        remarks.push_back(fmt::format(
            "{} is imported and covers the whole run, so the figures of the other do too, warm-up included.",
            a.imported ? "A" : "B"));
    else if (a.imported)
        remarks.emplace_back("Both are imported: one value per run, so there is no interval.");
    if (comparison.undivided) {
        const std::string& name = comparison.undivided->name;
        const bool of_run = name == "run";
        remarks.push_back(fmt::format(
            "A {} has {} tokens in A and {} in B: the two are compared per token. Times of a {} and of its phases "
            "cover different work.",
            name, whole_words(tokens_of(a, of_run)), whole_words(tokens_of(b, of_run)), name));
    }
    if (std::any_of(comparison.phases.begin(), comparison.phases.end(),
                    [](const CompareRow& row) { return row.finding == Finding::negligible; }))
        remarks.push_back(fmt::format(
            "A phase counts as slower or faster only if it differs by at least {} per step: half the width of the "
            "steps' 95 % interval, and at least 0.1 % of a step. Smaller differences are not counted.",
            human_seconds(comparison.least_difference)));
    both([&](const char* letter, const Measurement& run) {
        if (run.imported) return;
        if (run.timed_steps == 0 && !run.steps.empty())
            remarks.push_back(fmt::format("{}: no step was timed phase by phase.", letter));
        else if (run.timed_steps < static_cast<std::int64_t>(run.steps.size()))
            remarks.push_back(
                fmt::format("{}: phase times come from the {} of {} steps that were timed phase by phase.", letter,
                            run.timed_steps, run.steps.size()));
    });
    const auto &of_a = comparison.a.common_validation, &of_b = comparison.b.common_validation;
    if (of_a && of_b && of_a->tokens != of_b->tokens)
        remarks.push_back(
            fmt::format("A was validated on {} tokens, B on {}: the validation losses are not over the same tokens.",
                        with_commas(of_a->tokens), with_commas(of_b->tokens)));
    both([&](const char* letter, const Measurement& run) {
        for (const std::string& remark : run.remarks) remarks.push_back(fmt::format("{}: {}", letter, remark));
    });
}

std::string percent(double ratio) {
    return fmt::format("{} % {}", fixed_words(100 * std::abs(ratio - 1), 1), ratio < 1 ? "faster" : "slower");
}

Verdict verdict_of(const Comparison& comparison, double allowed) {
    Verdict verdict;
    verdict.allowed = allowed;
    const CompareRow& row = comparison.whole;
    double ratio = row.ratio;
    std::string by = "by the median step";
    verdict.per = row.of;
    if (comparison.undivided)
        by = comparison.undivided->of == "run" ? "by seconds per token over the whole run"
                                               : "by the median step's seconds per token";
    else if (row.of == "run")
        by = "by the time of the whole run";
    if (!std::isfinite(ratio)) {
        ratio = comparison.a.tokens_per_second / comparison.b.tokens_per_second;
        by = "by tokens/s";
        verdict.per = "token";
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
            "{}, {} the {} allowed. There is no interval ({} and {} samples; each run needs {}): this compares two "
            "single numbers.",
            is, beyond ? "more than" : "within", share, row.a.samples, row.b.samples, fewest_samples);
        return verdict;
    }
    const std::string range = fmt::format("ratio {}, 95 % interval {} to {}", fixed_words(ratio, 4),
                                          fixed_words(interval.low, 4), fixed_words(interval.high, 4));
    if (!beyond) {
        verdict.sentence = fmt::format("{} ({}), within the {} allowed.", is, range, share);
    } else if (interval.low > 1 + allowed) {
        verdict.slower = true;
        verdict.sentence = fmt::format(
            "{} ({}), more than the {} allowed, and so is the whole interval: clearly slower.", is, range, share);
    } else if (interval.low > 1) {
        verdict.sentence = fmt::format(
            "{} ({}): the median is slower by more than {}, but the interval does not rule out less, so this does not "
            "count as slower.",
            is, range, share);
    } else {
        verdict.sentence = fmt::format(
            "{} ({}), more than the {} allowed, but the interval contains 1: this is within the noise and does not "
            "count as slower.",
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
    add_validations(comparison, a, b);
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

}  // namespace lockstep::analysis
