#include <limits>
#include <vector>

#include "config_test.hpp"

using namespace lockstep;
using namespace lockstep::config;

namespace {

void check_with(const std::vector<std::string>& settings) {
    check(parse_run_description(small_run(), "run.toml", settings));
}
std::string refusal(const std::vector<std::string>& settings) {
    return sentence_of([&] { check_with(settings); });
}

struct Case {
    std::vector<std::string> settings;
    std::string part;  // of the sentence
};

}  // namespace

BOOST_AUTO_TEST_CASE(sound_descriptions_pass) {
    BOOST_CHECK_NO_THROW(check_with({}));
    BOOST_CHECK_NO_THROW(check_with({"model.mixer=attention", "model.kv_heads=1"}));
    BOOST_CHECK_NO_THROW(check_with({"model.mixer=[\"ttt-linear\", \"attention\"]", "model.kv_heads=1",
                                     "model.qk_norm=true", "model.ttt.gate=true", "model.rope_scaling=llama3"}));
    BOOST_CHECK_NO_THROW(check_with({"model.mixer=attention", "model.heads=3", "model.head_width=32"}));
    BOOST_CHECK_NO_THROW(check_with(
        {"model.mixer=attention", "model.rope_scaling=llama3", "model.rope_factor=32", "model.qk_norm=true"}));
    BOOST_CHECK_NO_THROW(check_with({"schedule.kind=wsd", "schedule.warmup=2", "schedule.decay_steps=8"}));
    BOOST_CHECK_NO_THROW(check_with({"schedule.steps=0", "schedule.epochs=0.5"}));
    BOOST_CHECK_NO_THROW(check_with({"data.validation=0.1", "validation.every=5"}));
    for (const std::string& name : preset_names()) BOOST_CHECK_NO_THROW(check(preset(name)));
}

BOOST_AUTO_TEST_CASE(values_that_do_not_fit_are_refused_with_a_reason) {
    const std::vector<Case> cases = {
        {{"run.name="}, "run.name is missing"},
        {{"run.name=a/b"}, "it names a folder"},
        {{"run.name=.."}, "it names a folder"},
        {{"run.name=-rf"}, "not starting with '.' or '-'"},
        {{"model.layers=1000000"}, "model.layers = 1000000: it must be at most 10000"},
        {{"model.width=1000000000"}, "model.width = 1000000000: it must be at most 1048576"},
        {{"batch.length=2000000000"}, "it must be at most"},
        {{"batch.global=1000000000", "batch.ramp={start=1, increment=1, samples=9}"}, "has more than 100000 sizes"},
        {{"batch.micro=1000000000", "batch.global=1000000000"}, "numbers in one activation"},
        {{"model.width=0"}, "model.width is missing; give it or a model.preset"},
        {{"model.layers=-1"}, "model.layers = -1: it must be at least 1"},
        {{"model.heads=3"},
         "model.heads = 3 does not divide model.width = 64; choose a divisor, or give model.head_width"},
        {{"model.heads=[2, 0]", "model.layers=2"}, "model.heads = 0: it must be at least 1"},
        {{"model.heads=[2, 3]", "model.layers=2"}, "layer 1: model.heads = 3 does not divide model.width = 64"},
        {{"model.heads=[2, 2, 4]", "model.layers=2"}, "model.heads lists 3 blocks, but model.layers = 2"},
        {{"model.heads=[2, 4]", "model.kv_heads=[1, 4]", "model.layers=2"}, "ttt-linear ignores it"},
        {{"model.head_width=-1"}, "model.head_width = -1: it must be at least 0"},
        {{"model.head_width=100000"}, "model.head_width = 100000: it must be at most 65536"},
        {{"model.mixer=attention", "model.heads=1000", "model.head_width=65536"}, "more than 4194304"},
        {{"model.mixer=attention", "model.head_width=33"}, "model.head_width = 33: rotation needs an even width"},
        {{"model.head_width=24"}, "the heads of ttt-linear divide model.width = 64; remove head_width"},
        {{"model.qk_norm=true"}, "ttt-linear has no norm of queries and keys"},
        {{"model.mixer=attention", "model.rope_factor=32"}, "belongs to model.rope_scaling = \"llama3\""},
        {{"model.mixer=attention", "model.rope_original_context=4096"}, "to its default 8192"},
        {{"model.mixer=attention", "model.rope_scaling=llama3", "model.rope_factor=0"},
         "model.rope_factor = 0: it must be greater than 0"},
        {{"model.mixer=attention", "model.rope_scaling=llama3", "model.rope_low=4"},
         "model.rope_high = 4 must be greater than model.rope_low = 4"},
        {{"model.mixer=attention", "model.rope_scaling=llama3", "model.rope_original_context=0"},
         "model.rope_original_context = 0: it must be at least 1"},
        {{"model.mixer=ttt-linear", "model.window=16"}, "model.window = 16: ttt-linear has no window"},
        {{"model.mixer=ttt-linear", "model.score_cap=50"}, "model.score_cap = 50: ttt-linear has no attention scores"},
        {{"model.mixer=attention", "model.score_cap=-1"}, "model.score_cap = -1: it must not be negative"},
        {{"model.mixer=attention", "model.logit_cap=-1"}, "model.logit_cap = -1: it must not be negative"},
        {{"model.mixer=attention", "model.score_cap=1e39"}, "model.score_cap = 1e+39: it must lie between 0.01 and"},
        {{"model.mixer=attention", "model.logit_cap=1e-50"}, "model.logit_cap = 1e-50: it must lie between 0.01 and"},
        {{"model.mixer=attention", "model.layers=2", "model.window=[1, 2, 3]"},
         "model.window lists 3 blocks, but model.layers = 2"},
        {{"model.mixer=attention", "model.heads=4", "model.kv_heads=3"},
         "model.kv_heads = 3 does not divide model.heads = 4"},
        {{"model.width=66", "model.heads=22"}, "model.head_width = 3: rotation needs an even width"},
        {{"model.kv_heads=1"}, "ttt-linear ignores it"},
        {{"model.vocabulary=3000000000"}, "32-bit"},
        {{"model.norm_epsilon=0"}, "model.norm_epsilon = 0: it must be greater than 0"},
        {{"model.mixer=attention", "model.ttt.gate=true"}, "model.ttt.gate = true belongs to the mixers"},
        {{"model.mixer=attention", "model.position=none", "model.rope_scaling=llama3"}, "needs model.position"},
        {{"model.rope_scaling=llama3"}, "no long rotation to scale"},
        {{"model.bias=qkv"}, "have no biases"},
        {{"model.mixer=[\"ttt-linear\", \"ttt-linear\", \"attention\"]"},
         "model.mixer lists 3 blocks, but model.layers = 2; shorten the list"},
        {{"model.mixer=[\"ttt-linear\", \"attention\"]", "model.head_width=64"}, "the heads of ttt-linear divide"},
        {{"model.mixer=[\"ttt-linear\", \"ttt-mlp\"]", "model.ttt.base_lr_warmup=0.01"}, "give model.ttt.base_lr too"},
        {{"model.mixer=[\"ttt-linear\", \"ttt-mlp\"]", "model.qk_norm=true"}, "has no norm of queries and keys"},
        {{"model.ttt.mini_batch=0"}, "model.ttt.mini_batch = 0"},
        {{"model.ttt.base_lr=-1"}, "model.ttt.base_lr = -1: it must not be negative"},
        {{"model.ttt.base_lr_warmup=2"}, "model.ttt.base_lr_warmup = 2 is more than model.ttt.base_lr = 1"},
        {{"data.train=[]"}, "data.train is missing"},
        {{"data.train=[\"\"]"}, "data.train holds an empty path"},
        {{"data.train=[{path=\"\",weight=1}]"}, "data.train holds an empty path"},
        {{"data.jsonl_field=\"\""}, "data.jsonl_field is missing"},
        {{"data.tokenizer="}, "data.tokenizer is missing"},
        {{"batch.global=0"}, "batch.global is missing"},
        {{"batch.global=-2"}, "batch.global = -2"},
        {{"batch.micro=3"}, "batch.micro = 3 does not divide batch.global = 8"},
        {{"batch.length=129"}, "batch.length = 129 is more than model.context = 128"},
        {{"batch.ramp={start=1, increment=2, samples=5}"}, "does not reach batch.global = 8"},
        {{"optimizer.beta1=1"}, "optimizer.beta1 = 1: it must be at least 0 and less than 1"},
        {{"optimizer.beta2=-0.1"}, "optimizer.beta2"},
        {{"optimizer.epsilon=0"}, "optimizer.epsilon"},
        {{"optimizer.clip=-1"}, "optimizer.clip = -1"},
        {{"optimizer.skip_limit=0"}, "optimizer.skip_limit = 0"},
        {{"schedule.epochs=2"}, "schedule.steps = 10 and schedule.epochs = 2 both give"},
        {{"schedule.steps=0"}, "schedule.steps is missing"},
        {{"schedule.peak_lr=0"}, "schedule.peak_lr is missing"},
        {{"schedule.warmup=11"}, "schedule.warmup = 11 is more than schedule.steps = 10"},
        {{"schedule.final_lr=1"}, "schedule.final_lr = 1 is more than schedule.peak_lr = 0.001"},
        {{"schedule.kind=constant", "schedule.final_lr=1e-5"}, "a constant schedule stays"},
        {{"schedule.decay_steps=2"}, "belongs to schedule.kind = \"wsd\""},
        {{"schedule.kind=wsd", "schedule.warmup=5", "schedule.decay_steps=6"}, "together exceed schedule.steps = 10"},
        {{"precision.loss_scale.minimum=1e9"}, "precision.loss_scale.initial = 65536 is less"},
        {{"precision.loss_scale.growth_interval=0"}, "growth_interval = 0"},
        {{"parallel.tensor=0"}, "parallel.tensor = 0: it must be at least 1"},
        {{"parallel.zero=4"}, "parallel.zero = 4: the stages are 0 to 3"},
        {{"parallel.zero=2", "parallel.lanes=2"}, "parallel.zero = 2 shards gradients, but parallel.lanes = 2"},
        {{"checkpoint.keep=0"}, "checkpoint.keep = 0"},
        {{"checkpoint.every=-1"}, "checkpoint.every = -1"},
        {{"checkpoint.folder="}, "checkpoint.folder is missing"},
        {{"checkpoint.local_every=-1", "checkpoint.local=disk"}, "checkpoint.local_every = -1"},
        {{"checkpoint.local_every=10"}, "there is no checkpoint.local"},
        {{"checkpoint.local=$TMPDIR"}, "~ and variables are not expanded"},
        {{"checkpoint.local=~/x"}, "~ and variables are not expanded"},
        {{"validation.every=5"}, "there is no data.validation"},
        {{"watchdog.seconds=-1"}, "watchdog.seconds = -1"},
    };
    for (const Case& wrong : cases) check_contains(refusal(wrong.settings), wrong.part);
}

BOOST_AUTO_TEST_CASE(any_text_gives_a_plain_name) {
    for (const auto& [text, name] :
         std::vector<std::pair<std::string, std::string>>{{"SmolLM2-135M", "SmolLM2-135M"},
                                                          {"", "model"},
                                                          {"..", "model"},
                                                          {"caf\xC3\xA9\xFF\n au lait", "cafaulait"},
                                                          {"-.x-", "x-"},
                                                          {std::string(300, 'a'), std::string(200, 'a')}}) {
        BOOST_TEST(plain_name(text) == name);
        RunDescription description =
            parse_run_description("", "",
                                  {"run.name=x", "data.train=a", "model.preset=gpt2-124m", "batch.global=1",
                                   "schedule.steps=1", "schedule.peak_lr=1e-3"});
        description.run.name = plain_name(text);
        BOOST_CHECK_NO_THROW(check(description));
    }
}

BOOST_AUTO_TEST_CASE(all_missing_keys_are_told_at_once) {
    const std::string sentence = sentence_of([] { check(parse_run_description("", "run.toml", {})); });
    BOOST_TEST(sentence ==
               "10 keys are missing: run.name (give the run a name, for example --set run.name=first); model.width, "
               "model.layers, model.heads, model.vocabulary, model.context (give it or a model.preset); data.train "
               "(name a token file made by lockstep pack, a text file or a folder, for example --set "
               "data.train=tokens.h5); batch.global (give the number of sequences per step); schedule.steps (give the "
               "length of the run as schedule.steps or schedule.epochs); schedule.peak_lr (give the highest learning "
               "rate)");
    check_contains(refusal({"model.width=0", "model.heads=0"}), "2 keys are missing: model.width, model.heads (give");
}

BOOST_AUTO_TEST_CASE(other_names_of_a_word_are_known) {
    check_contains(sentence_of([] { from_word<DeviceChoice>("gpu", "--device"); }),
                   "--device = \"gpu\": the allowed values are \"auto\", \"cpu\", \"cuda\" (did you mean \"cuda\"?)");
    check_contains(refusal({"precision.compute=bfloat16"}), "did you mean \"bf16\"?");
}

BOOST_AUTO_TEST_CASE(a_description_made_in_the_program_is_checked_too) {
    RunDescription run = parse_run_description(small_run(), "run.toml", {});
    run.model.mixers.clear();
    check_contains(sentence_of([&] { check(run); }), "model.mixer is empty");
    run.model.mixers = {"ttt-linaer"};
    check_contains(sentence_of([&] { check(run); }), "did you mean \"ttt-linear\"?");
    run = parse_run_description(small_run(), "run.toml", {});
    run.schedule.peak_lr = std::numeric_limits<double>::quiet_NaN();
    check_contains(sentence_of([&] { check(run); }), "schedule.peak_lr = nan: it must be finite");
}

// The parser recurses for each part of a key.
BOOST_AUTO_TEST_CASE(keys_of_many_parts_are_refused) {
    std::string deep = "a";
    for (int i = 0; i < 100'000; ++i) deep += ".a";
    const std::string refused = "a key has more than 64 parts";
    check_contains(sentence_of([&] { parse_run_description(deep + " = 1", "run.toml", {}); }), refused);
    check_contains(sentence_of([&] { parse_run_description("[" + deep + "]", "run.toml", {}); }), refused);
    check_contains(sentence_of([&] { parse_run_description("", "", {"model={" + deep + "=1}"}); }), refused);
    check_contains(sentence_of([&] { parse_foreign_description("x = 1 # .\n" + deep + " = 1", "file"); }), refused);
    for (const char* quotes : {"\"\"\"\"", "\"\"\"\"\"", "''''", "'''''"}) {
        const std::string text = std::string(quotes).substr(0, 3) + "a" + quotes;
        check_contains(sentence_of([&] { parse_foreign_description("x = " + text + "\n" + deep + " = 1", "file"); }),
                       refused);
    }
    // Dots in texts and comments are none of keys.
    const std::string dots(1000, '.');
    const std::string text = std::string(small_run()) + "# " + dots + "\n";
    BOOST_CHECK_NO_THROW(parse_run_description(text, "run.toml", {"data.tokenizer=\"" + dots + "\""}));
}
