#include "plan/plan_request.hpp"

#include <cctype>
#include <charconv>

#include "base/error.hpp"
#include "base/whole_file.hpp"

namespace lockstep::plan {

std::vector<config::Key> PlanRequest::keys() {
    return {
        {"hardware", &hardware, "machine description: a shipped name or a file"},
        config::one_of(cost::program_names(), {"program", &program, "program to plan for"}),
        {"gpus", &gpus, "counts to compare, \"1, 2, 4\""},
        {"nodes", &nodes, "whole nodes, instead of gpus", 0, 1e6},
        {"ranks_per_node", &ranks_per_node, "ranks per node; 0: one per device", 0, 1e6},
        {"within", &within, "time limit of the job, \"12h\""},
        {"budget_gpu_hours", &budget_gpu_hours, "budget of the job in GPU-hours", 0, 1e12},
        {"memory_limit_gib", &memory_limit_gib, "usable memory in GiB, per GPU, on CPUs per node", 0, 1e6},
        {"by", config::choice_of(by), "how to rank the layouts"},
        {"tensor", &tensor, "allowed values of parallel.tensor, \"4, 8\""},
        {"pipeline", &pipeline, "of parallel.pipeline"},
        {"context", &context, "of parallel.context"},
        {"micro", &micro, "of batch.micro"},
        {"interleave", &interleave, "of parallel.interleave"},
        {"zero", &zero, "of parallel.zero"},
        {"sequence", &sequence, "of parallel.sequence"},
        {"recompute", &recompute, "of parallel.recompute"},
        {"models", std::monostate{}, "the job's models"},
    };
}

PlanRequest read_plan_request(const std::string& path) {
    PlanRequest request;
    config::read_keys(read_text_file(path), path, request.keys(), "plan");
    return request;
}

std::vector<cost::ModelLoad> read_plan_models(const std::string& path) {
    const std::string text = read_text_file(path);
    const std::size_t count = config::count_tables(text, path, "plan.models");
    constexpr std::int64_t longest = std::int64_t{1} << 20;  // tokens; batch.length says how long sequences are
    std::vector<cost::ModelLoad> models;
    for (std::size_t i = 0; i < count; ++i) {
        const std::string where = fmt::format("plan.models[{}]", i);
        cost::ModelLoad load;
        std::string preset, frozen;
        // First, since the other keys override what it gives.
        config::read_keys(text, path, {{"preset", &preset, ""}}, where, true);
        config::ModelDescription& model = load.shape;
        if (preset.empty())
            model.tied_head = false;
        else
            model = config::preset_values(preset, path + ": ");
        config::read_keys(
            text, path,
            {
                config::required({"name", &load.name, "name of the model"}),
                {"preset", &preset, "a named model"},
                config::one_of(config::kind_names(config::Family::mixer),
                               {"mixer", config::TextOrList{&model.mixers}, "token mixer"}),
                {"mlp", config::choice_of(model.mlp), "activation of the MLP"},
                {"width", &model.width, "width of the residual stream", 1, 1e7},
                {"layers", &model.layers, "blocks", 1, 1e5},
                {"heads", &model.heads.front(), "heads of the mixer", 1, 1e5},
                {"kv_heads", &model.kv_heads.front(), "heads of keys and values", 0, 1e5},
                {"head_width", &model.head_widths.front(), "width of an attention head", 0, 1 << 16},
                {"qk_norm", &model.qk_norm, "norms of queries and keys"},
                {"mlp_width", &model.mlp_width, "hidden width of the MLP", 0, 1e7},
                {"vocabulary", &model.vocabulary, "size of the vocabulary in tokens", 1, 1e9},
                {"tied_head", &model.tied_head, "share the embedding's weights with the head"},
                {"frozen", &frozen, "pattern of names of parameters that are not trained"},
                {"adapters", &load.adapters, "trained parameters in addition to the model's own", 0, 1e13},
            },
            where);
        model.context = longest;
        config::resolve(model);
        if (model.width < 1 || model.layers < 1 || model.heads.front() < 1 || model.vocabulary < 1)
            throw usage_error("{}: [[plan.models]] \"{}\": give width, layers, heads and vocabulary, or a preset", path,
                              load.name);
        config::check(model);
        if (!frozen.empty()) {
            cost::measure(load);
            const double before = load.trained;
            model.frozen = {frozen};
            cost::measure(load);
            if (load.trained == before)
                throw usage_error("{}: [[plan.models]] \"{}\": frozen = \"{}\" matches no parameter", path, load.name,
                                  frozen);
        }
        cost::measure(load);
        models.push_back(std::move(load));
    }
    return models;
}

std::vector<std::string> words_of(const std::string& text) {
    std::vector<std::string> words;
    std::string word;
    for (const char character : text + ",") {
        if (character == ',' || character == ' ') {
            if (!word.empty()) words.push_back(word);
            word.clear();
        } else {
            word += character;
        }
    }
    return words;
}

std::vector<std::int64_t> counts_of(const std::string& text, const std::string& key) {
    std::vector<std::int64_t> counts;
    for (const std::string& word : words_of(text)) {
        std::int64_t value = 0;
        const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), value);
        if (problem != std::errc() || end != word.data() + word.size() || value < 0 || value > 10'000'000)
            throw usage_error("{} = \"{}\": give whole numbers, separated by commas", key, text);
        counts.push_back(value);
    }
    return counts;
}

double seconds_of(const std::string& text, const std::string& key) {
    double seconds = 0;
    std::size_t at = 0;
    const auto refuse = [&]() -> Error {
        return usage_error("{} = \"{}\": give a time such as 12h, 90m or 1d12h", key, text);
    };
    while (at < text.size()) {
        std::size_t end = at;
        while (end < text.size() && (std::isdigit(static_cast<unsigned char>(text[end])) != 0 || text[end] == '.'))
            ++end;
        if (end == at || end == text.size()) throw refuse();
        double value = 0;
        const auto [stop, problem] = std::from_chars(text.data() + at, text.data() + end, value);
        if (problem != std::errc() || stop != text.data() + end) throw refuse();
        switch (text[end]) {
            case 's':
                seconds += value;
                break;
            case 'm':
                seconds += value * 60;
                break;
            case 'h':
                seconds += value * 3600;
                break;
            case 'd':
                seconds += value * 86400;
                break;
            default:
                throw refuse();
        }
        at = end + 1;
    }
    if (seconds <= 0) throw refuse();
    return seconds;
}

}  // namespace lockstep::plan
