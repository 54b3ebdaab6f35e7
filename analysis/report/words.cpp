// The report's sentences.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "analysis/report/report.hpp"
#include "analysis/report/text.hpp"
#include "base/plural.hpp"

namespace lockstep::analysis {
namespace {

constexpr double hardly_limits = 0.97;      // a factor above it is not called a limit
constexpr double limits_too = 0.9;          // one below it is named, though another is lower
constexpr double claims_differ_by = 0.025;  // readings closer than this are not told apart in a sentence

std::string ranks_in_words(std::int64_t ranks) {
    return fmt::format("{} rank{}", ranks, plural(ranks));
}

struct Factor {
    double value;
    std::string name, title, words;
};

// How much longer the ranks compute together. Where each has fewer threads than in the base case, that is why: the
// ranks were not as much more hardware as their number says.
Factor computation_factor(const ScalingPoint& point, const ScalingPoint& base) {
    const double threads = point.threads / static_cast<double>(point.ranks),
                 threads_of_base = base.threads / static_cast<double>(base.ranks);
    if (threads < threads_of_base)
        return {
            point.computation_scaling, "fewer threads per rank", "Fewer threads per rank",
            fmt::format("that each rank has {:.3g} thread{} where the base case has {:.3g}: all ranks together have "
                        "{}, and compute {:.2f} times as long for the same work",
                        threads, plural(threads), threads_of_base,
                        point.threads == base.threads
                            ? std::string("no more threads than the base case")
                            : fmt::format("{:.3g} times the threads", point.threads / base.threads),
                        1 / point.computation_scaling)};
    return {point.computation_scaling, "computation scaling", "Computation scaling",
            fmt::format("computation scaling, {:.2f}: the ranks together compute {:.2f} times as long as the base case "
                        "for the same work",
                        point.computation_scaling, 1 / point.computation_scaling)};
}

std::string limit_in_words(const ScalingPoint& point, const ScalingPoint& base) {
    std::vector<Factor> all = {
        {point.load_balance, "load balance", "Load balance",
         fmt::format("load balance, {:.2f}: the average rank is busy for {} of the time that the slowest is",
                     point.load_balance, percent(point.load_balance))},
        {point.communication_efficiency, "communication", "Communication",
         fmt::format("communication, with an efficiency of {:.2f}: the busiest rank computes for {} of the time, and "
                     "communicates or waits for the rest",
                     point.communication_efficiency, percent(point.communication_efficiency))},
        computation_factor(point, base)};
    // Without figures of each rank the two factors are known as a product only.
    if (!std::isfinite(point.communication_efficiency) && std::isfinite(point.parallel_efficiency))
        all = {{point.parallel_efficiency, "communication and imbalance together", "Communication and imbalance",
                fmt::format(
                    "communication and imbalance together, with a parallel efficiency of {:.2f}: ranks compute for "
                    "{} of the time",
                    point.parallel_efficiency, percent(point.parallel_efficiency))},
               all[2]};
    const Factor* least = nullptr;
    std::string known, unmeasured;
    for (const Factor& factor : all) {
        std::string& names = std::isfinite(factor.value) ? known : unmeasured;
        names += (names.empty() ? "" : " and ") + factor.name;
        if (std::isfinite(factor.value) && (!least || factor.value < least->value)) least = &factor;
    }
    if (point.efficiency > hardly_limits) return "Scaling is close to ideal.";
    if (!least) return "The limit is unknown: neither computation nor communication was timed by rank.";
    if (least->value > hardly_limits && unmeasured.empty())
        return fmt::format("None of the factors that make up the efficiency is below {:.2f}.", least->value);
    if (least->value > hardly_limits)
        return fmt::format("The limit is not {} ({:.2f}); {} could not be measured.", known, least->value, unmeasured);
    std::string words = "The main limit is " + least->words + ".";
    for (const Factor& factor : all)
        if (&factor != least && factor.value < limits_too)
            words += fmt::format(" {} ({:.2f}) also limits it.", factor.title, factor.value);
    if (!unmeasured.empty())
        words = fmt::format("The main measured limit is {}. Not measured: {}.", least->words, unmeasured);
    return words;
}

}  // namespace

std::vector<std::string> series_in_short(const ScalingSeries& series) {
    const ScalingPoint &base = series.points[series.base], &last = series.points.back();
    if (last.ranks == base.ranks)
        return {fmt::format("There is only the base case, on {}.", ranks_in_words(base.ranks))};
    const bool timed = std::isfinite(base.seconds_slowest) && std::isfinite(last.seconds_slowest);
    const double speedup = timed ? last.speedup_slowest : last.speedup_average;
    const double ideal = static_cast<double>(last.ranks) / static_cast<double>(base.ranks);
    std::string words;
    if (timed)
        words = fmt::format("On {} a {} takes {} instead of {} on {}", ranks_in_words(last.ranks), series.unit,
                            short_seconds(last.seconds_slowest), short_seconds(base.seconds_slowest),
                            ranks_in_words(base.ranks));
    else
        words = fmt::format("On {} the rate is {} tokens/s instead of {} on {}", ranks_in_words(last.ranks),
                            short_number(last.tokens_per_second), short_number(base.tokens_per_second),
                            ranks_in_words(base.ranks));
    if (series.kind == Kind::weak && timed) words += ", for work that grows with the ranks";
    words += fmt::format(": a speedup of {:.2f} where {} would be ideal, an efficiency of {}.", speedup,
                         short_number(ideal), percent(last.efficiency));
    std::vector<std::string> sentences = {words};
    if (timed && std::abs(last.speedup_average / speedup - 1) > claims_differ_by)
        sentences.push_back(fmt::format("Averaging over the ranks would give a speedup of {:.2f} ({}).",
                                        last.speedup_average, percent(last.efficiency_average)));
    sentences.push_back(limit_in_words(last, base));
    return sentences;
}

std::vector<Html::Item> remarks_of(const Scaling& scaling) {
    std::vector<Html::Item> items;
    std::set<std::string> said;
    const auto add = [&](const std::string& mark, const std::string& words) {
        if (said.insert(words).second) items.push_back({mark, words});
    };
    const bool several = scaling.series.size() > 1;
    std::set<std::size_t> in_series;
    for (const ScalingSeries& series : scaling.series) {
        // A remark on several numbers of ranks is printed once.
        std::vector<std::pair<std::string, std::string>> remarks;
        for (const ScalingPoint& point : series.points) {
            in_series.insert(point.runs.begin(), point.runs.end());
            for (const std::string& remark : point.remarks) {
                const auto same =
                    std::find_if(remarks.begin(), remarks.end(), [&](const auto& one) { return one.second == remark; });
                if (same == remarks.end())
                    remarks.emplace_back(fmt::format("{}", point.ranks), remark);
                else
                    same->first += fmt::format(", {}", point.ranks);
            }
        }
        for (const auto& [ranks, remark] : remarks)
            add("Warning", fmt::format("{}{} rank{}: {}", several ? series.title + ", " : "", ranks,
                                       plural(ranks == "1" ? 1 : 2), remark));
    }
    for (std::size_t i = 0; i < scaling.measurements.size(); ++i)
        if (in_series.count(i) == 0)
            for (const std::string& remark : scaling.measurements[i].remarks)
                add("Warning", scaling.measurements[i].name + ": " + remark);
    for (const ScalingSeries& series : scaling.series)
        for (const std::string& remark : series.remarks) add("Note", (several ? series.title + ": " : "") + remark);
    for (const std::string& remark : scaling.remarks) add("Note", remark);
    return items;
}

std::vector<std::pair<std::string, std::string>> method_of(const Scaling& scaling) {
    const auto any = [&](const auto& holds) {
        return std::any_of(scaling.measurements.begin(), scaling.measurements.end(), holds);
    };
    const bool imported = any([](const Measurement& one) { return one.imported; });
    const bool traced = any([](const Measurement& one) { return !one.imported; });
    std::vector<std::pair<std::string, std::string>> terms;
    if (traced) {
        terms.emplace_back(
            "Warm-up",
            "The first steps of each launch are left out of every time and rate: 9, but at most a fifth "
            "of the launch, unless the command line says otherwise. The table of runs lists how many. Losses and "
            "memory cover all steps.");
        terms.emplace_back(
            "Step time",
            "The time of the slowest rank, since all wait for it at the end of the step. A run's time is the "
            "median over its steps.");
    }
    if (imported)
        terms.emplace_back("Imported runs",
                           "Their times come from a table and cover the whole run; no warm-up could be left out, and "
                           "nothing could be checked against a trace. A run takes as long as its slowest rank.");
    terms.emplace_back(
        "95 % intervals",
        "Of a median: the narrowest pair of measured steps, as many below as above, that encloses it with "
        "at least 95 % probability (binomial distribution of ranks; no assumption on how times are "
        "distributed). With fewer than 6 steps there is none. It covers the scatter within a run, not "
        "between runs, except where 6 or more runs have the same number of ranks: then it is that of their "
        "medians. Of a speedup: bootstrap over blocks of the steps of both runs.");
    terms.emplace_back("Several runs on the same number of ranks",
                       "Each figure is the median over the runs; laws are fitted to all of their steps.");
    if (!scaling.series.empty()) {
        terms.emplace_back(
            "Speedup",
            "time of the base case ÷ time, multiplied in weak scaling by how much more work a step does "
            "(tokens ÷ tokens of the base case). If only rates are known: rate ÷ rate of the base case.");
        terms.emplace_back("Efficiency", "speedup ÷ (ranks ÷ ranks of the base case).");
        terms.emplace_back(
            "What averaging would give",
            "The same with the mean over ranks of each rank's own time instead of the slowest rank's. It is "
            "shown because many published tables use it; it hides ranks that others wait for.");
        terms.emplace_back("Load balance",
                           "mean over ranks ÷ maximum over ranks, of the seconds computed in a step; for imported runs "
                           "without them, of the ranks' own times; if only rates are known, slowest rate ÷ "
                           "harmonic mean of the rates. The table says which.");
        terms.emplace_back("Parallel efficiency",
                           "mean over ranks of the seconds computed in a step ÷ the time of that step. Computation is "
                           "what is not communication; waiting for another rank counts as communication.");
        terms.emplace_back("Communication efficiency", "parallel efficiency ÷ load balance.");
        terms.emplace_back(
            "Computation scaling",
            "seconds computed by all ranks together in the base case ÷ the same here, for the same work. "
            "Above 1, the base case computed more slowly.");
        terms.emplace_back("Global efficiency",
                           "parallel efficiency × computation scaling: the efficiency above, times the base case's own "
                           "parallel efficiency.");
        if (std::any_of(scaling.series.begin(), scaling.series.end(),
                        [](const ScalingSeries& series) { return series.kind == Kind::strong; }))
            terms.emplace_back(
                "Karp–Flatt serial fraction",
                "(1 ÷ speedup − 1 ÷ p) ÷ (1 − 1 ÷ p), with p = ranks ÷ ranks of the base case. If it "
                "grows with the ranks, overhead grows; if it stays constant, a serial part is the limit (Karp and "
                "Flatt 1990).");
        for (const ScalingSeries& series : scaling.series)
            for (const Fit& fit : series.fits) {
                if (!fit.refusal.empty()) continue;
                std::string meaning = fit.formula + ".";
                if (!fit.source.empty()) meaning += " " + fit.source + ".";
                meaning +=
                    " Its intervals are the 2.5 % and 97.5 % quantiles of fits to resampled steps (bootstrap); there "
                    "is none if a number of ranks has fewer than 6.";
                const std::pair<std::string, std::string> term{fit.title, meaning};
                if (std::find(terms.begin(), terms.end(), term) == terms.end()) terms.push_back(term);
            }
    }
    terms.emplace_back("Tokens per second",
                       traced ? "the tokens of a step ÷ the median step time." : "as the imported table gives them.");
    if (traced)
        terms.emplace_back(
            "Phases",
            "Every second of a step belongs to one phase; communication inside the backward pass counts as "
            "communication. Seconds are means over ranks and steps. On a GPU, where phases overlap, they "
            "are timed individually in some steps only.");
    return terms;
}

}  // namespace lockstep::analysis
