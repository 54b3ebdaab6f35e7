// Whole models: the gradient of every tensor against finite differences of the loss.
#define BOOST_TEST_MODULE model
#include <boost/test/unit_test.hpp>

#include "unit/model/model_checks.hpp"

using namespace lockstep;
using test::Fixture;

BOOST_AUTO_TEST_CASE(gradients_agree_with_finite_differences) {
    for (const auto& [name, model] : test::all_kinds()) BOOST_TEST_CONTEXT(name) {
            test::check_gradients(model, {2, 21});
        }
}

BOOST_AUTO_TEST_CASE(gradients_of_a_single_token) {
    for (const char* mixer : {"attention", "ttt-linear", "ttt-mlp", "gated-deltanet"}) BOOST_TEST_CONTEXT(mixer) {
            test::check_gradients(test::small_model(mixer), {1, 1});
        }
}

BOOST_AUTO_TEST_CASE(gradients_add_up_over_micro_batches) {
    for (const auto& [name, model] : test::all_kinds()) BOOST_TEST_CONTEXT(name) {
            Fixture once(model, {1, 18}), twice(model, {1, 18});
            once.loss(true);
            twice.loss(true);
            twice.loss(true);
            const Tensor one = once.parameters.all_gradients(), two = twice.parameters.all_gradients();
            double difference = 0, size = 0;
            for (std::int64_t i = 0; i < one.count(); ++i) {
                difference += std::pow(two.fp32()[i] - 2.0 * one.fp32()[i], 2);
                size += std::pow(2.0 * one.fp32()[i], 2);
            }
            BOOST_TEST(difference < 1e-12 * size);
        }
}

BOOST_AUTO_TEST_CASE(the_first_pass_of_a_step_overwrites_gradients) {
    for (const auto& [name, model] : test::all_kinds()) BOOST_TEST_CONTEXT(name) {
            test::check_first_pass(model, {1, 18});
            Fixture fixture(model, {1, 18});
            const Tensor gradients = fixture.parameters.all_gradients();
            fixture.backend->fill(gradients, 1);
            fixture.parameters.clear_gradients(*fixture.backend);
            const auto kept = std::count(gradients.fp32(), gradients.fp32() + gradients.count(), 1.0f);
            BOOST_TEST(kept > gradients.count() / 2);
            BOOST_TEST(kept < gradients.count());
        }
}

// Only the first piece of the logits overwrites the head's gradient.
BOOST_AUTO_TEST_CASE(a_head_in_pieces_overwrites_its_gradient_once) {
    config::ModelDescription model = test::small_model("attention");
    model.vocabulary = 131072;  // 64 rows of logits at a time
    for (const bool tied : {true, false}) {
        model.tied_head = tied;
        test::check_first_pass(model, {5, 31});
    }
}

BOOST_AUTO_TEST_CASE(biases_beside_frozen_weights_are_written_too) {
    config::ModelDescription model = test::small_model("attention");
    model.bias = config::Bias::all;
    model.frozen = {"*/weight"};
    Fixture cleared(model, {1, 18}), written(model, {1, 18});
    cleared.loss(true);
    const Tensor expected = cleared.parameters.all_gradients(), actual = written.parameters.all_gradients();
    written.backend->fill(actual, std::nanf(""));
    written.parameters.clear_gradients(*written.backend);
    written.parameters.set_first_pass(true);
    written.loss(true);
    BOOST_TEST((std::equal(actual.fp32(), actual.fp32() + actual.count(), expected.fp32())));
}

BOOST_AUTO_TEST_CASE(sequences_of_a_batch_do_not_see_each_other) {
    for (const auto& [name, model] : test::all_kinds()) BOOST_TEST_CONTEXT(name) {
            Fixture pair(model, {2, 17}), alone(model, {1, 17});
            std::copy(pair.ids.begin() + 17, pair.ids.end(), alone.ids.begin());
            std::copy(pair.targets.begin() + 17, pair.targets.end(), alone.targets.begin());
            pair.loss(false);
            alone.loss(false);
            for (std::size_t t = 0; t < 17; ++t) BOOST_TEST(std::abs(pair.losses[17 + t] - alone.losses[t]) < 1e-5);
        }
}

BOOST_AUTO_TEST_CASE(a_token_does_not_see_the_ones_after_it) {
    for (const auto& [name, model] : test::all_kinds()) BOOST_TEST_CONTEXT(name) {
            Fixture fixture(model, {1, 35});
            fixture.loss(false);
            const std::vector<float> before = fixture.losses;
            fixture.ids[30] = (fixture.ids[30] + 1) % static_cast<std::int32_t>(model.vocabulary);
            fixture.loss(false);
            for (std::size_t t = 0; t < 30; ++t) BOOST_TEST(fixture.losses[t] == before[t]);
            BOOST_TEST(fixture.losses[30] != before[30]);
        }
}

BOOST_AUTO_TEST_CASE(a_head_in_pieces_gives_the_loss_of_a_head_at_once) {
    config::ModelDescription model = test::small_model("attention");
    model.vocabulary = 131072;  // 64 rows of logits at a time
    Fixture fixture(model, {5, 31});
    const double in_pieces = fixture.loss(true);
    std::vector<float> logits(static_cast<std::size_t>(fixture.shape.rows() * model.vocabulary));
    fixture.stage.logits(0, Tensor(logits.data(), Type::fp32, {fixture.shape.rows(), model.vocabulary}));
    double sum = 0;
    for (std::int64_t row = 0; row < fixture.shape.rows(); ++row) {
        const float* of_row = logits.data() + row * model.vocabulary;
        double total = 0;
        for (std::int64_t v = 0; v < model.vocabulary; ++v) total += std::exp(static_cast<double>(of_row[v]));
        sum += std::log(total) - of_row[fixture.targets[static_cast<std::size_t>(row)]];
    }
    BOOST_TEST(std::abs(in_pieces - sum / static_cast<double>(fixture.shape.rows())) < 1e-4);
}
