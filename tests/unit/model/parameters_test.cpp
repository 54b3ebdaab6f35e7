#include "model/parameters.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <set>

#include "model/count.hpp"
#include "unit/model/small_models.hpp"

using namespace lockstep;

namespace {
std::int64_t count_of(const std::string& preset, std::int64_t vocabulary = 0) {
    config::ModelDescription model = config::preset(preset);
    if (vocabulary > 0) model.vocabulary = vocabulary;
    config::resolve(model);
    return model::parameter_count(model);
}
}  // namespace

BOOST_AUTO_TEST_CASE(presets_have_their_published_parameter_counts) {
    BOOST_TEST(count_of("gpt2-124m") == 124439808);
    BOOST_TEST(count_of("gpt2-355m") == 354823168);
    BOOST_TEST(count_of("gpt2-774m") == 774030080);
    BOOST_TEST(count_of("gpt2-1558m") == 1557611200);
    BOOST_TEST(count_of("ttt-linear-125m", 50257) == 124298064);
    BOOST_TEST(count_of("ttt-mlp-125m", 32000) == 114442320);
    BOOST_TEST(count_of("llama-3.1-8b") == 8030261248);
    BOOST_TEST(count_of("llama-3.1-70b") == 70553706496);
    BOOST_TEST(count_of("qwen2.5-7b") == 7615616512);
}

BOOST_AUTO_TEST_CASE(stages_together_have_every_parameter) {
    for (const auto& [name, model] : test::all_kinds()) BOOST_TEST_CONTEXT(name) {
            std::set<std::string> whole, parts;
            for (const auto& p : model::describe_parameters(model, model::whole_model(model))) whole.insert(p.name);
            for (const auto& p : model::describe_parameters(model, {0, 1, true, false})) parts.insert(p.name);
            for (const auto& p : model::describe_parameters(model, {1, model.layers, false, true}))
                parts.insert(p.name);
            BOOST_TEST(whole == parts, boost::test_tools::per_element());
        }
}

BOOST_AUTO_TEST_CASE(initial_values_follow_seed_and_name_alone) {
    const config::ModelDescription model = test::small_model("ttt-mlp");
    model::ParameterSet whole({}, model::describe_parameters(model, model::whole_model(model)), false);
    model::ParameterSet last({}, model::describe_parameters(model, {1, 2, false, true}), false);
    const auto backend = kernels::make_cpu_backend();
    whole.initialize(*backend, 4);
    last.initialize(*backend, 4);
    for (const auto& parameter : last.descriptions()) {
        const Tensor a = whole.value(parameter.name), b = last.value(parameter.name);
        BOOST_TEST(std::equal(a.fp32(), a.fp32() + a.count(), b.fp32()), parameter.name);
    }
    last.initialize(*backend, 5);
    BOOST_TEST(whole.value("blocks/1/mixer/query/weight").fp32()[0] !=
               last.value("blocks/1/mixer/query/weight").fp32()[0]);
}

BOOST_AUTO_TEST_CASE(initial_values_have_their_deviations) {
    config::ModelDescription model = test::small_model("ttt-linear");
    model.options.change("ttt").set("share_qk", true);
    model::ParameterSet parameters({}, model::describe_parameters(model, model::whole_model(model)), false);
    parameters.initialize(*kernels::make_cpu_backend(), 1);
    const auto deviation = [&](const std::string& name) {
        const Tensor value = parameters.value(name);
        double square = 0;
        for (std::int64_t i = 0; i < value.count(); ++i) square += std::pow(value.fp32()[i], 2);
        return std::sqrt(square / static_cast<double>(value.count()));
    };
    BOOST_TEST(std::abs(deviation("blocks/0/mixer/query/weight") - 0.02) < 0.001);
    BOOST_TEST(std::abs(deviation("blocks/0/mixer/inner/weight1") - 0.02) < 0.001);
    BOOST_TEST(std::abs(deviation("blocks/0/mixer/query_convolution/weight") - 0.5 / std::sqrt(3.0)) < 0.05);
    BOOST_TEST(deviation("blocks/0/mixer_norm/weight") == 1);
    BOOST_TEST(deviation("blocks/0/mixer/token_step") == 0);
}

BOOST_AUTO_TEST_CASE(flop_counts) {
    // gpt2-124m at 1024: 6 FLOP a weight of a product, and 6·12·1024·768 of causal attention.
    const config::ModelDescription gpt2 = config::preset("gpt2-124m");
    const double weights = 12.0 * 12 * 768 * 768 + 50257.0 * 768;
    BOOST_TEST(std::abs(model::training_flop_per_token(gpt2, 1024) / (6 * weights + 6.0 * 12 * 1024 * 768) - 1) <
               1e-12);
    // TTT's cost of a token does not depend on the length.
    const config::ModelDescription ttt = config::preset("ttt-linear-125m");
    BOOST_TEST(model::training_flop_per_token(ttt, 512) == model::training_flop_per_token(ttt, 8192));
}
