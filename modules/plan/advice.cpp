#include "plan/advice.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/format.hpp"
#include "base/plural.hpp"
#include "cost/product_time.hpp"

namespace lockstep::plan {
namespace {

struct Part {
    const char* name;
    double seconds;
};

std::vector<Part> parts_of(const cost::StepTime& time) {
    return {{"forward", time.forward},
            {"loss", time.loss},
            {"recomputation", time.recomputation},
            {"backward", time.backward},
            {"tensor communication", time.tensor},
            {"pipeline communication", time.pipeline},
            {"pipeline bubble", time.idle},
            {"data-parallel communication", time.data},
            {"context-parallel communication", time.context},
            {"optimizer", time.optimizer},
            {"data loading", time.loading},
            {"control", time.control}};
}

constexpr double worth_saying = 0.01;  // share of a step
constexpr double good_use = 0.8;       // of more devices, against the smallest count

std::int64_t round_up(std::int64_t value, std::int64_t to) {
    return (value + to - 1) / to * to;
}

// Time of a step in proportion to its arithmetic, so that a larger model is not blamed for being larger.
double seconds_per_work(const config::Machine& machine, const cost::Job& job, const cost::Layout& layout) {
    double work = 0;
    for (const cost::ModelLoad& load : job.models) work += load.total;
    return cost::price_time(machine, job, layout).time.total() / work;
}

}  // namespace

std::string time_parts_text(const cost::StepTime& time) {
    std::vector<Part> parts = parts_of(time);
    std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.seconds > b.seconds; });
    std::vector<std::string> texts;
    for (const Part& part : parts)
        if (part.seconds >= worth_saying * time.total())
            texts.push_back(fmt::format("{} {:.0f} %", part.name, 100 * part.seconds / time.total()));
    return fmt::format("{}", fmt::join(texts, ", "));
}

std::string job_parts_text(const JobTime& time) {
    if (time.validations + time.checkpoints <= 0) return "";
    std::string text = "steps " + human_seconds(time.steps);
    if (time.validations > 0) text += ", validations " + human_seconds(time.validations);
    if (time.checkpoints > 0) text += ", checkpoints " + human_seconds(time.checkpoints);
    return text;
}

std::string why_better(const Candidate& first, const Candidate& second) {
    const auto a = parts_of(first.price.time), b = parts_of(second.price.time);
    std::vector<std::pair<double, std::string>> wins, losses;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const double difference = b[i].seconds - a[i].seconds;
        if (std::abs(difference) < 0.002 * first.price.time.total()) continue;
        auto& list = difference > 0 ? wins : losses;
        list.emplace_back(-std::abs(difference), fmt::format("{} {} in {}", human_seconds(std::abs(difference)),
                                                             difference > 0 ? "more" : "less", a[i].name));
    }
    std::sort(wins.begin(), wins.end());
    std::sort(losses.begin(), losses.end());
    const auto names = [](const std::vector<std::pair<double, std::string>>& list) {
        std::vector<std::string> texts;
        for (std::size_t i = 0; i < std::min<std::size_t>(3, list.size()); ++i) texts.push_back(list[i].second);
        return fmt::format("{}", fmt::join(texts, ", "));
    };
    std::string text = fmt::format("the next best, {}, is {:.1f} % slower", cost::layout_text(second.layout),
                                   100 * (second.price.time.total() / first.price.time.total() - 1));
    if (!wins.empty()) text += ": " + names(wins);
    if (!losses.empty()) text += (wins.empty() ? ": " : ", but ") + names(losses);
    return text;
}

std::string what_rules_out(const SearchResult& result, const Candidate& chosen) {
    // One that is nearly possible: what needs many times the memory tells nothing.
    constexpr double nearly = 1.5;
    for (const Candidate& other : result.excluded) {
        if (other.devices != chosen.devices || other.price.memory > nearly * other.price.room) continue;
        const double gain = 1 - other.price.time.total() / chosen.price.time.total();
        if (gain < worth_saying) continue;
        return fmt::format("{} would be {:.1f} % faster but is ruled out: {}", cost::layout_text(other.layout),
                           100 * gain, other.why_not);
    }
    return "";
}

std::string less_full(const SearchResult& result, const Candidate& chosen) {
    constexpr double full = 0.95, roomy = 0.9;
    if (chosen.price.memory <= full * chosen.price.room) return "";
    for (const Candidate& other : result.fitting) {
        if (other.devices != chosen.devices || other.price.memory > roomy * other.price.room) continue;
        return fmt::format("it uses {:.0f} % of the memory; {} uses {:.0f} % and is {:.1f} % slower",
                           100 * chosen.price.memory / chosen.price.room, cost::layout_text(other.layout),
                           100 * other.price.memory / other.price.room,
                           100 * (other.price.time.total() / chosen.price.time.total() - 1));
    }
    return fmt::format("it uses {:.0f} % of the memory", 100 * chosen.price.memory / chosen.price.room);
}

std::string why_not_on(const SearchResult& result, std::int64_t devices) {
    const Candidate* nearest = nullptr;
    for (const Candidate& other : result.excluded) {
        if (other.devices != devices) continue;
        const auto far = [](const Candidate& candidate) {
            return std::max(1.0, candidate.price.memory / candidate.price.room);
        };
        if (!nearest || far(other) < far(*nearest)) nearest = &other;
    }
    if (!nearest) return "";
    return fmt::format("no layout works on {} device{}; the closest, {}, fails: {}", devices, plural(devices),
                       cost::layout_text(nearest->layout), nearest->why_not);
}

std::vector<std::string> shape_advice(const config::Machine& machine, const cost::Job& job, const Candidate& best) {
    std::vector<std::string> sentences;
    const double now = seconds_per_work(machine, job, best.layout);
    const config::Precision precision = job.run.precision.compute;
    for (std::size_t index = 0; index < job.models.size(); ++index) {
        const config::ModelDescription& model = job.models[index].shape;
        const std::string of_model = job.models.size() > 1 ? " of " + job.models[index].name : "";
        const auto consider = [&](const std::string& what, auto&& change) {
            cost::Job other = job;
            change(other.models[index].shape);
            const config::ModelDescription& changed = other.models[index].shape;
            for (std::int64_t block = 0; block < changed.period(); ++block)
                if (const auto layer = changed.layer(block); layer.heads % layer.kv_heads != 0) return;
            if (job.own_program()) other.run.model = other.models[index].shape;
            cost::measure(other.models[index]);
            if (!cost::price_time(machine, other, best.layout).why_not.empty()) return;
            const double saved = 1 - seconds_per_work(machine, other, best.layout) / now;
            if (saved >= worth_saying)
                sentences.push_back(fmt::format("{}: {:.0f} % less time per parameter", what, 100 * saved));
        };
        const config::LayerShape layer = model.layer(0);  // all layers', where heads are looked at
        const bool equal_heads = has_equal_heads(model);
        const std::int64_t head = layer.head_width, t = best.layout.tensor;
        const bool divides_width = equal_heads && layer.query_columns() == model.width;
        if (divides_width && (!cost::is_aligned(precision, head) || head % 64 != 0)) {
            for (std::int64_t heads = layer.heads; heads >= t; --heads) {
                if (model.width % heads != 0 || heads % t != 0) continue;
                if (layer.kv_heads != layer.heads && heads % layer.kv_heads != 0) continue;
                if (!cost::is_aligned(precision, model.width / heads)) continue;
                consider(
                    fmt::format("heads = {}{} gives {} columns per head{}; {} heads give {}", layer.heads, of_model,
                                head, cost::is_aligned(precision, head) ? "" : ", not a multiple of 16 bytes", heads,
                                model.width / heads),
                    [&](config::ModelDescription& changed) {
                        if (changed.kv_heads == changed.heads) changed.kv_heads = {heads};
                        changed.heads = {heads};
                        changed.head_widths = {model.width / heads};
                    });
                break;
            }
        }
        const std::int64_t unit = 128 * t;
        for (const std::int64_t width : {model.width / unit * unit, round_up(model.width, unit)}) {
            if (!equal_heads || width == model.width || width == 0 || (divides_width && width % head != 0)) continue;
            consider(fmt::format("width = {}{} leaves {} columns per rank, not a whole number of tiles; try {}",
                                 model.width, of_model, model.width / t, width),
                     [&](config::ModelDescription& changed) {
                         if (divides_width && changed.kv_heads == changed.heads) changed.kv_heads = {width / head};
                         if (divides_width) changed.heads = {width / head};
                         changed.mlp_width = round_up(changed.mlp_width * width / changed.width, unit);
                         changed.width = width;
                     });
        }
        const std::int64_t padded = round_up(model.vocabulary, unit);
        if (padded != model.vocabulary)
            consider(fmt::format("vocabulary = {}{} leaves {} tokens per rank{}; pad it to {}", model.vocabulary,
                                 of_model, model.vocabulary / t,
                                 model.vocabulary % (8 * t) == 0 ? ", not a whole number of tiles"
                                                                 : ", not a multiple of 16 bytes",
                                 padded),
                     [&](config::ModelDescription& changed) { changed.vocabulary = padded; });
        const std::int64_t hidden = round_up(model.mlp_width, unit);
        if (hidden != model.mlp_width)
            consider(fmt::format("mlp_width = {}{} leaves {} columns per rank; try {}", model.mlp_width, of_model,
                                 model.mlp_width / t, hidden),
                     [&](config::ModelDescription& changed) { changed.mlp_width = hidden; });
    }
    return sentences;
}

CountAdvice advise_count(const config::Machine& machine, const SearchResult& result, const Limits& limits) {
    CountAdvice advice;
    std::map<std::int64_t, Candidate> best;
    for (const Candidate& candidate : result.fitting) {
        const auto found = best.find(candidate.devices);
        if (found == best.end() || candidate.price.time.total() < found->second.price.time.total())
            best[candidate.devices] = candidate;
    }
    for (auto& [devices, candidate] : best) advice.best.push_back(std::move(candidate));
    if (advice.best.empty()) return advice;
    const auto per_node = static_cast<std::int64_t>(machine.device.per_node);
    const auto left = [&](std::int64_t devices) -> std::string {
        if (machine.device.kind != config::MachineKind::gpu) return "its ranks share the node's cores";
        const std::int64_t free = devices % per_node == 0 ? 0 : per_node - devices % per_node;
        return free == 0
                   ? std::string("it uses whole nodes")
                   : fmt::format("{} of a node's {} stay{} free for others", free, per_node, free == 1 ? "s" : "");
    };
    if (limits.seconds > 0 || limits.gpu_hours > 0) {
        const Candidate& smallest = advice.best.front();
        advice.why = fmt::format("{} device{}: the smallest count that {}; {}, {:.1f} GPU-hours, {}", smallest.devices,
                                 plural(smallest.devices),
                                 limits.seconds > 0 ? fmt::format("finishes within {}", human_seconds(limits.seconds))
                                                    : "stays within the budget",
                                 human_seconds(smallest.job.total()), smallest.gpu_hours, left(smallest.devices));
        return advice;
    }
    const Candidate& smallest = advice.best.front();
    const double alone = smallest.tokens_per_second / static_cast<double>(smallest.devices);
    for (std::size_t i = 1; i < advice.best.size(); ++i) {
        const double here = advice.best[i].tokens_per_second / static_cast<double>(advice.best[i].devices);
        if (here >= good_use * alone) advice.recommended = i;
    }
    const Candidate& chosen = advice.best[advice.recommended];
    advice.why = fmt::format(
        "{} device{}: the largest count at which each delivers at least {:.0f} % of the throughput of {}; {}",
        chosen.devices, plural(chosen.devices), 100 * good_use,
        smallest.devices == 1 ? "a single one" : fmt::format("one of {}", smallest.devices), left(chosen.devices));
    return advice;
}

}  // namespace lockstep::plan
