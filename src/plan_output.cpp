#include "plan_output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/format.hpp"
#include "base/plural.hpp"
#include "plan/checkpoint_interval.hpp"

namespace lockstep::commands {
namespace {

using namespace config;
using namespace cost;
using namespace plan;
using Json = nlohmann::ordered_json;

std::vector<Cell> layout_cells(const Candidate& candidate) {
    const Layout& layout = candidate.layout;
    return {candidate.devices,
            layout.data,
            layout.tensor,
            layout.pipeline,
            layout.context,
            layout.interleave,
            layout.micro,
            layout.zero,
            std::string(layout.sequence ? "yes" : "no"),
            config::word_of(layout.recompute)};
}

std::vector<Column> layout_columns() {
    std::vector<Column> columns;
    for (const char* name : {"devices", "data", "tensor", "pipeline", "context", "interleave", "micro", "zero",
                             "sequence_parallel", "recompute"})
        columns.push_back({name, name});
    return columns;
}

Table layout_table(const PlanOutput& plan, const std::vector<Candidate>& candidates, std::size_t most) {
    std::vector<Column> columns = layout_columns();
    for (const Column& column : std::vector<Column>{{"memory_gib", "memory, GiB", 1},
                                                    {"memory_share", "memory_share", 2},
                                                    {"seconds", "step, s", 3},
                                                    {"tokens_per_second", "tokens/s", 0},
                                                    {"idle_share", "idle_share", 2},
                                                    {"communication_share", "communication_share", 2}})
        columns.push_back(column);
    const bool whole = plan.job.steps > 0;
    if (whole) columns.push_back({"hours", "job, h", 2});
    if (whole)
        columns.push_back(
            {"gpu_hours", plan.machine.device.kind == config::MachineKind::gpu ? "GPU-hours" : "rank-hours", 1});
    Table table(columns);
    for (std::size_t i = 0; i < std::min(most, candidates.size()); ++i) {
        const Candidate& candidate = candidates[i];
        const StepTime& time = candidate.price.time;
        std::vector<Cell> cells = layout_cells(candidate);
        cells.emplace_back(candidate.price.memory / 1073741824.0);
        cells.emplace_back(candidate.price.memory / candidate.price.room);
        cells.emplace_back(time.total());
        cells.emplace_back(candidate.tokens_per_second);
        cells.emplace_back(time.idle / time.total());
        cells.emplace_back((time.tensor + time.pipeline + time.data + time.context) / time.total());
        if (whole) cells.emplace_back(candidate.job.total() / 3600);
        if (whole) cells.emplace_back(candidate.gpu_hours);
        table.add_row(std::move(cells));
    }
    return table;
}

Json json_of(const StepTime& time) {
    return {{"loading", time.loading},     {"forward", time.forward},
            {"loss", time.loss},           {"recomputation", time.recomputation},
            {"backward", time.backward},   {"tensor", time.tensor},
            {"pipeline", time.pipeline},   {"idle", time.idle},
            {"data", time.data},           {"context", time.context},
            {"optimizer", time.optimizer}, {"control", time.control}};
}

// Rows as JSON; keeps the old name of a renamed key.
Json json_of(const Table& table) {
    Json rows = Json::parse(table.print(TableFormat::json));
    for (Json& row : rows) row["sequence"] = row["sequence_parallel"];
    return rows;
}

Json intervals_json(const PlanOutput& plan) {
    const CheckpointIntervals intervals = checkpoint_intervals(plan.machine, plan.job, plan.chosen().layout);
    return {{"seconds_between_failures", intervals.between_failures},
            {"local_cost", intervals.local_cost},
            {"local", intervals.local},
            {"shared_cost", intervals.shared_cost},
            {"shared", intervals.shared}};
}

// Rates measured on a busy machine give impossible step times, hence these remarks.
std::vector<std::string> remarks_of(const PlanOutput& plan, const std::vector<Candidate>& of_counts) {
    constexpr double most_gain = 1.1;  // beyond the devices' ratio; caches and memory that suffices explain some
    std::vector<std::string> remarks = plan.result.remarks;
    const std::string doubt = plan.job.own_program() ? plan.machine.rates.doubt() : "";
    if (!doubt.empty())
        remarks.push_back("the machine's rates are unreliable (" + doubt + "): recalibrate it when it is idle");
    for (std::size_t i = 1; i < of_counts.size(); ++i) {
        const Candidate &before = of_counts[i - 1], &after = of_counts[i];
        const double times = after.tokens_per_second / before.tokens_per_second,
                     devices = static_cast<double>(after.devices) / static_cast<double>(before.devices);
        if (times > most_gain * devices)
            remarks.push_back(
                fmt::format("{} devices are {:.1f} times as fast as {} but only {:.1f} times as many: either {} cannot "
                            "hold a faster layout in memory, or the rates are inconsistent",
                            after.devices, times, before.devices, devices, before.devices));
    }
    return remarks;
}

struct Words {
    std::string winner, parts, job, intervals, next, ruled_out, full, count;
    std::vector<std::string> shape, without;  // without: why a device count has no layout
};

Words words_of(const PlanOutput& plan) {
    Words words;
    const SearchResult& result = plan.result;
    if (result.fitting.empty()) return words;
    const Candidate chosen = plan.chosen();
    words.winner = fmt::format("{} on {} device{}", layout_text(chosen.layout), chosen.devices, plural(chosen.devices));
    words.parts = time_parts_text(chosen.price.time);
    words.job = job_parts_text(chosen.job);
    words.intervals =
        intervals_text(checkpoint_intervals(plan.machine, plan.job, chosen.layout), chosen.price.time.total());
    const auto next = std::find_if(result.fitting.begin(), result.fitting.end(), [&](const Candidate& other) {
        return other.devices == chosen.devices && other.price.time.total() > chosen.price.time.total();
    });
    if (next != result.fitting.end()) words.next = why_better(chosen, *next);
    words.ruled_out = what_rules_out(result, chosen);
    words.full = less_full(result, chosen);
    for (const std::int64_t count : plan.counts) {
        const bool works = std::any_of(result.fitting.begin(), result.fitting.end(),
                                       [&](const Candidate& other) { return other.devices == count; });
        if (!works && !why_not_on(result, count).empty()) words.without.push_back(why_not_on(result, count));
    }
    words.shape = shape_advice(plan.machine, plan.job, chosen);
    if (plan.counts.size() > 1) words.count = advise_count(plan.machine, result, plan.limits).why;
    return words;
}

}  // namespace

Candidate PlanOutput::chosen() const {
    if (counts.size() == 1) return result.fitting.front();
    const CountAdvice advice = advise_count(machine, result, limits);
    return advice.best[advice.recommended];
}

std::string why_none(const PlanOutput& plan) {
    std::string text;
    for (const std::int64_t count : plan.counts) {
        const std::string why = why_not_on(plan.result, count);
        if (!why.empty()) text += (text.empty() ? "" : "; ") + why;
    }
    for (const std::string& remark : plan.result.remarks) text += (text.empty() ? "" : "; ") + remark;
    return text;
}

std::string print_plan(const PlanOutput& plan, TableFormat format) {
    const SearchResult& result = plan.result;
    const auto top = static_cast<std::size_t>(plan.top);
    const Table table = layout_table(plan, result.fitting, top);
    if (format == TableFormat::csv) return table.print(format);
    const Words words = words_of(plan);
    std::vector<Candidate> of_counts;
    if (plan.counts.size() > 1) of_counts = advise_count(plan.machine, result, plan.limits).best;
    if (format == TableFormat::json) {
        Json json = {{"hardware", plan.machine.name},
                     {"program", plan.job.program.name},
                     {"examined", result.examined},
                     {"fitting", result.fitting.size()},
                     {"layouts", json_of(table)}};
        for (std::size_t i = 0; i < std::min(top, result.fitting.size()); ++i)
            json["layouts"][i]["parts"] = json_of(result.fitting[i].price.time);
        if (!of_counts.empty()) {
            json["counts"] = json_of(layout_table(plan, of_counts, of_counts.size()));
        }
        if (result.fitting.empty()) {
            json["problem"] = why_none(plan);
        } else {
            json["recommended"] = json_of(layout_table(plan, {plan.chosen()}, 1))[0];
            if (!words.intervals.empty()) json["checkpoint_intervals"] = intervals_json(plan);
            json["why"] = {{"parts", words.parts},         {"job", words.job},     {"next", words.next},
                           {"ruled_out", words.ruled_out}, {"memory", words.full}, {"without", words.without},
                           {"devices", words.count},       {"shape", words.shape}};
        }
        json["remarks"] = remarks_of(plan, of_counts);
        return json.dump(2) + "\n";
    }
    std::string text = fmt::format("{}; {}\n", plan.machine.name, plan.machine.origin);
    for (const ModelLoad& model : plan.job.models)
        text += fmt::format("{}: {} parameters, {} trained\n", model.name,
                            with_commas(static_cast<std::int64_t>(model.total)),
                            with_commas(static_cast<std::int64_t>(model.trained)));
    text += fmt::format("{} layout{} examined; {}{} fit{}\n", with_commas(result.examined), plural(result.examined),
                        result.more_may_fit ? "at least " : "", result.fitting.size(),
                        result.fitting.size() == 1 ? "s" : "");
    if (!result.fitting.empty())
        for (const std::string& remark : remarks_of(plan, of_counts)) text += remark + "\n";
    if (result.fitting.empty()) return text;  // the caller throws the reason
    text += "\n" + table.print(format) + "\n";
    if (!of_counts.empty())
        text += "best layout per device count\n" + layout_table(plan, of_counts, of_counts.size()).print(format) + "\n";
    text += fmt::format("recommended: {}\nstep time: {}\n", words.winner, words.parts);
    if (!words.job.empty()) text += "job time: " + words.job + "\n";
    if (!words.intervals.empty()) text += "checkpoints: " + words.intervals + "\n";
    if (!words.count.empty()) text += words.count + "\n";
    if (!words.next.empty()) text += words.next + "\n";
    if (!words.full.empty()) text += words.full + "\n";
    for (const std::string& sentence : words.without) text += sentence + "\n";
    if (!words.ruled_out.empty()) text += words.ruled_out + "\n";
    for (const std::string& sentence : words.shape) text += "model shape: " + sentence + "\n";
    const Layout layout = plan.chosen().layout;
    text += fmt::format(
        "\n[batch]\nmicro = {}\n\n[parallel]\ndata = {}\ntensor = {}\npipeline = {}\ncontext = {}\ninterleave = "
        "{}\nzero = {}\nsequence = {}\nrecompute = \"{}\"\n",
        layout.micro, layout.data, layout.tensor, layout.pipeline, layout.context, layout.interleave, layout.zero,
        layout.sequence, config::word_of(layout.recompute));
    if (layout.lanes > 0) text += fmt::format("lanes = {}\n", layout.lanes);
    return text;
}

std::string print_judgement(const Machine& machine, const std::vector<MeasuredRow>& rows, const Judgement& judgement,
                            TableFormat format) {
    Table table({{"source_line", "line"},
                 {"layout", "layout"},
                 {"seconds", "measured, s", 2},
                 {"predicted_seconds", "predicted, s", 2},
                 {"error", "error", 3},
                 {"memory_gb", "memory, GB", 1},
                 {"predicted_memory_gb", "predicted, GB", 1},
                 {"outcome", "outcome"},
                 {"predicted_outcome", "predicted"},
                 {"flagged", "flagged"}});
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const MeasuredRow& row = rows[i];
        const Prediction& prediction = judgement.rows[i];
        const auto& model = row.job.models.front().shape;
        table.add_row({row.source_line,
                       fmt::format("{} x {}, {} heads, {}", model.layers, model.width, model.heads.front(),
                                   layout_text(row.layout)),
                       row.seconds ? Cell(*row.seconds) : Cell(), prediction.seconds,
                       row.seconds ? Cell(prediction.seconds / *row.seconds - 1) : Cell(),
                       row.memory_gb ? Cell(*row.memory_gb) : Cell(), prediction.memory_gb,
                       std::string(row.out_of_memory ? "oom" : "ok"),
                       std::string(prediction.out_of_memory ? "oom" : "ok"), row.flagged});
    }
    if (format == TableFormat::csv) return table.print(format);
    if (format == TableFormat::json) {
        const Json json = {{"hardware", machine.name},
                           {"mean_absolute_error", judgement.mean_absolute_error},
                           {"worst_error", judgement.worst_error},
                           {"rank_correlation", judgement.rank_correlation},
                           {"mean_memory_error", judgement.mean_memory_error},
                           {"worst_memory_error", judgement.worst_memory_error},
                           {"wrong_outcomes", judgement.wrong_outcomes},
                           {"rows", Json::parse(table.print(format))}};
        return json.dump(2) + "\n";
    }
    return fmt::format(
        "{}; {}\n\n{}\nstep time: mean error {:.2f} %, worst {:.2f} %, rank correlation {:.4f}\nmemory: mean error "
        "{:.2f} %, worst {:.2f} %; wrong outcomes: {}\nflagged rows are excluded\n",
        machine.name, machine.origin, table.print(format), 100 * judgement.mean_absolute_error,
        100 * judgement.worst_error, judgement.rank_correlation, 100 * judgement.mean_memory_error,
        100 * judgement.worst_memory_error, judgement.wrong_outcomes);
}

}  // namespace lockstep::commands
