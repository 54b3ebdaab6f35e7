// A mixer that a test brings along is trained and decoded with like one of the product's.
#define BOOST_TEST_MODULE ema_mixer
#include <boost/test/unit_test.hpp>

#include "extension/ema_mixer.hpp"
#include "layout/memory_plan.hpp"
#include "layout/run_layout.hpp"
#include "model/decoder.hpp"
#include "unit/model/model_checks.hpp"

using namespace lockstep;

namespace {

std::vector<test::NamedModel> kinds() {
    config::ModelDescription plain = test::small_model("ema"), other = plain;
    other.tied_head = false;
    other.heads = {6};
    other.head_widths = {other.width / 6};
    other.options.change("ema").set("floor", 0.5);
    config::ModelDescription hybrid = plain;
    hybrid.mixers = {"ema", "attention"};
    return {{"ema", plain}, {"ema: six heads, own head, a floor", other}, {"ema and attention", hybrid}};
}

}  // namespace

BOOST_AUTO_TEST_CASE(it_is_known_by_its_name) {
    BOOST_TEST(model::mixer_type("ema").name() == "ema");
    BOOST_CHECK_THROW(model::mixer_type("eme"), Error);
    BOOST_CHECK_THROW(model::register_mixer(test::ema_type()), Error);
}

BOOST_AUTO_TEST_CASE(its_parameters_are_the_models) {
    const config::ModelDescription model = test::small_model("ema");
    const std::int64_t d = model.width, mlp = 3 * d * model.mlp_width, norms = 2 * d;
    BOOST_TEST(model::parameter_count(model) ==
               model.vocabulary * d + model.layers * (2 * d * d + model.layer(0).heads + mlp + norms) + d);
}

BOOST_AUTO_TEST_CASE(gradients_agree_with_finite_differences) {
    for (const auto& [name, model] : kinds()) BOOST_TEST_CONTEXT(name) test::check_gradients(model, {2, 21});
}

BOOST_AUTO_TEST_CASE(decoding_gives_the_logits_of_the_parallel_form) {
    for (const auto& [name, model] : kinds()) BOOST_TEST_CONTEXT(name) {
            BOOST_TEST(test::worst_decoding_difference(model, std::vector<std::int64_t>(37, 1)) < 2e-4);
            BOOST_TEST(test::worst_decoding_difference(model, {19, 1, 1, 2, 16, 1}) < 2e-4);
        }
}

BOOST_AUTO_TEST_CASE(its_limits_are_kept) {
    config::RunDescription description;
    description.model = test::small_model("ema");
    description.batch.global = 1;
    description.batch.length = 32;
    BOOST_TEST(layout::why_impossible(description, {}) == "");
    description.parallel.sequence = true;
    BOOST_TEST(layout::why_impossible(description, {3}) == "parallel.tensor = 3 does not divide model.mlp_width = 40");
    BOOST_TEST(layout::why_impossible(description, {2}) == "parallel.tensor = 2 does not divide model.heads = 3");
    BOOST_TEST(layout::why_impossible(description, {1, 2}) ==
               "parallel.context = 2 divides sequences, but ema needs all tokens of a "
               "sequence");
}

// Planned on no device by the code that will allocate it.
BOOST_AUTO_TEST_CASE(its_memory_is_planned) {
    config::RunDescription description;
    description.model = test::small_model("ema");
    description.batch.global = 4;
    description.batch.micro = 2;
    description.batch.length = 16;
    const layout::MemoryPlan plan = layout::plan_memory(description, {}, {}, DeviceKind::cpu);
    test::Fixture real(description.model, {2, 16});
    BOOST_TEST(plan.activations == real.stage.activation_bytes());
    BOOST_TEST(plan.workspace == real.stage.workspace_bytes());
}
