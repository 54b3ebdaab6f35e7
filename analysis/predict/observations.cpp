#include "analysis/predict/observations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "analysis/load/series.hpp"
#include "base/error.hpp"
#include "base/plural.hpp"
#include "config/run_description.hpp"

namespace lockstep::analysis {
namespace {

constexpr double gradient_element = 4, fewest_deviation_samples = 6, seen = 1e-4, same = 1e-9;
constexpr double most_degree = 1 << 20;
const char* const whole_step = "step";

double degree(const Measurement& run, const char* key) {
    const double value = run.setting_number(key);
    return value >= 1 && value <= most_degree ? value : 1;
}

std::vector<const Measurement*> members_of(const std::vector<Measurement>& all, const std::vector<std::size_t>& runs) {
    std::vector<const Measurement*> members;
    for (const std::size_t run : runs) members.push_back(&all[run]);
    return members;
}

// The runs of one program, by ranks. Imported times are of whole runs: then a batch is the same in all of them, or
// grows with the ranks.
Group one_program(const std::vector<Measurement>& all, const PredictOptions& options,
                  std::vector<std::string>& remarks) {
    std::set<std::int64_t> counts;
    for (const Measurement& run : all) counts.insert(run.ranks);
    if (counts.size() == 1)
        throw usage_error(
            "all runs have {} rank{}: a prediction needs at least two different numbers of ranks, preferably three, to "
            "separate what does not shrink with a rank's share, how long ranks wait, and what the backward pass hides",
            *counts.begin(), plural(*counts.begin()));
    const bool imported = std::any_of(all.begin(), all.end(), [](const Measurement& run) { return run.imported; });
    std::vector<std::string> ignored = options.ignored;
    if (!imported) ignored.emplace_back("batch.global");
    const std::string kind = !imported                        ? "strong"
                             : options.weak == options.strong ? "auto"
                             : options.weak                   ? "weak"
                                                              : "strong";
    const Grouping grouping = group_runs(all, kind, ignored);
    std::vector<Group> groups = grouping.groups;
    if (imported && options.batch > 0)
        groups.erase(std::remove_if(groups.begin(), groups.end(),
                                    [&](const Group& group) {
                                        return group.kind == Kind::strong &&
                                               all[group.runs.front()].batch != options.batch;
                                    }),
                     groups.end());
    if (groups.empty()) throw usage_error("no batch of {} was run on two different numbers of ranks", options.batch);
    if (groups.size() > 1) {
        std::vector<std::string> titles;
        for (const Group& group : groups)
            titles.push_back(fmt::format("{} ({} …)", group.title, all[group.runs.front()].name));
        throw usage_error("the runs are of {} different programs: {}; give the runs of one{}", groups.size(),
                          fmt::join(titles, "; "), imported ? ", or choose with --batch" : "");
    }
    remarks.insert(remarks.end(), grouping.remarks.begin(), grouping.remarks.end());
    for (const Difference& difference : differences(members_of(all, groups.front().runs)))
        if (difference.key != "batch.global")
            remarks.push_back(fmt::format("The runs differ in {}.", words_of(difference)));
    return groups.front();
}

// The sizes of the messages; 0 where the run does not say.
void describe_traffic(const Measurement& run, ScalingProgram& program, std::vector<std::string>& remarks) {
    if (run.imported) {
        remarks.emplace_back("Imported times come without message sizes: the bytes sent are estimated.");
        return;
    }
    std::int64_t zero = 0;
    try {
        const auto description = config::parse_foreign_description(run.description, run.path);
        config::check(description);
        zero = description.parallel.zero;
        if (run.trained_parameters <= 0) {
            remarks.push_back(fmt::format(
                "The trace of {} does not say how many parameters are trained (written by an earlier version): the "
                "bytes sent are estimated.",
                run.name));
            return;
        }
        const double parameters = static_cast<double>(run.trained_parameters) / program.shards;
        program.gradient_bytes = parameters * gradient_element;
        program.buckets =
            std::clamp(std::ceil(program.gradient_bytes / static_cast<double>(description.parallel.bucket_bytes)), 1.0,
                       static_cast<double>(description.model.layers + 1));
        program.divided_update = zero > 0;
        program.gather_bytes = parameters * (description.precision.compute == config::Precision::fp32 ? 4 : 2);
    } catch (const Error& problem) {
        remarks.push_back(fmt::format("The description of {} cannot be read ({}): the bytes sent are estimated.",
                                      run.name, problem.what()));
    }
    if (zero > 1)
        throw usage_error(
            "{} has parallel.zero = {}, which communicates in every micro-batch; predict supports ZeRO stages 0 and 1",
            run.name, zero);
}

ScalingProgram program_of(const Measurement& run, const config::Machine& machine, const PredictOptions& options,
                          std::vector<std::string>& remarks) {
    ScalingProgram program;
    program.shards = degree(run, "parallel.tensor") * degree(run, "parallel.pipeline");
    program.context = degree(run, "parallel.context");
    program.must_divide = !run.imported;
    program.batch_known = run.batch > 0;
    if (const double micro = run.setting_number("micro_batch"); micro >= 1) program.micro_batch = micro;
    program.places_per_node = machine.device.per_node;
    if (machine.device.kind == config::MachineKind::cpu) {
        double threads = 1;
        for (const RankMeasurement& rank : run.rank) threads = std::max(threads, static_cast<double>(rank.threads));
        program.places_per_node = std::max(std::floor(machine.device.per_node / threads), 1.0);
    }
    program.ranks_per_node =
        options.ranks_per_node > 0 ? static_cast<double>(options.ranks_per_node) : program.places_per_node;
    describe_traffic(run, program, remarks);
    return program;
}

struct Named {
    std::vector<std::pair<WorkTerm, double>> work;
    double wait = unknown, exchange = unknown;
};

// Means over the steps whose phases were timed, scaled to the median step.
Named parts_of(const Measurement& run) {
    Named parts;
    const double compute = run.compute_seconds(), communication = run.communication_seconds();
    if (!std::isfinite(compute) || !std::isfinite(communication)) return parts;
    std::vector<double> mean_compute, longest;
    std::array<std::vector<double>, phase_count> phases;
    for (const StepSample& step : run.steps) {
        if (!std::isfinite(step.compute)) continue;
        mean_compute.push_back(step.compute);
        longest.push_back(step.longest_compute);
        for (std::size_t p = 0; p < phase_count; ++p) phases[p].push_back(step.phases[p]);
    }
    const double scale = compute / mean(mean_compute);
    if (!std::isfinite(scale) || compute < 0 || communication < 0) return parts;
    const auto of = [&](Phase phase) {
        const double seconds = scale * mean(phases[static_cast<std::size_t>(phase)]);
        return std::isfinite(seconds) ? std::max(seconds, 0.0) : 0;
    };
    double rest = compute, together = communication;
    const auto add = [&](const char* name, double seconds, WorkTerm::Follows follows, double backward = 0) {
        parts.work.push_back({{name, follows, false, backward}, seconds});
        rest -= seconds;
    };
    const bool phased = of(Phase::forward) > 0;
    if (phased) {
        add("data", of(Phase::data_loading) + of(Phase::data_movement), WorkTerm::Follows::share);
        add("forward", of(Phase::forward), WorkTerm::Follows::share);
        add("loss", of(Phase::loss), WorkTerm::Follows::share);
        add("backward", of(Phase::backward), WorkTerm::Follows::share, 1);
        add("optimizer", of(Phase::optimizer), WorkTerm::Follows::update);
    }
    // Where phases are unknown, the backward pass is about two thirds.
    add(phased ? "other" : "compute", std::max(rest, 0.0), WorkTerm::Follows::share, phased ? 0 : 2.0 / 3);
    for (const char* kind : {"tensor", "pipeline", "context"}) {
        const auto found = run.communication_kinds.find(kind);
        if (found == run.communication_kinds.end() || degree(run, fmt::format("parallel.{}", kind).c_str()) <= 1)
            continue;
        const double seconds = std::clamp(scale * found->second, 0.0, std::max(together, 0.0));
        parts.work.push_back({{kind, WorkTerm::Follows::share, true, 0}, seconds});
        together -= seconds;
    }
    if (run.imported) {
        const double rest_of_run = run.step_seconds() - compute - communication;
        parts.work.push_back({{"rest of the run", WorkTerm::Follows::share, false, 0}, std::max(rest_of_run, 0.0)});
    }
    if (const double largest = mean(longest); std::isfinite(largest) && !run.whole) {
        parts.wait = std::clamp(scale * (largest - mean(mean_compute)), 0.0, std::max(together, 0.0));
        parts.exchange = std::max(together, 0.0) - parts.wait;
    }
    return parts;
}

// The standard error of the median step, as a share.
double deviation_of(const Measurement& run) {
    const Interval interval = run.step_interval();
    if (run.imported || !interval.known() || static_cast<double>(run.steps.size()) < fewest_deviation_samples) return 0;
    return (interval.high - interval.low) / (2 * 1.96) / run.step_seconds();
}

void observe_steps(const std::vector<Measurement>& all, const Group& group, Observations& result) {
    std::vector<Named> parts;
    std::map<std::string, std::size_t> order;
    for (const std::size_t index : group.runs) {
        const Measurement& run = all[index];
        if (!(run.step_seconds() > 0))
            throw usage_error("{} has no time per {}, only rates: a prediction needs times", run.name, result.unit);
        parts.push_back(parts_of(run));
        for (const auto& [term, seconds] : parts.back().work) {
            // Negligible in all runs: no term.
            if (seconds < seen * run.step_seconds() || order.count(term.name) != 0) continue;
            order[term.name] = result.terms.size();
            result.terms.push_back(term);
        }
    }
    if (result.terms.empty()) {
        result.terms.push_back({whole_step, WorkTerm::Follows::share, false, 2.0 / 3});
        result.remarks.emplace_back(
            "No run separates compute from communication: waits and exchanges are estimates, constrained only by the "
            "total times.");
    }
    for (std::size_t i = 0; i < group.runs.size(); ++i) {
        const Measurement& run = all[group.runs[i]];
        MeasuredSteps steps;
        steps.ranks = static_cast<double>(run.ranks);
        steps.nodes = run.imported || run.hosts < 1 ? std::ceil(steps.ranks / result.program.ranks_per_node)
                                                    : static_cast<double>(run.hosts);
        steps.batch = run.batch > 0 ? static_cast<double>(run.batch) : 1;
        steps.seconds = run.step_seconds();
        steps.deviation = deviation_of(run);
        steps.work.assign(result.terms.size(), parts[i].work.empty() ? unknown : 0);
        for (const auto& [term, seconds] : parts[i].work)
            if (const auto found = order.find(term.name); found != order.end()) steps.work[found->second] = seconds;
        steps.wait = parts[i].wait;
        steps.exchange = parts[i].exchange;
        if (steps.ranks / steps.nodes > result.program.places_per_node * 1.001)
            result.remarks.push_back(fmt::format(
                "{} had {:g} ranks on a node with {:g} slots: its compute is assumed to take {:g} times as long.",
                run.name, steps.ranks / steps.nodes, result.program.places_per_node,
                steps.ranks / steps.nodes / result.program.places_per_node));
        result.steps.push_back(std::move(steps));
        result.runs.push_back(group.runs[i]);
    }
}

// Values measured on at least two numbers of ranks; the largest if there are none.
std::vector<double> well_measured(const std::map<double, std::set<double>>& counts_of) {
    std::vector<double> values;
    for (const auto& [value, counts] : counts_of)
        if (counts.size() > 1) values.push_back(value);
    if (values.empty()) values.push_back(counts_of.rbegin()->first);
    return values;
}

std::vector<double> ranks_of(const CurveRequest& curve, const Observations& result, const PredictOptions& options,
                             const std::set<double>& measured) {
    const double together = result.program.model_ranks();
    std::set<double> ranks = measured;
    if (!options.ranks.empty()) {
        ranks.insert(options.ranks.begin(), options.ranks.end());
        return {ranks.begin(), ranks.end()};
    }
    for (double count = curve.base_ranks; count <= options.to; count *= 2) ranks.insert(count);
    const double last = std::floor(options.to / together) * together;
    if (curve.kind == CurveKind::weak || !result.program.batch_known || last > curve.batch * together)
        ranks.insert(last);
    if (curve.kind == CurveKind::strong && result.program.batch_known) {
        const double batch = curve.batch;
        // The last possible number of ranks and its halves: powers of two need not divide the batch.
        for (double replicas = batch; replicas >= 1; replicas /= 2) {
            if (replicas != std::floor(replicas)) break;
            if (replicas * together <= options.to && replicas * together >= curve.base_ranks)
                ranks.insert(replicas * together);
        }
        if (result.program.must_divide)
            for (auto count = ranks.begin(); count != ranks.end();)
                count = measured.count(*count) == 0 && *count <= batch * together &&
                                std::fmod(batch, *count / together) != 0
                            ? ranks.erase(count)
                            : std::next(count);
    }
    return {ranks.begin(), ranks.end()};
}

// `batch`: of a step; weak: of a replica.
CurveRequest curve_of(const std::vector<Measurement>& all, CurveKind kind, double batch, const PredictOptions& options,
                      const Observations& result) {
    CurveRequest curve;
    curve.kind = kind;
    curve.batch = batch;
    curve.base_ranks = 0;
    std::set<double> measured;
    std::vector<double> base;
    for (std::size_t i = 0; i < result.steps.size(); ++i) {
        const MeasuredSteps& steps = result.steps[i];
        const Measurement& run = all[result.runs[i]];
        if (run.batch > 0 && std::isfinite(run.step_tokens()))
            curve.tokens_a_sequence = run.step_tokens() / static_cast<double>(run.batch);
        const double own =
            kind == CurveKind::strong ? steps.batch : steps.batch * result.program.model_ranks() / steps.ranks;
        if (std::abs(own / batch - 1) > same) continue;
        measured.insert(steps.ranks);
        if (curve.base_ranks == 0) curve.base_ranks = steps.ranks;
        if (curve.base_ranks == steps.ranks) base.push_back(steps.seconds);
    }
    if (base.empty()) curve.base_ranks = result.steps.front().ranks;
    curve.base_seconds = base.empty() ? 0 : median(base);
    curve.ranks = ranks_of(curve, result, options, measured);
    return curve;
}

void ask_for_curves(const std::vector<Measurement>& all, const Group& group, const PredictOptions& options,
                    Observations& result) {
    const double together = result.program.model_ranks();
    std::map<double, std::set<double>> of_batch, of_share;
    for (const MeasuredSteps& steps : result.steps) {
        of_batch[steps.batch].insert(steps.ranks);
        of_share[steps.batch * together / steps.ranks].insert(steps.ranks);
    }
    const bool imported = result.unit == "run";
    for (const CurveKind kind : {CurveKind::strong, CurveKind::weak}) {
        const bool strong = kind == CurveKind::strong;
        if (!(strong ? options.strong : options.weak)) continue;
        // An imported time is of a whole run, whose work is known to go with the batch in its own kind of series only.
        if (imported && strong != (group.kind == Kind::strong)) continue;
        std::vector<double> batches = well_measured(strong ? of_batch : of_share);
        if (strong && options.batch > 0) batches = {static_cast<double>(options.batch)};
        for (const double batch : batches) result.curves.push_back(curve_of(all, kind, batch, options, result));
    }
    if (result.curves.empty())
        throw usage_error(
            "imported times are of whole runs, and these runs form a {} series: the other kind cannot be "
            "predicted from them",
            group.kind == Kind::strong ? "strong" : "weak");
    if (of_share.size() == 1 && options.strong && !imported)
        result.remarks.emplace_back(
            "All runs have the same number of sequences per replica: the part of the time that does not shrink with it "
            "is an estimate, and the strong scaling curve has wide intervals.");
}

}  // namespace

Observations observe(const std::vector<Measurement>& all, const config::Machine& machine,
                     const PredictOptions& options) {
    Observations result;
    const Group group = one_program(all, options, result.remarks);
    const Measurement& last = all[group.runs.back()];
    result.unit = last.imported ? "run" : "step";
    result.program = program_of(last, machine, options, result.remarks);
    observe_steps(all, group, result);
    ask_for_curves(all, group, options, result);
    std::set<double> counts;
    for (const MeasuredSteps& steps : result.steps) counts.insert(steps.ranks);
    if (counts.size() == 2)
        result.remarks.emplace_back(
            "Two numbers of ranks show no trend: a third would narrow the intervals considerably.");
    bool beyond_node = false;
    for (const MeasuredSteps& steps : result.steps) beyond_node = beyond_node || steps.nodes > 1;
    if (!beyond_node)
        result.remarks.emplace_back(
            "No run used more than one node: the network figures come from the hardware description alone.");
    return result;
}

}  // namespace lockstep::analysis
