// Adapters of linear layers: their gradients, and that they are what a merged weight is.
#include <boost/test/unit_test.hpp>
#include <cmath>

#include "base/hash.hpp"
#include "model/adapters.hpp"
#include "model/frozen.hpp"
#include "reference/dropout.hpp"
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

BOOST_AUTO_TEST_CASE(gradients_with_dropout_agree_with_finite_differences) {
    for (auto [name, model] : test::all_kinds()) BOOST_TEST_CONTEXT(name) {
            model = with_adapters(model, 3);
            model.adapters.dropout = 0.3;
            test::check_gradients(model, {2, 21});
        }
}

// Recomputed passes hide the same elements.
BOOST_AUTO_TEST_CASE(dropout_is_the_same_in_a_pass_that_is_recomputed) {
    for (auto [name, model] : test::all_kinds()) BOOST_TEST_CONTEXT(name) {
            model = with_adapters(model, 2);
            model.adapters.dropout = 0.5;
            Fixture kept(model, {2, 18}), recomputed(model, {2, 18}, true, model::Recompute::full);
            BOOST_TEST(kept.loss(true) == recomputed.loss(true));
            const Tensor expected = kept.parameters.all_gradients(), actual = recomputed.parameters.all_gradients();
            BOOST_TEST((std::equal(actual.fp32(), actual.fp32() + actual.count(), expected.fp32())));
        }
}

// One layer as the second of two tensor ranks has it, whose inputs or outputs they divide, in double precision.
BOOST_AUTO_TEST_CASE(a_layer_with_dropout_follows_the_reference) {
    config::ModelDescription model = with_adapters(test::small_model("attention"), 3);
    model.adapters.dropout = 0.4;
    const auto backend = kernels::make_cpu_backend();
    model::ParameterSet parameters({}, {model::describe_parameters(model, model::whole_model(model)), {1, 2}}, true);
    parameters.initialize(*backend, 3);
    constexpr std::int64_t rows = 11;
    model::reserve_adapter_scratch({}, parameters, model, rows);
    std::vector<std::int32_t> words;
    std::vector<std::uint64_t> tokens;
    for (std::uint32_t row = 0; row < rows; ++row) {
        words.insert(words.end(), {static_cast<std::int32_t>(row + 5), static_cast<std::int32_t>(0xF0000000u + row)});
        tokens.push_back(std::uint64_t{0xF0000000u + row} << 32 | (row + 5));
    }
    parameters.set_dropout_tokens(Tensor(words.data(), Type::int32, {rows, 2}));
    for (const std::string layer : {"blocks/1/mlp/down", "blocks/0/mlp/up"}) BOOST_TEST_CONTEXT(layer) {
            const Tensor a = parameters.value(layer + model::adapter_a), b = parameters.value(layer + model::adapter_b);
            const RandomStream random(4, layer);
            std::uint64_t drawn = 0;
            const auto draw = [&](std::int64_t count) {
                std::vector<float> values(static_cast<std::size_t>(count));
                for (float& value : values) value = static_cast<float>(random.normal(drawn++));
                return values;
            };
            const std::vector<float> second = draw(b.count());
            std::copy(second.begin(), second.end(), b.fp32());
            const std::int64_t in = a.size(1), out = b.size(0), rank = a.size(0);
            std::vector<float> x = draw(rows * in), dy = draw(rows * out), y(dy.size()), dx(x.size());
            const auto update = model::LowRankUpdate::of(parameters, layer);
            const Tensor x_tensor(x.data(), Type::fp32, {rows, in}), dx_tensor(dx.data(), Type::fp32, {rows, in});
            const Tensor y_tensor(y.data(), Type::fp32, {rows, out}), dy_tensor(dy.data(), Type::fp32, {rows, out});
            update->forward(*backend, y_tensor, x_tensor);
            update->backward_input(*backend, dx_tensor, dy_tensor);
            update->backward_parameters(*backend, dy_tensor, x_tensor);

            using reference::Values;
            const auto doubles = [](Tensor tensor) { return Values(tensor.fp32(), tensor.fp32() + tensor.count()); };
            const auto product = [](const Values& left, const Values& right, std::int64_t m, std::int64_t n,
                                    std::int64_t k, bool transpose_left, bool transpose_right) {
                Values result(static_cast<std::size_t>(m * n));
                for (std::int64_t i = 0; i < m; ++i)
                    for (std::int64_t j = 0; j < n; ++j)
                        for (std::int64_t l = 0; l < k; ++l)
                            result[static_cast<std::size_t>(i * n + j)] +=
                                left[static_cast<std::size_t>(transpose_left ? l * m + i : i * k + l)] *
                                right[static_cast<std::size_t>(transpose_right ? j * k + l : l * n + j)];
                return result;
            };
            const auto scaled = [&](Values values) {
                for (double& value : values) value *= model::adapter_scale(model);
                return values;
            };
            const std::int64_t first_column = layer.ends_with("down") ? in : 0;
            const auto after_dropout = [&](const Values& values) {
                return reference::dropout(values, tokens, hash64(layer.data(), layer.size()), first_column, 0.4);
            };
            const Values A = doubles(a), B = doubles(b), DY = doubles(dy_tensor),
                         dropped = after_dropout(doubles(x_tensor));
            const Values projected = scaled(product(dropped, A, rows, rank, in, false, true)),
                         dprojected = scaled(product(DY, B, rows, rank, out, false, false));
            const auto near = [](Tensor actual, const Values& expected, const std::string& what) {
                double worst = 0, largest = 0;
                for (std::size_t i = 0; i < expected.size(); ++i) {
                    worst = std::max(worst, std::abs(static_cast<double>(actual.fp32()[i]) - expected[i]));
                    largest = std::max(largest, std::abs(expected[i]));
                }
                BOOST_TEST(largest > 0.01);
                BOOST_TEST(worst < 1e-5 * largest, what << " differs by " << worst << " of " << largest);
            };
            near(y_tensor, product(projected, B, rows, out, rank, false, true), "y");
            near(dx_tensor, after_dropout(product(dprojected, A, rows, in, rank, false, false)), "dx");
            near(parameters.gradient(layer + model::adapter_a),
                 product(dprojected, dropped, rank, in, rows, true, false), "da");
            near(parameters.gradient(layer + model::adapter_b), product(DY, projected, out, rank, rows, true, false),
                 "db");
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
