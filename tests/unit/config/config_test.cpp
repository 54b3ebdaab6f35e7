#define BOOST_TEST_MODULE config
#include <fstream>
#include <vector>

#include "config/keys.hpp"
#include "config/plain_value.hpp"
#include "config_test.hpp"
#include "places.hpp"

using namespace lockstep;
using namespace lockstep::config;

namespace {

RunDescription parse(const std::string& toml, const std::vector<std::string>& settings = {}) {
    return parse_run_description(toml, "run.toml", settings);
}
std::string refusal(const std::string& toml, const std::vector<std::string>& settings = {}) {
    return sentence_of([&] { parse(toml, settings); });
}

}  // namespace

BOOST_AUTO_TEST_CASE(keys_reach_their_members) {
    const RunDescription run = parse(R"(
        [run]
        name = "a"
        seed = 7
        self_test = false
        [model]
        mixer = "ttt-mlp"
        width = 128
        norm_epsilon = 1
        [model.ttt]
        gate = true
        [data]
        train = ["a.h5", "folder"]
        validation = 0.05
        [batch]
        global = 16
        [schedule]
        peak_lr = 3e-3
        [precision]
        loss_scale = {initial = 1024, hysteresis = 3}
        [parallel]
        data = 4
    )");
    BOOST_TEST(run.run.name == "a");
    BOOST_TEST(run.run.seed == 7u);
    BOOST_TEST((run.run.self_test == SelfTest::off));
    BOOST_TEST(run.model.mixer(0) == "ttt-mlp");
    BOOST_TEST(run.model.width == 128);
    BOOST_TEST(run.model.norm_epsilon == 1.0);
    BOOST_TEST(run.model.options.at("ttt").flag("gate"));
    BOOST_TEST(run.data.train.size() == 2u);
    BOOST_TEST(run.data.validation.empty());
    BOOST_TEST(run.data.validation_fraction == 0.05);
    BOOST_TEST(run.batch.global == 16);
    BOOST_TEST(run.schedule.peak_lr == 3e-3);
    BOOST_TEST(run.precision.loss_scale.initial == 1024.0);
    BOOST_TEST(run.precision.loss_scale.hysteresis == 3);
    BOOST_TEST(run.precision.loss_scale.growth_interval == 1000);
    BOOST_TEST(run.parallel.data == 4);
    BOOST_TEST(!run.batch.ramp.has_value());
}

BOOST_AUTO_TEST_CASE(one_path_is_a_list_of_one) {
    const RunDescription run = parse("[data]\ntrain = \"a.h5\"\nvalidation = \"b.h5\"\n");
    BOOST_TEST(run.data.train == std::vector<std::string>{"a.h5"}, boost::test_tools::per_element());
    BOOST_TEST(run.data.validation == std::vector<std::string>{"b.h5"}, boost::test_tools::per_element());
    BOOST_TEST(run.data.validation_fraction == 0);
}

BOOST_AUTO_TEST_CASE(sources_with_weights_are_a_mixture) {
    const RunDescription run = parse(
        "[data]\njsonl_field = \"content\"\n"
        "train = [{path = \"a.h5\", weight = 3}, {weight = 0.1, path = [\"b\", \"c \\\"d\\\"\"]}]\n");
    BOOST_TEST(run.data.train.empty());
    BOOST_REQUIRE(run.data.mixture.size() == 2u);
    BOOST_TEST(run.data.mixture[0].paths == std::vector<std::string>{"a.h5"}, boost::test_tools::per_element());
    BOOST_TEST(run.data.mixture[0].weight == 3.0);
    BOOST_TEST(run.data.mixture[1].paths.at(1) == "c \"d\"");
    BOOST_TEST(run.data.mixture[1].weight == 0.1);
    BOOST_TEST(run.data.jsonl_field == "content");
    // The resolved description reads back.
    const std::string printed = to_toml(run);
    check_contains(printed,
                   "train = [{path = \"a.h5\", weight = 3.0}, {path = [\"b\", \"c \\\"d\\\"\"], weight = 0.1}]\n");
    BOOST_TEST(to_toml(parse(printed)) == printed);
    BOOST_TEST(differences(parse(printed), run, "").empty());
    // Tables of their own, and settings, which replace what the file says.
    const std::string tables = "[[data.train]]\npath = \"x\"\nweight = 1\n[[data.train]]\npath = \"y\"\nweight = 2\n";
    BOOST_TEST(parse(tables).data.mixture.at(1).weight == 2.0);
    BOOST_TEST(parse(tables, {"data.train=z.h5"}).data.mixture.empty());
    const RunDescription set = parse("[data]\ntrain = \"a\"\n", {"data.train=[{path=\"x\",weight=1}]"});
    BOOST_TEST(set.data.train.empty());
    BOOST_TEST(set.data.mixture.at(0).paths.at(0) == "x");
}

BOOST_AUTO_TEST_CASE(mixtures_that_make_no_sense_are_refused) {
    const auto said = [](const std::string& list) { return refusal("[data]\ntrain = " + list + "\n"); };
    check_contains(said("[{path = \"a\", weight = 1}, \"b\"]"), "run.toml:2: data.train mixes paths and tables");
    check_contains(said("[{path = \"a\"}]"), "a lacks its weight");
    check_contains(said("[{weight = 1}]"), "a source lacks its path");
    check_contains(said("[{path = [], weight = 1}]"), "a source lacks its path");
    check_contains(said("[{path = 7, weight = 1}]"), "path must be a path or a list of paths");
    check_contains(said("[{path = [7], weight = 1}]"), "not text");
    check_contains(said("[{path = \"a\", weight = \"1\"}]"), "weight must be a number");
    check_contains(said("[{path = \"a\", wight = 1}]"), "wight is not known");
    for (const char* weight : {"0", "-1", "1e13"})
        check_contains(said(std::string("[{path = \"a\", weight = ") + weight + "}]"), "must be above 0");
    check_contains(said("[{path = \"a\", weight = nan}]"), "finite");
    check_contains(said("{path = \"a\", weight = 1}"), "not a table");
    std::string many;
    for (int i = 0; i < 1001; ++i) many += "{path = \"a\", weight = 1}, ";
    check_contains(said("[" + many + "]"), "1001 sources");
    check_contains(refusal("", {"data.train=[{path=\"a\",weight=1},7]"}), "mixes paths and tables");
}

BOOST_AUTO_TEST_CASE(a_ramp_is_there_when_given) {
    const RunDescription run = parse("[batch]\nramp = {start = 2, increment = 2, samples = 100}\n");
    BOOST_REQUIRE(run.batch.ramp.has_value());
    BOOST_TEST(run.batch.ramp->start == 2);
    BOOST_TEST(run.batch.ramp->samples == 100);
}

BOOST_AUTO_TEST_CASE(settings_override_the_file) {
    const RunDescription run =
        parse("[run]\nname = \"a\"\n[schedule]\nsteps = 5\n[data]\nvalidation = 0.1\n",
              {"model.mixer=ttt-mlp", "schedule.steps=7", "schedule.steps = 9", "run.name=12", "data.train=x/y.h5",
               "data.validation=[\"v.h5\"]", "model.ttt.gate=true", "precision.loss_scale={initial=8}",
               "schedule.peak_lr=1", "run.folder=\"my runs\"", "parallel.data=auto", "data.tokenizer=t.model"});
    BOOST_TEST(run.model.mixer(0) == "ttt-mlp");
    BOOST_TEST(run.schedule.steps == 9);
    BOOST_TEST(run.run.name == "12");
    BOOST_TEST(run.data.train.at(0) == "x/y.h5");
    BOOST_TEST(run.data.validation.at(0) == "v.h5");
    BOOST_TEST(run.data.validation_fraction == 0);
    BOOST_TEST(run.model.options.at("ttt").flag("gate"));
    BOOST_TEST(run.precision.loss_scale.initial == 8.0);
    BOOST_TEST(run.schedule.peak_lr == 1.0);
    BOOST_TEST(run.run.folder == "my runs");
    BOOST_TEST(run.parallel.data == 0);
    BOOST_TEST(run.data.tokenizer == "t.model");
    BOOST_TEST(parse("", {"run.name=2026-01-02"}).run.name == "2026-01-02");
}

BOOST_AUTO_TEST_CASE(settings_that_cannot_be_read_are_refused) {
    check_contains(refusal("", {"schedule.steps"}), "KEY=VALUE");
    check_contains(refusal("", {"schedule.steps=ten"}),
                   "--set schedule.steps=ten: schedule.steps must be an integer, not the text \"ten\"");
    check_contains(refusal("", {"data.train=[\"a\""}), "not valid TOML");
    check_contains(refusal("", {"schedule.step=10"}), "did you mean schedule.steps?");
    check_contains(refusal("", {"run.name=\xff\xfe"}), "not valid TOML");
}

BOOST_AUTO_TEST_CASE(explicit_keys_override_the_preset_wherever_they_stand) {
    RunDescription run = parse("[model]\nvocabulary = 50257\npreset = \"ttt-linear-125m\"\n");
    BOOST_TEST(run.model.vocabulary == 50257);
    BOOST_TEST(run.model.width == 768);
    run = parse("[model]\npreset = \"ttt-linear-125m\"\nvocabulary = 300\n",
                {"model.layers=3", "model.preset=gpt2-355m"});
    BOOST_TEST(run.model.preset == "gpt2-355m");
    BOOST_TEST(run.model.mixer(0) == "attention");
    BOOST_TEST(run.model.width == 1024);
    BOOST_TEST(run.model.layers == 3);
    BOOST_TEST(run.model.vocabulary == 300);
    BOOST_TEST(run.batch.length == 1024);
    run = parse("", {"model.preset=gpt2-124m", "model.heads=6"});
    BOOST_TEST(run.model.layer(0).kv_heads == 6);
    check_contains(refusal("", {"model.preset=gpt2-125m"}), "did you mean gpt2-124m?");
}

BOOST_AUTO_TEST_CASE(what_follows_is_filled_in) {
    RunDescription run = parse(small_run());
    BOOST_TEST(run.model.layer(0).kv_heads == 2);
    BOOST_TEST(run.model.mlp_width == 256);
    BOOST_TEST((run.model.position == Position::none));
    BOOST_TEST(run.model.options.at("ttt").number("base_lr") == 1.0);
    BOOST_TEST(run.batch.length == 128);
    BOOST_TEST((parse(small_run(), {"model.mixer=attention"}).model.position == Position::rope));
    BOOST_TEST(parse(small_run(), {"model.mixer=ttt-mlp"}).model.options.at("ttt").number("base_lr") == 0.1);
}

BOOST_AUTO_TEST_CASE(a_syntax_error_names_file_line_and_column) {
    const std::string sentence = refusal("[run]\nname = \"a\"\nseed 5\n");
    check_contains(sentence, "run.toml:3:6: not valid TOML");
    check_contains(sentence, "expected '='");
    check_contains(refusal("[run]\nname = \"a\"\nname = \"b\"\n"), "run.toml:3:");
    check_contains(refusal("[run]\nname = first\n"), "(a text needs quotes)");
}

BOOST_AUTO_TEST_CASE(an_unknown_key_names_the_nearest) {
    BOOST_TEST(refusal("[schedule]\n\npek_lr = 1\n") ==
               "run.toml:3: unknown key schedule.pek_lr (did you mean schedule.peak_lr?)");
    BOOST_TEST(refusal("[modle]\nwidth = 1\n") == "run.toml:2: unknown key modle.width (did you mean model.width?)");
    BOOST_TEST(refusal("peak_lr = 1\n") == "run.toml:1: unknown key peak_lr (did you mean schedule.peak_lr?)");
    BOOST_TEST(refusal("[optimizer]\nwarmup = 1\n") ==
               "run.toml:2: unknown key optimizer.warmup (did you mean schedule.warmup?)");
    BOOST_TEST(refusal("[validtion]\nevery = 1\n") ==
               "run.toml:2: unknown key validtion.every (did you mean validation.every?)");
    BOOST_TEST(refusal("[model.ttt]\nminibatch = 1\n") ==
               "run.toml:2: unknown key model.ttt.minibatch (did you mean model.ttt.mini_batch?)");
    check_contains(refusal("[zzzzzzzzzzzzzzz]\nqqqqqqqqqqqqqqqqqqqqqqqq = 1\n"), "docs/run-description.md");
    check_contains(refusal("zzz = {}\n"), "unknown key zzz");
    check_contains(refusal("model = 5\n"), "model is a section");
    check_contains(refusal("[model]\nttt = 5\n"), "model.ttt is a section");
}

BOOST_AUTO_TEST_CASE(a_wrong_type_says_what_was_found_and_what_is_wanted) {
    BOOST_TEST(refusal("[model]\nwidth = \"wide\"\n") ==
               "run.toml:2: model.width must be an integer, not the text \"wide\"");
    check_contains(refusal("[schedule]\nsteps = 1e4\n"), "write 10000");
    check_contains(refusal("[schedule]\npeak_lr = true\n"), "must be a number, not true");
    check_contains(refusal("[schedule]\npeak_lr = inf\n"), "finite");
    check_contains(refusal("[run]\nname = 5\n"), "must be text, not the integer 5");
    check_contains(refusal("[run]\nseed = -5\n"), "from 0");
    check_contains(refusal("[run]\nself_test = 1\n"), "true or false");
    check_contains(refusal("[run]\nself_test = {}\n"), "not a table");
    check_contains(refusal("[data]\ntrain = [1]\n"), "not text");
    check_contains(refusal("[model]\nmixer = []\n"), "model.mixer is empty; it must be one of \"attention\"");
    check_contains(refusal("[model]\nmixer = [1]\n"), "not text");
    check_contains(refusal("[model]\nmixer = 1\n"), "or a list of these");
    check_contains(refusal("", {"model.mixer=attention,ttt-linear"}), "write several as a list");
    check_contains(refusal("[data]\ntrain = 1\n"), "list of paths");
    check_contains(refusal("[data]\nvalidation = 1.0\n"), "between 0 and 1");
    check_contains(refusal("[data]\nvalidation = true\n"), "fraction");
    check_contains(refusal("[parallel]\ndata = \"all\"\n"), "\"auto\"");
    check_contains(refusal("[parallel]\ndata = 0\n"), "from 1");
    check_contains(refusal("[precision]\nloss_scale = 5\n"), "precision.loss_scale is a section");
}

BOOST_AUTO_TEST_CASE(a_wrong_word_lists_the_allowed_ones) {
    BOOST_TEST(refusal("[model]\nmixer = \"ttt-liner\"\n") ==
               "run.toml:2: model.mixer = \"ttt-liner\": the allowed values are \"attention\", \"gated-deltanet\", "
               "\"ttt-linear\", \"ttt-mlp\" (did you mean \"ttt-linear\"?)");
    check_contains(refusal("[model]\nmixer = [\"attention\", \"ttt-liner\"]\n"), "did you mean \"ttt-linear\"?");
    check_contains(refusal("", {"trace.detail=everything"}), "\"off\", \"step\", \"phase\", \"layer\"");
}

BOOST_AUTO_TEST_CASE(windows_are_repeated_over_the_blocks) {
    using Windows = std::vector<std::int64_t>;
    const auto windows = [](const std::vector<std::string>& settings) {
        return parse(small_run(), settings).model.windows;
    };
    BOOST_TEST(windows({}) == Windows{0});
    BOOST_TEST(windows({"model.window=16"}) == Windows{16});
    BOOST_TEST(windows({"model.window=[16]"}) == Windows{16});
    BOOST_TEST(windows({"model.layers=4", "model.window=[16, 0, 16, 0]"}) == (Windows{16, 0}));
    BOOST_TEST(windows({"model.layers=4", "model.window=[16, 0, 16]"}) == (Windows{16, 0, 16}));
    const RunDescription run = parse(small_run(), {"model.layers=4", "model.window=[16, 0, 16]"});
    BOOST_TEST(run.model.layer(3).window == 16);
    BOOST_TEST(plain_value(run, "model.window") == "[16, 0, 16]");
    BOOST_TEST(plain_value(parse(small_run(), {"model.window=16"}), "model.window") == "16");
    check_contains(refusal("[model]\nwindow = []\n"), "model.window is empty; it must be an integer");
    check_contains(refusal("[model]\nwindow = [16, 1.5]\n"), "or a list of integers");
    check_contains(refusal("[model]\nwindow = \"16\"\n"), "model.window");
    check_contains(refusal("[model]\nwindow = -1\n"), "model.window = -1: it must not be negative");
    check_contains(refusal("[model]\nwindow = [16, -1]\n"), "model.window = -1: it must not be negative");
}

BOOST_AUTO_TEST_CASE(a_list_of_mixers_is_repeated_over_the_blocks) {
    const std::string three = "model.mixer=[\"ttt-linear\", \"ttt-linear\", \"attention\"]";
    const RunDescription run = parse(small_run(), {three, "model.layers=7", "model.kv_heads=1"});
    for (const auto& [block, mixer] :
         {std::pair{0, "ttt-linear"}, {2, "attention"}, {3, "ttt-linear"}, {5, "attention"}})
        BOOST_TEST(run.model.mixer(block) == mixer);
    BOOST_TEST(run.model.is_hybrid());
    BOOST_TEST(mixers_text(run.model) == "2 ttt-linear and 1 attention in turn");
    BOOST_TEST((run.model.position == Position::rope));  // attention's
    BOOST_TEST(run.model.options.at("ttt").number("base_lr") == 1);
    BOOST_TEST((parse(to_toml(run)).model == run.model));
    BOOST_TEST(plain_value(run, "model.mixer") == "[\"ttt-linear\", \"ttt-linear\", \"attention\"]");
    // The list ends where the blocks repeat.
    const std::string all =
        "model.mixer=[\"ttt-linear\", \"ttt-linear\", \"attention\", \"ttt-linear\", \"ttt-linear\"]";
    BOOST_TEST((parse(small_run(), {all, "model.layers=5", "model.kv_heads=1"}).model ==
                parse(small_run(), {three, "model.layers=5", "model.kv_heads=1"}).model));
    BOOST_TEST(parse(small_run(), {all, "model.layers=6"}).model.mixers.size() == 4u);  // of six, two repeat
    const std::string twice = "model.mixer=[\"attention\", \"ttt-mlp\", \"attention\", \"ttt-mlp\"]";
    // A preset's mixer alone decides nothing about positions.
    BOOST_TEST((parse(small_run(), {"model.preset=ttt-linear-125m", twice}).model.position == Position::rope));
    const RunDescription both = parse(small_run(), {twice, "model.layers=4"});
    BOOST_TEST(both.model.mixers.size() == 2u);
    BOOST_TEST(
        (both.model == parse(small_run(), {"model.mixer=[\"attention\", \"ttt-mlp\"]", "model.layers=4"}).model));
    const RunDescription same = parse(small_run(), {"model.mixer=[\"ttt-mlp\", \"ttt-mlp\"]"});
    BOOST_TEST(!same.model.is_hybrid());
    BOOST_TEST((same.model == parse(small_run(), {"model.mixer=ttt-mlp"}).model));
}

BOOST_AUTO_TEST_CASE(heads_are_repeated_over_the_blocks) {
    const RunDescription run = parse(small_run(), {"model.layers=6", "model.mixer=attention", "model.heads=[4, 8]",
                                                   "model.kv_heads=[0, 0, 2]", "model.head_width=[0, 12, 0]"});
    const ModelDescription& model = run.model;  // 64 wide
    const auto is = [](const LayerShape& layer, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_width) {
        return layer.heads == heads && layer.kv_heads == kv_heads && layer.head_width == head_width;
    };
    BOOST_TEST(is(model.layer(0), 4, 4, 16));
    BOOST_TEST(is(model.layer(1), 8, 8, 12));
    BOOST_TEST(is(model.layer(2), 4, 2, 16));
    BOOST_TEST(is(model.layer(3), 8, 8, 8));
    BOOST_TEST(is(model.layer(4), 4, 4, 12));
    BOOST_TEST(is(model.layer(5), 8, 2, 8));
    BOOST_TEST(model.period() == 6);
    BOOST_TEST(!has_equal_heads(model));
    BOOST_TEST(widest_layer(model) == 96);
    BOOST_TEST(plain_value(run, "model.heads") == "[4, 8]");
    BOOST_TEST((parse(to_toml(run)).model == model));
    BOOST_TEST((parse(small_run(), {"model.heads=[2, 2]"}).model == parse(small_run()).model));
    check_contains(refusal("[model]\nheads = []\n"), "model.heads is empty");
    check_contains(refusal("[model]\nheads = [2, 3.5]\n"), "model.heads holds an item that is not an integer");
    // Of TTT there are as many heads of keys as heads.
    const ModelDescription shared = parse(small_run(), {"model.layers=2", "model.mixer=[\"ttt-linear\", \"attention\"]",
                                                        "model.heads=[8, 4]", "model.kv_heads=2"})
                                        .model;
    BOOST_TEST((shared.kv_heads == std::vector<std::int64_t>{8, 2}));
}

BOOST_AUTO_TEST_CASE(groups_have_a_rate_and_a_decay_of_their_own) {
    const std::string tables =
        "[[optimizer.groups]]\nmatch = \"embedding/*\"\nlr = 1e-4\n"
        "[[optimizer.groups]]\nmatch = \"*norm/weight\"\ndecay = 0\n";
    const RunDescription run = parse(tables, {"schedule.peak_lr=4e-4"});
    BOOST_TEST_REQUIRE(run.optimizer.groups.size() == 2u);
    BOOST_TEST(run.optimizer.groups[0].match == "embedding/*");
    BOOST_TEST(run.optimizer.groups[0].rate_factor == 0.25);
    BOOST_TEST(run.optimizer.groups[0].decay == ParameterGroup::not_given);
    BOOST_TEST(run.optimizer.groups[1].rate_factor == 1);
    BOOST_TEST(run.optimizer.groups[1].decay == 0);
    check_contains(to_toml(run),
                   "groups = [{match = \"embedding/*\", lr = 0.0001}, {match = \"*norm/weight\", decay = 0.0}]");
    const RunDescription again = parse(to_toml(run));
    BOOST_TEST(to_toml(again) == to_toml(run));
    BOOST_TEST(again.optimizer.groups[0].rate_factor == 0.25);
    BOOST_TEST(parse(tables, {"optimizer.groups=[]"}).optimizer.groups.empty());
    check_contains(refusal("[optimizer]\ngroups = 3\n"), "list of tables {match = …, lr = …, decay = …}");
    check_contains(refusal("[optimizer]\ngroups = [\"a\"]\n"), "holds an item that is not a table");
    check_contains(refusal("[[optimizer.groups]]\nlr = 1.0\n"), "optimizer.groups[0].match is missing");
    check_contains(refusal("[[optimizer.groups]]\nmatch = \"*\"\nrate = 1.0\n"), "optimizer.groups[0].rate");
}

BOOST_AUTO_TEST_CASE(tables_say_what_the_layers_are) {
    // Their own keys, and where they have none, those of [model].
    const std::string tables =
        "[model]\nkv_heads = 2\n"
        "[[model.layers]]\ncount = 2\nmixer = \"ttt-linear\"\n"
        "[[model.layers]]\nmixer = \"attention\"\nwindow = 16\nheads = 4\n"
        "[[model.layers]]\nmixer = \"attention\"\nheads = 4\nkv_heads = 1\nhead_width = 24\n";
    const ModelDescription model = parse(tables, {"model.width=64", "model.heads=8"}).model;
    BOOST_TEST(model.layers == 4);
    BOOST_TEST(model.layer_tables.empty());
    BOOST_TEST(mixers_text(model) == "2 ttt-linear and 2 attention");
    const auto list = [](std::vector<std::int64_t> numbers) { return numbers; };
    BOOST_TEST(model.windows == list({0, 0, 16}), boost::test_tools::per_element());
    BOOST_TEST(model.heads == list({8, 8, 4, 4}), boost::test_tools::per_element());
    BOOST_TEST(model.kv_heads == list({8, 8, 2, 1}), boost::test_tools::per_element());
    BOOST_TEST(model.head_widths == list({8, 8, 16, 24}), boost::test_tools::per_element());
    BOOST_TEST((parse(to_toml(parse(tables, {"model.width=64", "model.heads=8"}))).model == model));
    // A number takes their place.
    const ModelDescription three = parse(tables, {"model.layers=3", "model.heads=8", "model.width=64"}).model;
    BOOST_TEST(three.layers == 3);
    BOOST_TEST(three.mixer(0) == "attention");
    // As TOML in one line.
    BOOST_TEST(parse(small_run(), {"model.layers=[{count=5}, {count=2, mixer=\"attention\"}]"}).model.layers == 7);
    // What they leave out, a list says for each layer: of a preset, or of the checkpoint to begin with.
    const ModelDescription hybrid =
        parse("", {"model.preset=hybrid-ttt-linear-125m", "model.layers=[{count=3}, {window=8}, {mixer=\"ttt-mlp\"}]"})
            .model;
    BOOST_TEST(mixers_text(hybrid) == "3 ttt-linear, 1 attention and 1 ttt-mlp");
    BOOST_TEST(hybrid.layer(3).window == 8);
    const ModelDescription own = parse("[[model.layers]]\nkv_heads = 0\n[[model.layers]]\nhead_width = 0\n",
                                       {"model.width=64", "model.heads=4", "model.kv_heads=2", "model.head_width=8"})
                                     .model;
    BOOST_TEST(own.kv_heads == list({4, 2}), boost::test_tools::per_element());
    BOOST_TEST(own.head_widths == list({8, 16}), boost::test_tools::per_element());
    check_contains(refusal("[[model.layers]]\nhaeds = 4\n"), "did you mean model.layers[0].heads?");
    check_contains(refusal("[[model.layers]]\nmixer = \"attnetion\"\n"), "did you mean \"attention\"?");
    check_contains(refusal("[[model.layers]]\ncount = 0\n"), "model.layers[0].count = 0: it must be at least 1");
    check_contains(refusal("[[model.layers]]\ncount = 9000\n[[model.layers]]\ncount = 9000\n"),
                   "model.layers = 18000: it must be at most 10000");
    check_contains(refusal("[model]\nlayers = [4, 4]\n"),
                   "model.layers holds an item that is not a table; it must be an integer, or");
    check_contains(refusal("[model]\nlayers = 4.0\n"), "model.layers must be an integer, not the number 4: write 4");
    check_contains(refusal("[model]\n\n[[model.layers]]\n\n[[model.layers]]\nheads = 0\n"),
                   ":6: model.layers[1].heads = 0");
    check_contains(refusal("[model]\nlayers = []\n"),
                   "model.layers is empty; it must be an integer, or tables [[model.layers]]");
}

BOOST_AUTO_TEST_CASE(printing_and_reading_give_the_same_description) {
    const RunDescription run =
        parse(small_run(), {"schedule.peak_lr=0.1234567890123456789", "optimizer.epsilon=1e-30",
                            "data.validation=0.3333333333333333", "batch.ramp={start=1,increment=1,samples=5}",
                            "run.folder=\"a \\\"b\\\" \\\\ \\n é\"", "model.rope_theta=1e300",
                            "model.frozen=[\"a\", \"b\"]", "run.seed=9223372036854775807"});
    const std::string printed = to_toml(run);
    const RunDescription again = parse(printed);
    BOOST_TEST(to_toml(again) == printed);
    BOOST_TEST(again.schedule.peak_lr == 0.1234567890123456789);
    BOOST_TEST(again.optimizer.epsilon == 1e-30);
    BOOST_TEST(again.model.rope_theta == 1e300);
    BOOST_TEST(again.data.validation_fraction == 0.3333333333333333);
    BOOST_TEST(again.run.folder == "a \"b\" \\ \n é");
    BOOST_TEST(again.run.seed == 9223372036854775807u);
    BOOST_TEST(again.batch.ramp->samples == 5);
    BOOST_TEST(again.model.frozen.size() == 2u);
    // Without a ramp, and with every default.
    const std::string plain = to_toml(parse(small_run()));
    BOOST_TEST(to_toml(parse(plain)) == plain);
    BOOST_TEST(plain.find("ramp") == std::string::npos);
    BOOST_TEST(to_toml(parse(to_toml(parse("", {"model.preset=llama-3.1-8b"})))) ==
               to_toml(parse("", {"model.preset=llama-3.1-8b"})));
}

BOOST_AUTO_TEST_CASE(a_section_is_printed_alone) {
    RunDescription description;
    description.run.name = "[model] of nothing";
    description.model = preset("ttt-mlp-125m");
    const std::string text = to_toml(description, "model");
    BOOST_TEST(text.starts_with("[model]\n"), text);
    BOOST_TEST((text.find("\n[model.ttt]\n") != std::string::npos), text);
    BOOST_TEST((text.find("\n[", text.find("[model.ttt]")) == std::string::npos), text);
    BOOST_TEST((to_toml(description).find(text) != std::string::npos));
}

BOOST_AUTO_TEST_CASE(files_are_read_and_missing_ones_named) {
    const std::string path = tests::build_path("config_test.toml");
    std::ofstream(path) << small_run();
    BOOST_TEST(read_run_description(path, {"run.seed=3"}).run.seed == 3u);
    std::ofstream(path, std::ios::trunc).flush();
    BOOST_TEST(read_run_description(path, {"run.name=x"}).run.name == "x");
    BOOST_TEST(read_run_description("", {}).run.seed == 1u);
    check_contains(sentence_of([] { read_run_description("/no/such/run.toml", {}); }),
                   "/no/such/run.toml cannot be read: No such file");
    check_contains(sentence_of([] { read_run_description(tests::source_path(""), {}); }), "is a folder");
}

// docs/run-description.md has one table row for every key, in order: neither can change without the other.
BOOST_AUTO_TEST_CASE(the_documentation_lists_every_key) {
    std::ifstream file(tests::source_path("docs/run-description.md"));
    BOOST_REQUIRE(file.is_open());
    std::vector<std::string> rows;
    for (std::string line; std::getline(file, line);)
        if (line.rfind("| `", 0) == 0) rows.push_back(line);
    std::vector<std::string> wanted;
    RunDescription defaults;
    for (const Key& key : keys_of(defaults)) {
        const std::string value = key.required ? "required" : "`" + value_of(key) + "`";
        wanted.push_back("| `" + key.path + "` | " + type_of(key) + " | " + value + " | " + key.meaning + " |");
    }
    BOOST_TEST(rows == wanted, boost::test_tools::per_element());
}
