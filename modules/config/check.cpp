#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "base/error.hpp"
#include "base/format.hpp"
#include "config/keys.hpp"

namespace lockstep::config {

namespace {

using Named = std::pair<const char*, std::int64_t>;

void check_at_least(std::int64_t least, std::initializer_list<Named> values) {
    for (const auto& [key, value] : values)
        if (value < least) throw usage_error("{} = {}: it must be at least {}", key, value, least);
}

void check_not_negative(std::initializer_list<std::pair<const char*, double>> values) {
    for (const auto& [key, value] : values)
        if (!(value >= 0)) throw usage_error("{} = {}: it must not be negative", key, value);
}

void check_positive(std::initializer_list<std::pair<const char*, double>> values) {
    for (const auto& [key, value] : values)
        if (!(value > 0)) throw usage_error("{} = {}: it must be greater than 0", key, value);
}

// Keys that must be given and are not, with what to do about each: told together.
class Missing {
  public:
    void check(const char* key, bool given, const char* how) {
        if (!given) keys_.push_back({key, how});
    }
    void refuse() const {
        if (keys_.empty()) return;
        if (keys_.size() == 1) throw usage_error("{} is missing; {}", keys_.front().name, keys_.front().how);
        std::string all;
        for (std::size_t i = 0; i < keys_.size(); ++i) {
            all += keys_[i].name;
            const bool last = i + 1 == keys_.size();
            const bool same = !last && std::string_view(keys_[i].how) == keys_[i + 1].how;
            all += same ? ", " : fmt::format(" ({}){}", keys_[i].how, last ? "" : "; ");
        }
        throw usage_error("{} keys are missing: {}", keys_.size(), all);
    }

  private:
    struct MissingKey {
        const char *name, *how;
    };
    std::vector<MissingKey> keys_;
};

std::int64_t least_of(const std::vector<std::int64_t>& list) {
    return *std::min_element(list.begin(), list.end());
}

void check_given(const ModelDescription& model, Missing& missing) {
    for (const auto& [key, value] :
         {Named{"model.width", model.width}, Named{"model.layers", model.layers},
          Named{"model.heads", *std::max_element(model.heads.begin(), model.heads.end())},
          Named{"model.vocabulary", model.vocabulary}, Named{"model.context", model.context}})
        missing.check(key, value != 0, "give it or a model.preset");
}

void check_given(const RunDescription& description) {
    const auto& [run, data, batch, schedule] =
        std::tie(description.run, description.data, description.batch, description.schedule);
    Missing missing;
    missing.check("run.name", !run.name.empty(), "give the run a name, for example --set run.name=first");
    missing.check("run.folder", !run.folder.empty(), "the default is \"runs\"");
    check_given(description.model, missing);
    missing.check(
        "data.train", !data.train.empty() || !data.mixture.empty(),
        "name a token file made by lockstep pack, a text file or a folder, for example --set data.train=tokens.h5");
    missing.check("data.tokenizer", !data.tokenizer.empty(),
                  "use \"auto\", \"bytes\" or the path of a sentencepiece .model file or a tokenizer.json");
    missing.check("data.jsonl_field", !data.jsonl_field.empty(), "the default is \"text\"");
    missing.check("batch.global", batch.global != 0, "give the number of sequences per step");
    missing.check("schedule.steps", schedule.steps != 0 || schedule.epochs != 0,
                  "give the length of the run as schedule.steps or schedule.epochs");
    missing.check("schedule.peak_lr", schedule.peak_lr != 0, "give the highest learning rate");
    missing.check("checkpoint.folder", !description.checkpoint.folder.empty(), "the default is \"checkpoints\"");
    missing.refuse();
}

// `section`: of keys below it only ("model."), "" for all.
void check_numbers_and_words(const RunDescription& description, const std::string& section) {
    RunDescription copy = description;
    for (const Key& key : keys_of(copy)) {
        if (!key.path.starts_with(section)) continue;
        if (const auto* text = std::get_if<std::string*>(&key.member)) check_word(key, **text, "");
        if (const auto* texts = std::get_if<TextOrList>(&key.member))
            for (const std::string& text : *texts->list) check_word(key, text, "");
        if (const auto* counts = std::get_if<CountOrList>(&key.member))
            for (const std::int64_t count : *counts->list) check_range(key, static_cast<double>(count), "");
        if (const auto* layers = std::get_if<CountOrLayers>(&key.member))
            check_range(key, static_cast<double>(*layers->count), "");
        if (const auto* number = std::get_if<double*>(&key.member); number && !std::isfinite(**number))
            throw usage_error("{} = {}: it must be finite", key.path, **number);
        if (const auto* number = std::get_if<double*>(&key.member)) check_range(key, **number, "");
        if (const auto* number = std::get_if<std::int64_t*>(&key.member))
            check_range(key, static_cast<double>(**number), "");
    }
}

constexpr std::string_view name_characters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-",
                           not_at_the_beginning = ".-";
constexpr std::size_t longest_name = 200;

void check_run(const RunSection& run) {
    const bool plain = run.name.find_first_not_of(name_characters) == std::string::npos;
    if (!plain || run.name.find_first_of(not_at_the_beginning) == 0 || run.name.size() > longest_name)
        throw usage_error(
            "run.name = {}: it names a folder; use letters, digits, '.', '_' and '-', not starting with '.' or '-', at "
            "most {}",
            toml_text(run.name), longest_name);
}

void check_data(const DataSection& data) {
    const auto check_paths = [](const std::vector<std::string>& paths, const char* key) {
        if (std::find(paths.begin(), paths.end(), "") != paths.end())
            throw usage_error("{} holds an empty path; remove it", key);
    };
    check_paths(data.train, "data.train");
    check_paths(data.validation, "data.validation");
    for (const WeightedPaths& part : data.mixture) check_paths(part.paths, "data.train");
    if (data.validation_fraction != 0 && !(data.validation_fraction > 0 && data.validation_fraction < 1))
        throw usage_error("data.validation = {}: a fraction lies between 0 and 1, both excluded",
                          data.validation_fraction);
}

void check_batch(const BatchSection& batch, const ModelDescription& model) {
    check_at_least(1, {{"batch.global", batch.global}});
    check_at_least(0, {{"batch.micro", batch.micro}, {"batch.length", batch.length}});
    if (batch.micro > 0 && batch.global % batch.micro != 0)
        throw usage_error(
            "batch.micro = {} does not divide batch.global = {}; choose a divisor, or 0 to have one chosen",
            batch.micro, batch.global);
    if (batch.length > model.context)
        throw usage_error(
            "batch.length = {} is more than model.context = {}; shorten the sequences or raise the context",
            batch.length, model.context);
    // So that no size in bytes overflows.
    const double widest =
        static_cast<double>(std::max({model.width, widest_layer(model), model.mlp_width, model.vocabulary}));
    const double numbers = static_cast<double>(std::max<std::int64_t>(1, batch.micro) * batch.length) * widest;
    if (constexpr double most = 1e13; numbers > most)
        throw usage_error(
            "batch.micro = {} x batch.length = {} tokens of a model {:.0f} wide are {:.1e} numbers in one activation, "
            "more than a machine has memory for; lower one of them",
            batch.micro, batch.length, widest, numbers);
    if (!batch.ramp) return;
    check_at_least(1, {{"batch.ramp.start", batch.ramp->start},
                       {"batch.ramp.increment", batch.ramp->increment},
                       {"batch.ramp.samples", batch.ramp->samples}});
    if (constexpr std::int64_t most = 100'000; (batch.global - batch.ramp->start) / batch.ramp->increment > most)
        throw usage_error("batch.ramp has more than {} sizes on its way to batch.global = {}; raise its increment",
                          most, batch.global);
    if (batch.ramp->start > batch.global || (batch.global - batch.ramp->start) % batch.ramp->increment != 0)
        throw usage_error(
            "batch.ramp does not reach batch.global = {} from start = {} in whole increments of {}; change one of them",
            batch.global, batch.ramp->start, batch.ramp->increment);
}

void check_optimizer(const OptimizerSection& optimizer) {
    for (const auto& [key, beta] :
         {std::pair{"optimizer.beta1", optimizer.beta1}, std::pair{"optimizer.beta2", optimizer.beta2}})
        if (!(beta >= 0 && beta < 1)) throw usage_error("{} = {}: it must be at least 0 and less than 1", key, beta);
    if (optimizer.ema >= 1) throw usage_error("optimizer.ema = {}: it must be less than 1", optimizer.ema);
    check_positive({{"optimizer.epsilon", optimizer.epsilon}});
    check_not_negative({{"optimizer.weight_decay", optimizer.weight_decay},
                        {"optimizer.clip", optimizer.clip},
                        {"optimizer.z_loss", optimizer.z_loss}});
    check_at_least(1, {{"optimizer.skip_limit", optimizer.skip_limit}});
    if (optimizer.groups.size() > most_groups)
        throw usage_error("optimizer.groups has {} tables; at most {} are possible: merge some",
                          optimizer.groups.size(), most_groups);
    for (const ParameterGroup& group : optimizer.groups)
        if (group.lr == ParameterGroup::not_given && group.decay == ParameterGroup::not_given)
            throw usage_error("optimizer.groups: the group of \"{}\" has neither lr nor decay; give it one of them",
                              group.match);
}

void check_schedule(const ScheduleSection& schedule) {
    check_at_least(0, {{"schedule.steps", schedule.steps},
                       {"schedule.warmup", schedule.warmup},
                       {"schedule.decay_steps", schedule.decay_steps}});
    check_not_negative({{"schedule.epochs", schedule.epochs}, {"schedule.final_lr", schedule.final_lr}});
    if (schedule.steps > 0 && schedule.epochs > 0)
        throw usage_error(
            "schedule.steps = {} and schedule.epochs = {} both give the length of the run; keep one and set the other "
            "to 0",
            schedule.steps, schedule.epochs);
    check_positive({{"schedule.peak_lr", schedule.peak_lr}});
    if (schedule.final_lr > schedule.peak_lr)
        throw usage_error(
            "schedule.final_lr = {} is more than schedule.peak_lr = {}; the rate falls towards it, so lower it",
            schedule.final_lr, schedule.peak_lr);
    if (schedule.kind == ScheduleKind::constant && schedule.final_lr != 0 && schedule.final_lr != schedule.peak_lr)
        throw usage_error(
            "schedule.final_lr = {}: a constant schedule stays at schedule.peak_lr = {}; remove final_lr or choose "
            "another kind",
            schedule.final_lr, schedule.peak_lr);
    if (schedule.kind != ScheduleKind::wsd && schedule.decay_steps != 0)
        throw usage_error(
            "schedule.decay_steps = {} belongs to schedule.kind = \"wsd\", but the kind is {}; remove it or change the "
            "kind",
            schedule.decay_steps, toml_text(word_of(schedule.kind)));
    if (schedule.steps > 0 && schedule.warmup > schedule.steps)
        throw usage_error("schedule.warmup = {} is more than schedule.steps = {}; shorten the warm-up", schedule.warmup,
                          schedule.steps);
    if (schedule.steps > 0 && schedule.warmup + schedule.decay_steps > schedule.steps)
        throw usage_error(
            "schedule.warmup = {} and schedule.decay_steps = {} together exceed schedule.steps = {}; shorten one",
            schedule.warmup, schedule.decay_steps, schedule.steps);
}

void check_machine(const RunDescription& description) {
    const LossScale& scale = description.precision.loss_scale;
    check_positive({{"precision.loss_scale.initial", scale.initial}, {"precision.loss_scale.minimum", scale.minimum}});
    if (scale.initial < scale.minimum)
        throw usage_error(
            "precision.loss_scale.initial = {} is less than precision.loss_scale.minimum = {}; raise the first or "
            "lower the second",
            scale.initial, scale.minimum);
    check_at_least(1, {{"precision.loss_scale.growth_interval", scale.growth_interval},
                       {"precision.loss_scale.hysteresis", scale.hysteresis}});
    const ParallelSection& parallel = description.parallel;
    check_at_least(
        0, {{"parallel.data", parallel.data}, {"parallel.zero", parallel.zero}, {"parallel.lanes", parallel.lanes}});
    check_at_least(1, {{"parallel.tensor", parallel.tensor},
                       {"parallel.pipeline", parallel.pipeline},
                       {"parallel.context", parallel.context},
                       {"parallel.interleave", parallel.interleave},
                       {"parallel.bucket_bytes", parallel.bucket_bytes}});
    if (parallel.zero > 3) throw usage_error("parallel.zero = {}: the stages are 0 to 3", parallel.zero);
    if (parallel.offload != Offload::none && description.precision.compute == Precision::fp16)
        throw usage_error(
            "parallel.offload = \"moments\" updates on the CPU, which has no fp16: set precision.compute = \"bf16\"");
    if (parallel.zero > 1 && parallel.lanes > 0)
        throw usage_error(
            "parallel.zero = {} shards gradients, but parallel.lanes = {} needs whole sums of them; set parallel.zero "
            "to 0 or 1, or parallel.lanes to 0",
            parallel.zero, parallel.lanes);
    check_not_negative({{"run.peak_tflops", description.run.peak_tflops}});
    check_not_negative({{"watchdog.seconds", description.watchdog.seconds},
                        {"watchdog.first_step_seconds", description.watchdog.first_step_seconds},
                        {"watchdog.link_seconds", description.watchdog.link_seconds}});
}

void check_files(const CheckpointSection& checkpoint, const ValidationSection& validation, const DataSection& data) {
    check_at_least(0, {{"checkpoint.every", checkpoint.every},
                       {"checkpoint.local_every", checkpoint.local_every},
                       {"validation.every", validation.every}});
    if (checkpoint.local.starts_with('~') || checkpoint.local.find('$') != std::string::npos)
        throw usage_error(
            "checkpoint.local = {}: ~ and variables are not expanded here; write the folder's whole path, or let the shell "
            "expand it: --set checkpoint.local=\"$TMPDIR\"",
            toml_text(checkpoint.local));
    if (checkpoint.local_every > 0 && checkpoint.local.empty())
        throw usage_error(
            "checkpoint.local_every = {}, but there is no checkpoint.local; give a folder on each node's own disk, for "
            "example \"/local/scratch\"",
            checkpoint.local_every);
    check_at_least(ValidationSection::automatic, {{"validation.batches", validation.batches}});
    if (constexpr std::int64_t most = 1'000'000'000; validation.batches > most)
        throw usage_error("validation.batches = {}: it must be at most {}; 0 takes all", validation.batches, most);
    check_not_negative({{"checkpoint.every_minutes", checkpoint.every_minutes}});
    check_at_least(1, {{"checkpoint.keep", checkpoint.keep}});
    if (validation.every > 0 && data.validation.empty() && data.validation_fraction == 0)
        throw usage_error(
            "validation.every = {}, but there is no data.validation; give files, or a fraction of the training data "
            "such as 0.05",
            validation.every);
}

// A feature that is switched on in another mixer's section would have no effect.
void check_other_mixers(const ModelDescription& model) {
    const std::vector<const Kind*> chosen = mixers_of(model);
    for (const std::string& section : kind_sections(Family::mixer)) {
        if (std::any_of(chosen.begin(), chosen.end(), [&](const Kind* kind) { return kind->section() == section; }))
            continue;
        const Options options = model.options.at(section);
        for (const Options::Value& option : options.values()) {
            if (option.value != OptionValue(true)) continue;
            throw usage_error(
                "model.{}.{} = true belongs to the mixers {}, but model.mixer = {}; remove it or change the mixer",
                section, option.name, joined(names_of_section(Family::mixer, section), "and"), toml_text(model.mixers));
        }
    }
}

void check_heads(const ModelDescription& model, const LayerShape& layer) {
    if (layer.head_width == 0 && model.width % layer.heads != 0)
        throw usage_error(
            "model.heads = {} does not divide model.width = {}; choose a divisor, or give model.head_width",
            layer.heads, model.width);
    if (constexpr std::int64_t most = 1 << 22; layer.query_columns() > most)
        throw usage_error("model.heads = {} of model.head_width = {} are {} columns, more than {}; lower one of them",
                          layer.heads, layer.head_width, layer.query_columns(), most);
    if (layer.kv_heads > 0 && layer.heads % layer.kv_heads != 0)
        throw usage_error("model.kv_heads = {} does not divide model.heads = {}; choose a divisor, or 0 for as many",
                          layer.kv_heads, layer.heads);
}

void check_layer(const ModelDescription& model, std::int64_t block) {
    try {
        check_heads(model, model.layer(block));
        if (const Kind* mixer = find_kind(Family::mixer, model.mixer(block))) mixer->check(model, model.layer(block));
    } catch (const Error& error) {
        if (model.period() == 1) throw;
        throw error.with_sentence(fmt::format("layer {}: {}", block, error.what()));
    }
}

void check_rope_scaling(const ModelDescription& model) {
    check_positive({{"model.rope_factor", model.rope_factor},
                    {"model.rope_low", model.rope_low},
                    {"model.rope_high", model.rope_high}});
    check_at_least(1, {{"model.rope_original_context", model.rope_original_context}});
    if (model.rope_high <= model.rope_low)
        throw usage_error(
            "model.rope_high = {} must be greater than model.rope_low = {}; wavelengths between them are scaled in "
            "part",
            model.rope_high, model.rope_low);
    if (model.rope_scaling != RopeScaling::none) return;
    const ModelDescription plain;
    const auto refuse = [](const char* key, auto value, auto usual) {
        if (value != usual)
            throw usage_error(
                "{} = {} belongs to model.rope_scaling = \"llama3\", but that is \"none\"; set rope_scaling, or {} to "
                "its default {}",
                key, value, key, usual);
    };
    refuse("model.rope_factor", model.rope_factor, plain.rope_factor);
    refuse("model.rope_low", model.rope_low, plain.rope_low);
    refuse("model.rope_high", model.rope_high, plain.rope_high);
    refuse("model.rope_original_context", model.rope_original_context, plain.rope_original_context);
}

}  // namespace

void check_ranges(const ModelDescription& model) {
    if (model.mixers.empty()) throw usage_error("model.mixer is empty; the default is \"attention\"");
    if (model.windows.empty()) throw usage_error("model.window is empty; the default is 0, no window");
    for (const auto& [key, list] : {std::pair("heads", &model.heads), std::pair("kv_heads", &model.kv_heads),
                                    std::pair("head_width", &model.head_widths)})
        if (list->empty()) throw usage_error("model.{} is empty; give one number, or one for each of some blocks", key);
    RunDescription whole;
    whole.model = model;
    check_numbers_and_words(whole, "model.");
}

void check(const ModelDescription& model) {
    check_ranges(model);
    if (model.adapters.rank > 0 && !model.frozen.empty())
        throw usage_error("model.adapters.rank = {} trains adapters alone, whatever is frozen: remove model.frozen",
                          model.adapters.rank);
    if (model.adapters.rank == 0 && model.adapters != Adapters())
        throw usage_error(
            "model.adapters.{} is given, but model.adapters.rank = 0: give the rank of the adapters, or remove "
            "[model.adapters] to train all parameters",
            model.adapters.alpha != 0     ? "alpha"
            : model.adapters.dropout != 0 ? "dropout"
                                          : "match");
    if (model.adapters.dropout >= 1)
        throw usage_error("model.adapters.dropout = {}: it must be less than 1", model.adapters.dropout);
    if (model.adapters.rank > 0 && model.adapters.match.empty())
        throw usage_error(
            "model.adapters.match is empty, so no layer has an adapter; give patterns, such as [\"*\"] for all layers");
    Missing missing;
    check_given(model, missing);
    missing.refuse();
    check_at_least(1, {{"model.width", model.width},
                       {"model.layers", model.layers},
                       {"model.heads", least_of(model.heads)},
                       {"model.vocabulary", model.vocabulary},
                       {"model.context", model.context}});
    check_at_least(0, {{"model.kv_heads", least_of(model.kv_heads)},
                       {"model.head_width", least_of(model.head_widths)},
                       {"model.mlp_width", model.mlp_width}});
    check_positive({{"model.norm_epsilon", model.norm_epsilon}, {"model.rope_theta", model.rope_theta}});
    if (model.vocabulary > 2147483647)
        throw usage_error("model.vocabulary = {}: tokens are 32-bit numbers; it must be at most 2147483647",
                          model.vocabulary);
    check_rope_scaling(model);
    // Beyond these a cap is none, or leaves nothing, in numbers of 32 bits.
    for (const auto& [key, cap] :
         {std::pair("model.score_cap", model.score_cap), std::pair("model.logit_cap", model.logit_cap)})
        if (constexpr double least = 0.01, most = 10000; cap != 0 && (cap < least || cap > most))
            throw usage_error("{} = {}: it must lie between {} and {}, or be 0 for no cap", key, cap, least, most);
    for (const auto& [key, blocks] :
         {std::pair("model.mixer", model.mixers.size()), std::pair("model.window", model.windows.size()),
          std::pair("model.heads", model.heads.size()), std::pair("model.kv_heads", model.kv_heads.size()),
          std::pair("model.head_width", model.head_widths.size())})
        if (static_cast<std::int64_t>(blocks) > model.layers)
            throw usage_error(
                "{} lists {} blocks, but model.layers = {}; shorten the list, which is repeated over the layers, or "
                "raise model.layers",
                key, blocks, model.layers);
    check_other_mixers(model);
    for (std::int64_t block = 0; block < model.period(); ++block) check_layer(model, block);
}

void check(const RunDescription& description) {
    check_numbers_and_words(description, "");
    check_given(description);
    check_run(description.run);
    check(description.model);
    check_data(description.data);
    check_batch(description.batch, description.model);
    if (description.checkpoint.adapters_alone && description.model.adapters.rank == 0)
        throw usage_error(
            "checkpoint.adapters_alone = true, but the model has no adapters: set model.adapters.rank, or leave the key "
            "out");
    check_optimizer(description.optimizer);
    check_schedule(description.schedule);
    check_machine(description);
    check_files(description.checkpoint, description.validation, description.data);
}

std::string plain_name(const std::string& text) {
    std::string name;
    for (const char character : text)
        if (name_characters.find(character) != std::string_view::npos) name += character;
    name.erase(0, name.find_first_not_of(not_at_the_beginning));
    return name.empty() ? "model" : name.substr(0, longest_name);
}

}  // namespace lockstep::config
