// Adapters of linear layers: their gradients, and that they are what a merged weight is.
#include <boost/test/unit_test.hpp>
#include <cmath>

#include "model/adapters.hpp"
#include "model/frozen.hpp"
#include "unit/model/model_checks.hpp"

using namespace lockstep;
using test::Fixture;

namespace {

config::ModelDescription with_adapters(config::ModelDescription model, std::int64_t rank) {
    model.adapters.rank = rank;
    model.adapters.alpha = 2.5;
    return model;
}

// weight += alpha / rank · b a, in place; the adapters become zero.
void merge(const config::ModelDescription& model, model::ParameterSet& parameters) {
    for (const auto& parameter : parameters.descriptions()) {
        if (!parameter.name.ends_with(model::adapter_a)) continue;
        const std::string layer = model::adapted_layer(parameter.name);
        const Tensor a = parameters.value(parameter.name), b = parameters.value(layer + model::adapter_b),
                     weight = parameters.value(layer + "/weight");
        const std::int64_t rank = a.size(0), in = a.size(1), out = b.size(0);
        BOOST_TEST_REQUIRE(weight.count() == out * in);
        for (std::int64_t row = 0; row < out; ++row)
            for (std::int64_t column = 0; column < in; ++column) {
                double sum = 0;
                for (std::int64_t k = 0; k < rank; ++k)
                    sum += static_cast<double>(b.fp32()[row * rank + k]) * a.fp32()[k * in + column];
                weight.fp32()[row * in + column] += static_cast<float>(model::adapter_scale(model) * sum);
            }
        std::fill_n(b.fp32(), b.count(), 0.0f);
    }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(adapters)

BOOST_AUTO_TEST_CASE(gradients_of_adapters_agree_with_finite_differences) {
    for (const auto& [name, model] : test::all_kinds())
        for (const std::int64_t rank : {1, 3}) BOOST_TEST_CONTEXT(name << ", rank " << rank) {
                test::check_gradients(with_adapters(model, rank), {2, 21});
            }
}

BOOST_AUTO_TEST_CASE(adapters_compute_what_merged_weights_do) {
    for (const auto& [name, model] : test::all_kinds()) BOOST_TEST_CONTEXT(name) {
            const config::ModelDescription adapted = with_adapters(model, 4);
            Fixture fixture(adapted, {2, 18});
            const double apart = fixture.loss(true);
            std::size_t trained = 0;
            for (const auto& parameter : fixture.parameters.descriptions()) {
                trained += parameter.trained ? 1 : 0;
                BOOST_TEST(parameter.trained == model::is_adapter(parameter.name));
            }
            BOOST_TEST(trained > 8u);
            merge(adapted, fixture.parameters);
            const double merged = fixture.loss(false);
            BOOST_TEST(std::abs(apart - merged) < 2e-6 * merged);
        }
}

BOOST_AUTO_TEST_CASE(new_adapters_change_nothing) {
    for (const char* mixer : {"attention", "ttt-mlp"}) {
        const config::ModelDescription model = test::small_model(mixer);
        Fixture plain(model, {1, 18}), adapted(with_adapters(model, 2), {1, 18});
        plain.parameters.initialize(*plain.backend, 3);
        adapted.parameters.initialize(*adapted.backend, 3);
        BOOST_TEST(plain.loss(false) == adapted.loss(false));
    }
}

BOOST_AUTO_TEST_CASE(adapters_decode_as_they_train) {
    for (const char* mixer : {"attention", "ttt-linear", "gated-deltanet"})
        BOOST_TEST(test::worst_decoding_difference(with_adapters(test::small_model(mixer), 3), {7, 1, 5}) < 2e-4);
}

BOOST_AUTO_TEST_CASE(passes_add_up_or_write) {
    test::check_first_pass(with_adapters(test::small_model("attention"), 3), {1, 18});
}

BOOST_AUTO_TEST_CASE(patterns_choose_layers) {
    config::ModelDescription model = with_adapters(test::small_model("attention"), 2);
    model.adapters.match = {"*/mixer/query", "blocks/1/mlp/*"};
    std::vector<std::string> names;
    for (const auto& parameter : model::describe_parameters(model, model::whole_model(model)))
        if (model::is_adapter(parameter.name)) names.push_back(parameter.name);
    const std::vector<std::string> expected = {"blocks/0/mixer/query/lora_a", "blocks/0/mixer/query/lora_b",
                                               "blocks/1/mixer/query/lora_a", "blocks/1/mixer/query/lora_b",
                                               "blocks/1/mlp/gate/lora_a",    "blocks/1/mlp/gate/lora_b",
                                               "blocks/1/mlp/up/lora_a",      "blocks/1/mlp/up/lora_b",
                                               "blocks/1/mlp/down/lora_a",    "blocks/1/mlp/down/lora_b"};
    BOOST_TEST(names == expected, boost::test_tools::per_element());
    BOOST_CHECK_NO_THROW(model::check_frozen(model));
    model.adapters.match.push_back("*/mixer/quary");
    BOOST_CHECK_EXCEPTION(model::check_frozen(model), Error, [](const Error& error) {
        return std::string(error.what())
                   .find("matches no linear layer of the model; the nearest is blocks/0/mixer/query ") !=
               std::string::npos;
    });
}

BOOST_AUTO_TEST_SUITE_END()
