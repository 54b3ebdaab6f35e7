// lockstep generate: text from a checkpoint
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>

#include "base/command_line.hpp"
#include "base/log.hpp"
#include "base/plural.hpp"
#include "base/random.hpp"
#include "base/utf8.hpp"
#include "base/whole_file.hpp"
#include "cluster/placement.hpp"
#include "command.hpp"
#include "data/tokenizer.hpp"
#include "device/parallel.hpp"
#include "layout/devices.hpp"
#include "model/decoder.hpp"
#include "train/kept_tokenizer.hpp"
#include "train/model_file.hpp"

namespace lockstep::commands {
namespace {

constexpr std::int64_t default_tokens = 200;

struct Options {
    bool ema = false;
    std::string checkpoint, base, prompt_file, device = "auto";
    std::optional<std::string> prompt;
    std::optional<std::int64_t> tokens;  // none: 200, or as many as the model has positions for
    std::int64_t top_k = 0;
    std::uint64_t seed = 1;
    double temperature = 0.8, top_p = 1;
};

// Samples from softmax(logits / temperature) over the top_k most likely tokens, and of these the fewest that have
// top_p of the probability (Holtzman et al.: The Curious Case of Neural Text Degeneration, 2020). Temperature 0 is
// greedy.
std::int32_t draw(const float* logits, std::int64_t vocabulary, const Options& options, double uniform) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(vocabulary));
    std::iota(order.begin(), order.end(), 0);
    const auto likelier = [&](std::int32_t a, std::int32_t b) {
        return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
    };
    if (options.temperature == 0) return *std::min_element(order.begin(), order.end(), likelier);
    const std::int64_t kept = options.top_k > 0 ? std::min(options.top_k, vocabulary) : vocabulary;
    std::partial_sort(order.begin(), order.begin() + kept, order.end(), likelier);
    std::vector<double> weights;
    double total = 0;
    for (std::int64_t i = 0; i < kept; ++i) {
        weights.push_back(
            std::exp((logits[order[static_cast<std::size_t>(i)]] - logits[order[0]]) / options.temperature));
        total += weights.back();
    }
    if (options.top_p < 1) {
        double sum = 0;
        std::size_t count = 0;
        while (count < weights.size() && sum < options.top_p * total) sum += weights[count++];
        weights.resize(std::max<std::size_t>(1, count));
        total = std::accumulate(weights.begin(), weights.end(), 0.0);
    }
    double left = uniform * total;
    for (std::size_t i = 0; i < weights.size(); ++i) {
        left -= weights[i];
        if (left < 0) return order[i];
    }
    return order[weights.size() - 1];
}

// A folder's tokenizer may have tokens that its model does not.
void check_known(const std::vector<std::int32_t>& prompt, std::int64_t vocabulary, const std::string& checkpoint) {
    for (const std::int32_t token : prompt)
        if (token >= vocabulary)
            throw usage_error(
                "the prompt has token {}, but the model of {} has {} tokens; its tokenizer belongs to another model",
                token, checkpoint, vocabulary);
}

int generate(const Options& options) {
    if (!(options.temperature >= 0))
        throw usage_error("--temperature is {}; it must be 0 or more", options.temperature);
    if (!(options.top_p > 0 && options.top_p <= 1))
        throw usage_error("--top-p is {}; it must be above 0 and at most 1", options.top_p);
    if (options.prompt.has_value() == !options.prompt_file.empty())
        throw usage_error("give either --prompt or --prompt-file");
    const std::string text_before = options.prompt ? *options.prompt : read_text_file(options.prompt_file);
    set_threads(cluster::place_alone({}).seat().threads);
    const auto group = cluster::make_solo_group();
    const layout::Devices devices =
        layout::open_device_alone(config::from_word<config::DeviceChoice>(options.device, "--device"));
    const train::ModelFile file =
        train::load_model(options.checkpoint, *devices.backend, *group, options.ema, options.base);
    const auto& model = file.description.model;
    const auto tokenizer = train::kept_tokenizer(file.contents, options.checkpoint, ", so it cannot generate text");
    std::vector<std::int32_t> prompt = tokenizer->encode(text_before);
    const bool begins_anew = prompt.empty();
    if (begins_anew) prompt.push_back(std::max(0, tokenizer->boundary()));
    check_known(prompt, model.vocabulary, options.checkpoint);
    const auto given = static_cast<std::int64_t>(prompt.size());
    constexpr std::int64_t most_tokens = 1 << 30;
    if (options.tokens.value_or(0) > most_tokens)
        throw usage_error("--tokens is {}; it must be at most {}", *options.tokens, most_tokens);
    const bool bounded = model.position != config::Position::none;
    const std::int64_t room = bounded ? model.context - given : default_tokens;
    const std::int64_t tokens = options.tokens.value_or(std::clamp<std::int64_t>(room, 0, default_tokens));
    if (bounded && tokens > room)
        throw usage_error("a prompt of {} token{} and --tokens {} exceed the model's {} positions: {}", given,
                          plural(given), tokens, model.context,
                          room > 0 ? fmt::format("--tokens may be at most {}", room) : "shorten the prompt");

    model::Decoder decoder(*devices.backend, *file.parameters, model, given + tokens);
    decoder.set_inner_rate_factor(train::inner_rate_factor(file));
    const RandomStream random(options.seed, "sampling");
    std::vector<std::int32_t> sequence = prompt;
    std::string printed = tokenizer->decode(sequence);
    // The token that stands for an empty prompt is not the user's.
    if (!begins_anew) print_result(printed);
    std::vector<float> logits = decoder.feed(prompt);
    const std::int64_t known = std::min(model.vocabulary, tokenizer->vocabulary());
    for (std::int64_t i = 0; i < tokens; ++i) {
        const std::int32_t token = draw(logits.data(), known, options, random.uniform(static_cast<std::uint64_t>(i)));
        if (token == tokenizer->boundary()) break;
        sequence.push_back(token);
        // Decoded as a whole: a token's text may depend on the previous one.
        const std::string text = tokenizer->decode(sequence);
        const std::size_t whole = whole_characters(text);
        if (whole > printed.size()) {
            print_result(std::string_view(text).substr(printed.size(), whole - printed.size()));
            printed = text.substr(0, whole);
        }
        if (i + 1 < tokens) logits = decoder.feed({token});
    }
    print_result("\n");
    return 0;
}

}  // namespace

void add_generate(CLI::App& program, Action& action) {
    auto* command = program.add_subcommand("generate", "Continue a text with the model of a checkpoint");
    const auto options = std::make_shared<Options>();
    command->add_option("--device", options->device, "auto, cpu or cuda");
    command
        ->add_option("--checkpoint", options->checkpoint,
                     "Checkpoint file, a run's folder for its newest, or a Hugging Face folder")
        ->required();
    command->add_option("--base", options->base,
                        "Base model of a checkpoint that holds only adapters (default: the one it names)");
    command->add_flag("--ema", options->ema, "Generate with the averages of optimizer.ema instead of the parameters");
    command->add_option("--prompt", options->prompt, "Text to continue");
    command->add_option("--prompt-file", options->prompt_file, "File with the text to continue")->type_name("FILE");
    command
        ->add_option("--tokens", options->tokens,
                     "Tokens to generate (default: 200, or as many as the model has positions for)")
        ->capture_default_str()
        ->check(zero_or_more());
    command->add_option("--temperature", options->temperature, "0: always the most likely token; higher: more varied")
        ->capture_default_str();
    command->add_option("--top-k", options->top_k, "Sample from the K most likely tokens only (0: all)")
        ->capture_default_str()
        ->check(zero_or_more());
    command
        ->add_option("--top-p", options->top_p,
                     "Sample from the smallest set of tokens with at least this total probability")
        ->capture_default_str();
    command->add_option("--seed", options->seed, "Same seed, same text")->capture_default_str();
    command->callback([options, &action] { action = [options] { return generate(*options); }; });
}

}  // namespace lockstep::commands
