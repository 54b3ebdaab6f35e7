// The models of a job, as [[plan.models]] gives them.
#define BOOST_TEST_MODULE plan_request
#include "plan/plan_request.hpp"

#include <boost/test/unit_test.hpp>

#include "unit/data/temporary_folder.hpp"

using namespace lockstep;
using namespace lockstep::plan;

namespace {

config::ModelDescription model_of(const std::string& keys) {
    const TemporaryFolder folder;
    const auto models = read_plan_models(folder.write("plan.toml", "[[plan.models]]\nname = \"a\"\n" + keys));
    BOOST_TEST_REQUIRE(models.size() == 1u);
    return models[0].shape;
}

}  // namespace

BOOST_AUTO_TEST_CASE(keys_given_with_a_preset_decide_what_follows_from_them) {
    const config::ModelDescription wide = model_of("preset = \"gpt2-124m\"\nwidth = 1536\n");
    BOOST_TEST(wide.layer(0).head_width == 128);
    BOOST_TEST(wide.layer(0).kv_heads == 12);
    BOOST_TEST(wide.mlp_width == 3072);  // the preset's own
    BOOST_TEST(model_of("preset = \"gpt2-124m\"\nheads = 6\n").layer(0).kv_heads == 6);
    const config::ModelDescription ttt = model_of("preset = \"ttt-linear-125m\"\nwidth = 1536\n");
    BOOST_TEST(ttt.mixer(0) == "ttt-linear");
    BOOST_TEST(ttt.layer(0).head_width == 128);
    BOOST_TEST(model_of("preset = \"qwen3-8b\"\nwidth = 2048\n").layer(0).head_width == 128);  // the preset's own
    check_error([] { model_of("preset = \"gpt2\"\n"); }, ExitCode::usage, {"plan.toml: unknown preset \"gpt2\""});
}
