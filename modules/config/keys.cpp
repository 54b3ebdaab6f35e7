#include "config/keys.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "base/error.hpp"
#include "base/format.hpp"

namespace lockstep::config {

namespace {

template <class... Functions>
struct Overloaded : Functions... {
    using Functions::operator()...;
};
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

constexpr double unbounded = -std::numeric_limits<double>::max();
constexpr double most_layers = 10'000, most_tokens = 1 << 30, most_ranks = 1 << 24, most_steps = 1e9;

std::string list_of(const std::vector<std::string>& items) {
    std::string text;
    for (const std::string& item : items) text += (text.empty() ? "" : ", ") + toml_text(item);
    return text;
}

// The shortest text that reads back as the same number, and as a float.
std::string number(double value) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
    std::string text = fmt::format("{}", value);
    if (text.find_first_of(".e") == std::string::npos) text += ".0";
    return text;
}

std::string mixture_text(const std::vector<WeightedPaths>& mixture) {
    std::string text;
    for (const WeightedPaths& part : mixture)
        text += fmt::format("{}{{path = {}, weight = {}}}", text.empty() ? "" : ", ",
                            part.paths.size() == 1 ? toml_text(part.paths.front()) : "[" + list_of(part.paths) + "]",
                            number(part.weight));
    return "[" + text + "]";
}

std::string groups_text(const std::vector<ParameterGroup>& groups) {
    std::string text;
    for (const ParameterGroup& group : groups) {
        text += fmt::format("{}{{match = {}", text.empty() ? "" : ", ", toml_text(group.match));
        if (group.lr != ParameterGroup::not_given) text += ", lr = " + number(group.lr);
        if (group.decay != ParameterGroup::not_given) text += ", decay = " + number(group.decay);
        text += "}";
    }
    return "[" + text + "]";
}

void add_run(std::vector<Key>& keys, RunSection& run) {
    keys.push_back(required(
        {"run.name", &run.name, "The run's name: the folder under `run.folder` and under `checkpoint.folder`."}));
    keys.push_back({"run.folder", &run.folder, "Parent folder of run folders."});
    keys.push_back({"run.seed", &run.seed, "Seed of the initial parameters and the data order."});
    keys.push_back({"run.device", choice_of(run.device), "Device to compute on."});
    keys.push_back(
        {"run.self_test", SwitchOrWord{choice_of(run.self_test)},
         "Check and measure matrix products, communication and the checkpoint folder before the first step; `full`: "
         "also run the checks of `lockstep doctor`."});
    keys.push_back({"run.bind", &run.bind, "Bind ranks, threads and memory to the cores that `lockstep topo` shows."});
    keys.push_back(
        {"run.tune_products", &run.tune_products,
         "On GPUs, time cuBLASLt's candidate algorithms for each kind of matrix product before the first step of a run "
         "and use the fastest; false: use the first candidate."});
    keys.push_back({"run.peak_tflops", &run.peak_tflops,
                    "Peak of one rank's device in TFLOP/s, the reference for the MFU in the log. 0: the built-in value "
                    "for known GPUs, else measured at the start."});
}

// The keys that kinds of a family registered, with pointers into `sections`.
void add_sections(std::vector<Key>& keys, Family family, const std::string& prefix, OptionSections& sections) {
    for (const std::string& section : kind_sections(family)) {
        Options& options = sections.change(section);
        const std::vector<OptionKey> registered = section_keys(family, section);
        for (std::size_t i = 0; i < registered.size(); ++i) {
            const OptionKey& option = registered[i];
            Options::Value& value = options.values().at(i);
            keys.push_back({prefix + section + "." + option.name,
                            std::visit([](auto& held) { return Member(&held); }, value.value),
                            option.meaning,
                            option.least,
                            option.most,
                            {},
                            false,
                            &value.given});
        }
    }
}

constexpr double most_heads = 1 << 20, widest_head = 1 << 16, most_rank = 1 << 16;

void add_model(std::vector<Key>& keys, ModelDescription& model) {
    std::vector<std::string> presets = preset_names();
    presets.insert(presets.begin(), "");
    keys.push_back(one_of(presets, {"model.preset", &model.preset, "A named model; other keys override its values."}));
    keys.push_back(one_of(kind_names(Family::mixer),
                          {"model.mixer", TextOrList{&model.mixers},
                           "Sequence mixer. A list assigns one mixer per block and repeats over the blocks."}));
    // Upper bounds, far above any model: numbers that allocate are refused before memory is touched.
    keys.push_back(required({"model.width", &model.width, "Width of the residual stream.", unbounded, 1 << 20}));
    keys.push_back(required({"model.layers", CountOrLayers{&model.layers, &model.layer_tables},
                             "Number of blocks, or tables [[model.layers]] that describe them in order.", unbounded,
                             most_layers}));
    keys.push_back(required({"model.heads", CountOrList{&model.heads},
                             "Heads of the mixer; must divide the width unless `head_width` is given. A list repeats "
                             "over the blocks.",
                             unbounded, most_heads}));
    keys.push_back({"model.kv_heads", CountOrList{&model.kv_heads},
                    "Key/value heads (grouped-query attention); must divide `heads`. 0: the same as `heads`. A list "
                    "repeats over the blocks.",
                    unbounded, most_heads});
    keys.push_back(later({"model.head_width", CountOrList{&model.head_widths},
                          "Width of an attention head, at most 256 on GPUs. 0: `width` / `heads`. A list repeats over "
                          "the blocks.",
                          unbounded, widest_head}));
    keys.push_back(
        {"model.mlp_width", &model.mlp_width, "Hidden width of the MLP. 0: 4 times the width.", unbounded, 1 << 24});
    keys.push_back(required({"model.vocabulary", &model.vocabulary, "Vocabulary size; at least that of the data."}));
    keys.push_back(required(
        {"model.context", &model.context, "Longest sequence the model supports, tokens.", unbounded, most_tokens}));
    keys.push_back({"model.norm", choice_of(model.norm), "Normalisation before each part of a block and at the end."});
    keys.push_back({"model.norm_epsilon", &model.norm_epsilon, "Added to the variance in these normalisations."});
    keys.push_back({"model.mlp", choice_of(model.mlp), "Activation of the MLP; `swiglu` has a gate."});
    keys.push_back(
        {"model.position", choice_of(model.position),
         "How attention encodes positions. TTT mixers rotate within their mini-batch; without a block of attention "
         "`rope` means `none`."});
    keys.push_back({"model.rope_theta", &model.rope_theta, "Base of the rotary frequencies."});
    keys.push_back(
        {"model.rope_scaling", choice_of(model.rope_scaling), "Scaling of the rotary frequencies for long contexts."});
    keys.push_back(
        later({"model.rope_factor", &model.rope_factor, "`llama3`: divisor of the long-wavelength frequencies."}));
    keys.push_back(later({"model.rope_low", &model.rope_low,
                          "`llama3`: wavelengths above `rope_original_context` / `rope_low` are fully scaled."}));
    keys.push_back(later({"model.rope_high", &model.rope_high,
                          "`llama3`: wavelengths below `rope_original_context` / `rope_high` are not scaled."}));
    keys.push_back(later({"model.rope_original_context", &model.rope_original_context,
                          "`llama3`: the context before scaling, tokens.", unbounded, most_tokens}));
    keys.push_back(later({"model.qk_norm", &model.qk_norm,
                          "RMSNorm with learned weights over each head's queries and keys, before the rotation."}));
    keys.push_back(later({"model.window", CountOrList{&model.windows},
                          "Attention window: the number of tokens a token attends to, itself included. 0: no limit. "
                          "A list repeats over the blocks.",
                          0, most_tokens}));
    keys.push_back(
        later({"model.score_cap", &model.score_cap,
               "Soft cap on attention scores: s becomes cap · tanh(s / cap) before the softmax. 0: none.", 0}));
    keys.push_back(
        later({"model.logit_cap", &model.logit_cap, "Soft cap on the head's logits, likewise. 0: none.", 0}));
    keys.push_back({"model.tied_head", &model.tied_head, "Share the embedding's parameters with the head."});
    keys.push_back(
        {"model.bias", choice_of(model.bias),
         "Which linear layers have a bias. The projections of TTT and Gated DeltaNet have none: `all` is the MLP there."});
    keys.push_back(
        {"model.frozen", &model.frozen, "Name patterns of parameters to freeze; `*` matches any text, including `/`."});
    keys.push_back({"model.adapters.rank", &model.adapters.rank,
                    "Rank of the LoRA adapters on linear layers; only they are trained. 0: no adapters.", 0,
                    most_rank});
    keys.push_back({"model.adapters.alpha", &model.adapters.alpha,
                    "An adapter's output is scaled by alpha / rank. 0: alpha = rank.", 0});
    keys.push_back(
        {"model.adapters.match", &model.adapters.match,
         "Name patterns of the layers with adapters, such as `*/mixer/query`; syntax as in `model.frozen`."});
    keys.push_back({"model.adapters.dropout", &model.adapters.dropout,
                    "Dropout probability p of an adapter's input in training; elements kept are scaled by 1 / (1 - p).",
                    0});
    add_sections(keys, Family::mixer, "model.", model.options);
}

}  // namespace

std::vector<Key> keys_of(LayerTable& layer) {
    return {{"count", &layer.count, "", 1, most_layers},
            one_of(kind_names(Family::mixer), {"mixer", &layer.mixer, ""}),
            {"window", &layer.window, "", 0, most_tokens},
            {"heads", &layer.heads, "", 1, most_heads},
            {"kv_heads", &layer.kv_heads, "", 0, most_heads},
            {"head_width", &layer.head_width, "", 0, widest_head}};
}

std::vector<Key> keys_of(ParameterGroup& group) {
    return {required({"match", &group.match, "a pattern of names"}),
            {"lr", &group.lr, "", 0},
            {"decay", &group.decay, "", 0}};
}

namespace {

void add_data(std::vector<Key>& keys, DataSection& data) {
    keys.push_back(
        required({"data.train", PathsOrMixture{&data.train, &data.mixture},
                  "Training data: token files (also those of Megatron-LM, llm.c and nanoGPT), text files, JSON Lines, "
                  "folders or glob patterns; or tables of them with weights."}));
    keys.push_back({"data.validation", PathsOrFraction{&data.validation, &data.validation_fraction},
                    "Validation data, likewise; or the fraction of training windows to hold out."});
    keys.push_back({"data.order", choice_of(data.order), "Order of the training windows."});
    keys.push_back({"data.documents", choice_of(data.documents),
                    "Whether tokens see other documents in their window: `joined`, all before them; `separate`, none, "
                    "which needs data that mark document ends."});
    keys.push_back(
        {"data.restart_positions", &data.restart_positions,
         "With `documents = \"separate\"`: learned positions restart at each document. No effect with `model.position = "
         "\"rope\"`."});
    keys.push_back(
        {"data.tokenizer", &data.tokenizer,
         "Tokenizer for plain text, also stored in checkpoints trained on `.bin` files: `bytes`, a sentencepiece "
         "`.model` file, a `tokenizer.json`, a folder with either, or a token file. `auto`: the one stored in the "
         "checkpoint of `init.from`, else `bytes`."});
    keys.push_back({"data.jsonl_field", &data.jsonl_field, "Name of the text field in JSON Lines."});
}

void add_batch(std::vector<Key>& keys, BatchSection& batch) {
    if (!batch.ramp) batch.ramp.emplace();
    keys.push_back(
        required({"batch.global", &batch.global, "Sequences per step, over all ranks.", unbounded, most_tokens}));
    keys.push_back({"batch.micro", &batch.micro, "Sequences per forward pass on one rank. 0: chosen automatically.",
                    unbounded, most_tokens});
    keys.push_back(
        {"batch.length", &batch.length, "Tokens per sequence. 0: the model's context.", unbounded, most_tokens});
    keys.push_back({"batch.ramp.start", &batch.ramp->start, "Sequences per step at the start of a batch ramp.",
                    unbounded, most_tokens});
    keys.push_back({"batch.ramp.increment", &batch.ramp->increment,
                    "Sequences added to a step per increment of the ramp.", unbounded, most_tokens});
    keys.push_back({"batch.ramp.samples", &batch.ramp->samples, "Sequences over which the ramp reaches `batch.global`.",
                    unbounded, most_steps});
}

void add_optimization(std::vector<Key>& keys, OptimizerSection& optimizer, ScheduleSection& schedule) {
    keys.push_back(one_of(kind_names(Family::optimizer), {"optimizer.kind", &optimizer.kind, "Optimizer."}));
    keys.push_back({"optimizer.beta1", &optimizer.beta1, "AdamW, and Muon's AdamW part: decay of the first moment."});
    keys.push_back({"optimizer.beta2", &optimizer.beta2, "AdamW, and Muon's AdamW part: decay of the second moment."});
    keys.push_back({"optimizer.epsilon", &optimizer.epsilon,
                    "AdamW, and Muon's AdamW part: added to the root of the second moment."});
    keys.push_back({"optimizer.weight_decay", &optimizer.weight_decay,
                    "Decoupled weight decay, multiplied by the learning rate."});
    keys.push_back({"optimizer.decay", choice_of(optimizer.decay),
                    "Parameters to decay: all, or matrices only (no norms, no biases)."});
    keys.push_back({"optimizer.groups", ListOfGroups{&optimizer.groups},
                    "Parameter groups with their own peak learning rate or weight decay, by name patterns as in "
                    "`model.frozen`; the first match applies."});
    keys.push_back({"optimizer.ema", &optimizer.ema,
                    "Decay of an exponential moving average (EMA) of the parameters. 0: no average.", 0});
    keys.push_back({"optimizer.clip", &optimizer.clip,
                    "Maximum global gradient norm; larger gradients are scaled down. 0: no clipping."});
    keys.push_back(
        {"optimizer.z_loss", &optimizer.z_loss,
         "Weight of the z-loss, log² Z of each token's logits (PaLM: 1e-4). Logged losses exclude it. 0: none."});
    keys.push_back({"optimizer.skip_limit", &optimizer.skip_limit,
                    "Consecutive steps skipped because of a non-finite loss before the run stops."});
    add_sections(keys, Family::optimizer, "optimizer.", optimizer.options);
    keys.push_back({"schedule.kind", choice_of(schedule.kind), "Learning-rate schedule after the warm-up."});
    keys.push_back({"schedule.steps", &schedule.steps, "Length of the run in steps. Set this or `epochs`.", unbounded,
                    most_steps});
    keys.push_back(
        {"schedule.epochs", &schedule.epochs, "Length of the run in passes over the training data.", unbounded, 1e9});
    keys.push_back({"schedule.warmup", &schedule.warmup,
                    "Steps over which the learning rate rises from 0 to `peak_lr`.", unbounded, most_steps});
    keys.push_back(required({"schedule.peak_lr", &schedule.peak_lr, "Peak learning rate."}));
    keys.push_back({"schedule.final_lr", &schedule.final_lr, "Final learning rate."});
    keys.push_back({"schedule.decay_steps", &schedule.decay_steps,
                    "`wsd`: length in steps of the final decay to `final_lr`. 0: a fifth of the run.", unbounded,
                    most_steps});
}

void add_machine(std::vector<Key>& keys, PrecisionSection& precision, ParallelSection& parallel) {
    keys.push_back(
        {"precision.compute", choice_of(precision.compute), "Data type of activations and matrix products."});
    keys.push_back({"precision.loss_scale.initial", &precision.loss_scale.initial, "fp16: initial loss scale."});
    keys.push_back({"precision.loss_scale.growth_interval", &precision.loss_scale.growth_interval,
                    "fp16: steps without overflow before the scale doubles."});
    keys.push_back({"precision.loss_scale.hysteresis", &precision.loss_scale.hysteresis,
                    "fp16: overflows before the scale halves."});
    keys.push_back({"precision.loss_scale.minimum", &precision.loss_scale.minimum, "fp16: minimum loss scale."});
    keys.push_back({"parallel.data", CountOrAuto{&parallel.data},
                    "Data parallelism: replicas of the model. `auto`: ranks / (tensor · pipeline · context)."});
    keys.push_back({"parallel.tensor", &parallel.tensor, "Tensor parallelism: ranks that share each layer.", unbounded,
                    most_ranks});
    keys.push_back({"parallel.pipeline", &parallel.pipeline,
                    "Pipeline parallelism: stages the layers are divided into.", unbounded, most_ranks});
    keys.push_back({"parallel.context", &parallel.context, "Context parallelism: ranks that share each sequence.",
                    unbounded, most_ranks});
    keys.push_back({"parallel.interleave", &parallel.interleave, "Interleaved pipeline: model chunks per stage.",
                    unbounded, most_layers});
    keys.push_back({"parallel.zero", &parallel.zero,
                    "ZeRO stage. Sharded over replicas: 1 optimizer state, 2 also gradients, 3 also parameters."});
    keys.push_back({"parallel.sequence", &parallel.sequence,
                    "Sequence parallelism: tensor ranks also divide the rows between layers, including norms."});
    keys.push_back(
        {"parallel.bucket_bytes", &parallel.bucket_bytes,
         "Size of a gradient bucket in bytes, reduced as soon as the backward pass has filled it. With parallel.zero of "
         "2 or 3 each block is one bucket."});
    keys.push_back({"parallel.lanes", &parallel.lanes,
                    "Number of lanes: parts of each batch whose gradients are summed in a fixed order, so that any "
                    "number of replicas that divides it gives the same bits. 0: off.",
                    unbounded, most_ranks});
    keys.push_back({"parallel.recompute", choice_of(parallel.recompute),
                    "Activation recomputation in the backward pass. `cheap`: norms and activations; "
                    "`selective`: also the MLP's first products; `full`: all but a block's input."});
    keys.push_back(
        {"parallel.offload", choice_of(parallel.offload),
         "On GPUs. `moments`: keep fp32 parameters and optimizer state in host memory and update them on the CPU."});
}

}  // namespace

std::vector<Key> keys_of(RunDescription& description) {
    std::vector<Key> keys;
    add_run(keys, description.run);
    add_model(keys, description.model);
    keys.push_back(
        {"init.from", &description.init.from,
         "Source of the initial parameters: a checkpoint, a run folder, a checkpoint folder, or a folder in Hugging "
         "Face format. Training starts at step 0. `[model]` keys that are not given come from it."});
    keys.push_back(
        {"init.base", &description.init.base,
         "New path of the base model, if it has moved since an adapter-only checkpoint (`init.from`, or the one "
         "resumed) was written. Empty: the recorded path."});
    add_data(keys, description.data);
    add_batch(keys, description.batch);
    add_optimization(keys, description.optimizer, description.schedule);
    add_machine(keys, description.precision, description.parallel);
    CheckpointSection& checkpoint = description.checkpoint;
    keys.push_back({"checkpoint.every", &checkpoint.every, "Steps between checkpoints. 0: only at the end."});
    keys.push_back({"checkpoint.every_minutes", &checkpoint.every_minutes, "Minutes between checkpoints. 0: off."});
    keys.push_back({"checkpoint.keep", &checkpoint.keep,
                    "Number of checkpoints to keep; older ones are removed. Fewer than 2 count as 2."});
    keys.push_back({"checkpoint.folder", &checkpoint.folder, "Parent folder of checkpoint folders, one per run name."});
    keys.push_back(
        {"checkpoint.verify", choice_of(checkpoint.verify),
         "When a checkpoint counts as complete. `read`: after it has been read back from disk and its checksums "
         "verified. `written`: after it has been written with checksums and synced."});
    keys.push_back({"checkpoint.adapters_alone", &checkpoint.adapters_alone,
                    "Checkpoints contain only the adapters and their optimizer state, and reference the base model, "
                    "which must be kept: `init.from`, or its base if that is itself adapter-only."});
    keys.push_back({"checkpoint.local", &checkpoint.local,
                    "Folder for local checkpoints, on each node's own disk or in memory. Empty: none."});
    keys.push_back({"checkpoint.local_every", &checkpoint.local_every, "Steps between local checkpoints. 0: none.",
                    unbounded, most_steps});
    keys.push_back({"checkpoint.partner", &checkpoint.partner,
                    "Keep a copy of each rank's part of a local checkpoint on another node."});
    keys.push_back(
        {"validation.every", &description.validation.every, "Steps between validations. 0: only at the end."});
    keys.push_back(
        {"validation.batches", CountOrAuto{&description.validation.batches, ValidationSection::automatic, 0},
         "Global batches per validation. `auto`: limited to a tenth of the training FLOP between two validations. 0: "
         "all validation data."});
    keys.push_back({"log.every", CountOrAuto{&description.log.every},
                    "Steps between log lines. `auto`: one about every 5 s. metrics.jsonl has every step."});
    keys.push_back({"log.tensorboard", &description.log.tensorboard,
                    "Also write each step's metrics for TensorBoard, to `tensorboard/` in the run folder."});
    keys.push_back({"trace.detail", choice_of(description.trace.detail), "Level of detail of the trace."});
    keys.push_back(
        {"trace.events_every", &description.trace.events_every,
         "Record individual events and their communication bytes (for `export --to chrome`) in the first step and in "
         "every step that is a multiple of this. 0: never."});
    keys.push_back(
        {"trace.counters", &description.trace.counters,
         "Read the energy counters, and on CPUs the processor counters, in every step, where there are any."});
    keys.push_back({"watchdog.seconds", &description.watchdog.seconds,
                    "A rank without progress for this long ends the run with exit code 5. 0: off."});
    keys.push_back(
        {"watchdog.first_step_seconds", &description.watchdog.first_step_seconds,
         "Likewise until the end of the first step. 0: off. `jobs/launch` also ends a launch without a sign of life "
         "after this time (0: never). Plain text is tokenized before the first sign; if that takes longer, raise the "
         "limit or use packed data."});
    keys.push_back(
        {"watchdog.link_seconds", &description.watchdog.link_seconds,
         "Seconds between probes of the inter-node links used by training; fewer probes if they would take more than "
         "0.1 % of the time. Slow links are named in the log. 0: off."});
    keys.push_back({"sync.mode", choice_of(description.sync.mode), "When the host waits for the device."});
    return keys;
}

std::string type_of(const Key& key) {
    const bool many = key.path == "model.preset";
    return std::visit(
        Overloaded{[&](const std::string*) -> std::string {
                       if (many) return "a preset's name";
                       return key.words.empty() ? "text" : "one of " + list_of(key.words);
                   },
                   [](const Choice& choice) { return "one of " + list_of(texts_of(choice.words)); },
                   [](std::monostate) -> std::string { return "a section"; },
                   [](const bool*) -> std::string { return "true or false"; },
                   [](const std::int64_t*) -> std::string { return "integer"; },
                   [](const std::uint64_t*) -> std::string { return "integer from 0"; },
                   [](const double*) -> std::string { return "number"; },
                   [](const std::vector<std::string>*) -> std::string { return "list of texts"; },
                   [&](const TextOrList&) -> std::string {
                       return (key.words.empty() ? "text" : "one of " + list_of(key.words)) + ", or a list of these";
                   },
                   [](const CountOrList&) -> std::string { return "integer, or a list of integers"; },
                   [](const CountOrLayers&) -> std::string { return "integer, or tables [[model.layers]]"; },
                   [](const ListOfGroups&) -> std::string { return "list of tables {match = …, lr = …, decay = …}"; },
                   [](const PathsOrMixture&) -> std::string {
                       return "list of paths, one path, or a list of tables {path = …, weight = …}";
                   },
                   [](const PathsOrFraction&) -> std::string {
                       return "list of paths, one path, or a fraction between 0 and 1";
                   },
                   [](const CountOrAuto& value) { return fmt::format("integer from {}, or \"auto\"", value.least); },
                   [](const SwitchOrWord& either) {
                       return "true or false, or " + list_of(texts_of(either.choice.words.subspan(2)));
                   }},
        key.member);
}

std::string value_of(const Key& key) {
    return std::visit(Overloaded{[](const std::string* text) { return toml_text(*text); },
                                 [](const Choice& choice) { return toml_text(choice.words[*choice.value]); },
                                 [](std::monostate) { return std::string(); },
                                 [](const bool* value) -> std::string { return *value ? "true" : "false"; },
                                 [](const std::int64_t* value) { return std::to_string(*value); },
                                 [](const std::uint64_t* value) { return std::to_string(*value); },
                                 [](const double* value) { return number(*value); },
                                 [](const std::vector<std::string>* list) { return "[" + list_of(*list) + "]"; },
                                 [](const TextOrList& texts) { return toml_text(*texts.list); },
                                 [](const CountOrList& counts) { return toml_text(*counts.list); },
                                 [](const CountOrLayers& layers) { return std::to_string(*layers.count); },
                                 [](const ListOfGroups& groups) { return groups_text(*groups.list); },
                                 [](const PathsOrMixture& either) {
                                     return either.mixture->empty() ? "[" + list_of(*either.list) + "]"
                                                                    : mixture_text(*either.mixture);
                                 },
                                 [](const PathsOrFraction& either) {
                                     return *either.fraction != 0 ? number(*either.fraction)
                                                                  : "[" + list_of(*either.list) + "]";
                                 },
                                 [](const CountOrAuto& value) -> std::string {
                                     return *value.count == value.automatic ? "\"auto\"" : std::to_string(*value.count);
                                 },
                                 [](const SwitchOrWord& either) -> std::string {
                                     const std::string_view word = either.choice.words[*either.choice.value];
                                     return *either.choice.value < 2 ? std::string(word) : toml_text(word);
                                 }},
                      key.member);
}

std::string toml_text(std::string_view text) {
    std::string result = "\"";
    for (const char character : text) {
        const auto byte = static_cast<unsigned char>(character);
        if (character == '"' || character == '\\') {
            result += '\\';
            result += character;
        } else if (byte < 0x20 || byte == 0x7f) {
            result += fmt::format("\\u{:04X}", static_cast<unsigned>(byte));
        } else {
            result += character;
        }
    }
    return result + "\"";
}

std::string toml_text(const std::vector<std::string>& texts) {
    return texts.size() == 1 ? toml_text(texts.front()) : "[" + list_of(texts) + "]";
}

std::string toml_text(const std::vector<std::int64_t>& numbers) {
    return numbers.size() == 1 ? std::to_string(numbers.front()) : fmt::format("[{}]", fmt::join(numbers, ", "));
}

void check_range(const Key& key, double value, const std::string& place) {
    if (value < 0 && key.least == 0) throw usage_error("{}{} = {}: it must not be negative", place, key.path, value);
    if (value < key.least) throw usage_error("{}{} = {}: it must be at least {}", place, key.path, value, key.least);
    if (value > key.most) throw usage_error("{}{} = {}: it must be at most {}", place, key.path, value, key.most);
}

void check_word(const Key& key, const std::string& value, const std::string& place) {
    if (key.words.empty()) return;
    std::vector<std::string> words;  // the empty text is allowed where it means "not given", but is no suggestion
    for (const std::string& word : key.words) {
        if (word == value) return;
        if (!word.empty()) words.push_back(word);
    }
    refuse_word(place + key.path, value, words);
}

}  // namespace lockstep::config
