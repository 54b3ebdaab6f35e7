// Mixers and optimizers that only this test knows: their keys behave as all others.
#define BOOST_TEST_MODULE registry
#include "config/registry.hpp"

#include "config_test.hpp"

using namespace lockstep;
using namespace lockstep::config;

namespace {

bool add(Family family, const std::string& name, const std::string& section, const std::vector<OptionKey>& keys = {}) {
    return register_kind(family, std::make_unique<Kind>(name, section, keys));
}

const bool registered = [] {
    add(Family::mixer, "average", "average",
        {{"rate", 0.5, "How fast it forgets.", 0, 1},
         {"window", 8, "Tokens.", 1},
         {"learned", true, "Whether the rate is trained."}});
    add(Family::mixer, "average-twice", "average", {{"passes", 2, "How often.", 1}});
    return add(Family::optimizer, "plain", "plain", {{"momentum", 0.9, "Of the sum of gradients.", 0, 1}});
}();

RunDescription parse(const std::string& toml, const std::vector<std::string>& settings = {}) {
    return parse_run_description(toml, "run.toml", settings);
}
std::string refusal(const std::vector<std::string>& settings) {
    return sentence_of([&] { parse("", settings); });
}

}  // namespace

BOOST_AUTO_TEST_CASE(registered_keys_are_read_and_printed) {
    BOOST_TEST(registered);
    const RunDescription run =
        parse("[model]\nmixer = \"average\"\n[model.average]\nrate = 0.25\n[optimizer]\nkind = \"plain\"\n",
              {"model.average.window=3", "optimizer.plain.momentum=0"});
    const Options mixer = run.model.options.at("average");
    BOOST_TEST(mixer.number("rate") == 0.25);
    BOOST_TEST(mixer.integer("window") == 3);
    BOOST_TEST(mixer.flag("learned"));
    BOOST_TEST(mixer.integer("passes") == 2);  // of the other mixer with this section
    BOOST_TEST(mixer.given("rate"));
    BOOST_TEST(!mixer.given("learned"));
    BOOST_TEST(run.optimizer.options.at("plain").number("momentum") == 0);
    const std::string printed = to_toml(run);
    check_contains(printed, "[model.average]\nrate = 0.25\nwindow = 3\nlearned = true\n");
    check_contains(printed, "[optimizer.plain]\nmomentum = 0.0\n");
    const RunDescription again = parse(printed);
    BOOST_TEST(to_toml(again) == printed);
    BOOST_TEST((again.model.options == run.model.options));
    BOOST_TEST((again.optimizer.options == run.optimizer.options));
}

BOOST_AUTO_TEST_CASE(sections_stand_where_something_would_be_lost_without_them) {
    const std::string plain = to_toml(parse(small_run()));
    BOOST_TEST(plain.find("[model.average]") == std::string::npos);
    BOOST_TEST(plain.find("[optimizer.plain]") == std::string::npos);
    BOOST_TEST(plain.find("[model.ttt]") != std::string::npos);
    check_contains(to_toml(parse(small_run(), {"model.average.rate=0.1"})), "[model.average]\nrate = 0.1\n");
}

BOOST_AUTO_TEST_CASE(differences_name_registered_keys) {
    const std::vector<std::string> list =
        differences(parse(small_run(), {"model.average.rate=0.1"}), parse(small_run()), "model");
    BOOST_REQUIRE(list.size() == 1u);
    BOOST_TEST(list[0] == "model.average.rate is 0.1, was 0.5");
}

BOOST_AUTO_TEST_CASE(presets_keep_registered_keys) {
    const RunDescription run = parse("", {"model.average.window=5", "model.preset=gpt2-124m", "model.mixer=average"});
    BOOST_TEST(run.model.options.at("average").integer("window") == 5);
    BOOST_TEST(run.model.mixer(0) == "average");
    BOOST_TEST(run.model.width == 768);
}

BOOST_AUTO_TEST_CASE(wrong_values_of_registered_keys_are_refused) {
    check_contains(refusal({"model.average.rate=2"}), "model.average.rate = 2: it must be at most 1");
    check_contains(refusal({"model.average.window=0"}), "it must be at least 1");
    check_contains(refusal({"model.average.window=1.5"}), "must be an integer, not");
    check_contains(refusal({"model.average.wimdow=3"}), "did you mean model.average.window?");
    RunDescription run = parse(small_run());
    run.model.options.change("average").set("rate", -1.0);
    check_contains(sentence_of([&] { check(run); }), "model.average.rate = -1: it must not be negative");
}

BOOST_AUTO_TEST_CASE(unknown_names_are_refused_and_the_nearest_named) {
    check_contains(refusal({"model.mixer=avrage"}), "(did you mean \"average\"?)");
    check_contains(
        refusal({"optimizer.kind=adam"}),
        "optimizer.kind = \"adam\": the allowed values are \"adamw\", \"muon\", \"plain\", \"sgd\" (did you mean "
        "\"adamw\"?)");
}

BOOST_AUTO_TEST_CASE(a_foreign_description_may_have_unknown_kinds) {
    const RunDescription run = parse_foreign_description(
        "[model]\nmixer = \"elsewhere\"\nwidth = 64\n[model.elsewhere]\ndepth = 3\n[optimizer]\nkind = \"other\"\n"
        "[optimizer.other]\nbeta = 1\n",
        "trace");
    BOOST_TEST(run.model.mixer(0) == "elsewhere");
    BOOST_TEST(run.model.width == 64);
    BOOST_TEST(run.optimizer.kind == "other");
    check_contains(sentence_of([] { parse_foreign_description("[model]\nwidht = 1\n", "trace"); }), "model.width");
}

BOOST_AUTO_TEST_CASE(registering_twice_is_a_fault) {
    BOOST_CHECK_THROW(add(Family::mixer, "average", ""), Error);
    BOOST_CHECK_THROW(add(Family::mixer, "third", "average", {{"rate", 1, ""}}), Error);
    const Options options(std::vector<OptionKey>{{"a", 1, ""}});
    BOOST_CHECK_THROW((void)options.number("a"), Error);
    BOOST_CHECK_THROW((void)options.integer("b"), Error);
}
