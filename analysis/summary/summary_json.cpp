// The summary of a run as JSON.
#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/output/values.hpp"
#include "analysis/summary/summary.hpp"
#include "base/json_text.hpp"

namespace lockstep::analysis {
namespace {

constexpr auto forward = static_cast<std::size_t>(Phase::forward);

Json json_phases(const PhaseSums& sums, const std::array<double, phase_count>* slowest = nullptr) {
    Json phases = Json::object();
    const double total = sums.total();
    for (std::size_t p = 0; p < phase_count; ++p) {
        Json phase = {{"seconds", json_number(sums.seconds[p])}, {"calls", json_number(sums.calls[p])}};
        if (sums.calls[p] == std::floor(sums.calls[p])) phase["calls"] = static_cast<std::int64_t>(sums.calls[p]);
        phase["mean_seconds"] = sums.calls[p] > 0 ? json_number(mean_per_call(sums, p)) : Json(nullptr);
        phase["share"] = json_number(share_of(sums.seconds[p], total));
        if (slowest) phase["slowest_seconds"] = json_number((*slowest)[p]);
        phases[phase_names[p]] = std::move(phase);
    }
    return phases;
}

// null where there was none.
Json json_validations(const Validations& validations) {
    if (validations.empty()) return nullptr;
    return {{"count", validations.size()},
            {"last", json_validation(validations.back())},
            {"best", json_validation(best_of(validations))}};
}

Json json_totals(const SpanFigures& span) {
    return {{"steps", span.steps},
            {"skipped_steps", span.skipped},
            {"tokens", span.tokens},
            {"seconds", json_number(span.seconds)},
            {"tokens_per_second", json_number(tokens_per_second(span))},
            {"model_flop_per_second", json_number(per_second(span.model_flop, span.seconds))},
            {"joules", span.counted.tokens > 0 ? json_number(span.counted.joules) : Json(nullptr)},
            {"joules_per_token", json_number(span.counted.joules_per_token())},
            {"instructions", span.counted.cycles > 0 ? json_number(span.counted.instructions) : Json(nullptr)},
            {"instructions_per_cycle", json_number(span.counted.instructions_per_cycle())},
            {"cycles_per_second", json_number(span.counted.cycles_per_second())},
            {"loss", json_number(span.loss.value())},
            {"validation", json_validations(span.validations)}};
}

Json json_span(const SpanFigures& span, const char* name) {
    Json object = {{name, span.number}};
    object.update(json_totals(span));
    object["phases"] = json_phases(span.mean, &span.slowest);
    if (!span.ranks.empty()) {
        Json& ranks = object["ranks"] = Json::array();
        for (std::size_t r = 0; r < span.ranks.size(); ++r) {
            const RankSpan& rank = span.ranks[r];
            if (rank.steps == 0) continue;
            ranks.push_back({{"rank", r},
                             {"steps", rank.steps},
                             {"phases", json_phases(rank.phases)},
                             {"loss", json_number(rank.loss.value())},
                             {"tokens_per_second", json_number(rank.tokens_per_second())}});
        }
    }
    return object;
}

Json json_rank(const RankFigures& rank, std::size_t number_of_rank) {
    return {{"rank", number_of_rank},
            {"steps", rank.steps},
            {"tokens", json_number(rank.tokens)},
            {"host", json_cell(rank.host)},
            {"cores", json_cell(rank.cores)},
            {"gpu", json_cell(rank.gpu)},
            {"threads", json_cell(rank.threads)},
            {"phases", json_phases(rank.phases)},
            {"loss",
             {{"first", json_number(rank.loss_first)},
              {"last", json_number(rank.loss_last)},
              {"mean", json_number(rank.loss.value())}}},
            {"forward_latency",
             {{"mean_seconds", json_number(mean_per_call(rank.phases, forward))},
              {"median_seconds", json_number(rank.forward_median)}}},
            {"tokens_per_second", json_number(rank.tokens_per_second())},
            {"allocated_memory_bytes", rank.allocated},
            {"reserved_memory_bytes", rank.reserved},
            {"peak_memory_bytes", rank.peak},
            {"tracing_seconds", json_number(rank.overhead)}};
}

Json json_launch(const Launch& launch, const SpanFigures& span) {
    Json object = json_span(span, "launch");
    object["started"] = json_cell(launch.settings.at("started"));
    object["first_step"] = span.steps > 0 ? Json(span.first_step) : Json(nullptr);
    object["last_step"] = span.steps > 0 ? Json(span.last_step) : Json(nullptr);
    for (const char* key : {"ranks", "grid", "hosts", "threads", "micro_batch"})
        object[key] = json_cell(launch.settings.at(key));
    return object;
}

}  // namespace

Json json_of(const Summary& summary) {
    const RunFigures& figures = summary.figures;
    Json all = Json::object();
    Json& configuration = all["configuration"] = Json::object();
    for (const Setting& setting : summary.configuration) configuration[setting.key] = json_cell(setting.value);
    const auto status = parse_json<Json>(summary.status);
    all["path"] = summary.path;
    all["status"] = status.is_discarded() ? Json(nullptr) : status;
    Json& totals = all["totals"] = json_totals(figures.all);
    totals["first_step"] = figures.all.first_step;
    totals["last_step"] = figures.all.last_step;
    totals["hardware_flop_per_second"] = json_number(per_second(figures.hardware_flop, figures.all.seconds));
    Json& launches = all["launches"] = Json::array();
    for (std::size_t i = 0; i < summary.launches.size(); ++i)
        launches.push_back(json_launch(summary.launches[i], figures.launches[i]));
    Json& list = all["ranks"] = Json::array();
    std::uint64_t peak = 0;
    for (std::size_t r = 0; r < figures.ranks.size(); ++r) {
        if (summary.ranks_of_run) list.push_back(json_rank(figures.ranks[r], r));
        peak = std::max(peak, figures.ranks[r].peak);
    }
    all["average"] = {{"phases", json_phases(figures.all.mean)},
                      {"loss", {{"mean", json_number(figures.rank_loss.value())}}},
                      {"forward_latency",
                       {{"mean_seconds", json_number(mean_per_call(figures.all.mean, forward))},
                        {"median_seconds", json_number(figures.forward_median)}}},
                      {"tokens_per_second", json_number(tokens_per_second_of_a_rank(figures.all))},
                      {"largest_peak_memory_bytes", peak}};
    Json& communication = all["communication"] = Json::object();
    for (const CommunicationKind& kind : figures.communication)
        communication[kind.name] = {{"seconds", json_number(kind.mean)},
                                    {"least_seconds", json_number(kind.least)},
                                    {"most_seconds", json_number(kind.most)}};
    all["overhead"] = {{"seconds", json_number(figures.overhead)}, {"share", json_number(figures.overhead_share)}};
    Json& epochs = all["epochs"] = Json::array();
    for (const SpanFigures& span : figures.epochs) epochs.push_back(json_span(span, "epoch"));
    Json& steps = all["steps"] = Json::array();
    for (const SpanFigures& span : figures.steps) steps.push_back(json_span(span, "step"));
    all["notes"] = figures.notes;
    return all;
}

}  // namespace lockstep::analysis
