#include "optim/schedule.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>

#include "optim/adamw.hpp"
#include "unit/model/small_models.hpp"

using namespace lockstep;
using config::ScheduleKind;

namespace {
config::ScheduleSection schedule_of(ScheduleKind kind) {
    config::ScheduleSection schedule;
    schedule.kind = kind;
    schedule.warmup = 10;
    schedule.peak_lr = 1e-3;
    schedule.final_lr = 1e-5;
    return schedule;
}
bool near(double a, double b) {
    return std::abs(a - b) < 1e-12;
}
}  // namespace

BOOST_AUTO_TEST_CASE(learning_rates_rise_hold_and_fall) {
    for (const ScheduleKind kind :
         {ScheduleKind::cosine, ScheduleKind::linear, ScheduleKind::constant, ScheduleKind::wsd})
        BOOST_TEST_CONTEXT(config::word_of(kind)) {
            const auto rate = [&](std::int64_t step) { return optim::learning_rate(schedule_of(kind), 110, step); };
            BOOST_TEST(near(rate(1), 1e-4));
            BOOST_TEST(near(rate(5), 5e-4));
            BOOST_TEST(near(rate(10), 1e-3));
            for (std::int64_t step = 11; step <= 110; ++step) BOOST_TEST(rate(step) <= rate(step - 1));
        }
    BOOST_TEST(near(optim::learning_rate(schedule_of(ScheduleKind::cosine), 110, 60), (1e-3 + 1e-5) / 2));
    BOOST_TEST(near(optim::learning_rate(schedule_of(ScheduleKind::cosine), 110, 110), 1e-5));
    BOOST_TEST(near(optim::learning_rate(schedule_of(ScheduleKind::linear), 110, 60), (1e-3 + 1e-5) / 2));
    BOOST_TEST(near(optim::learning_rate(schedule_of(ScheduleKind::constant), 110, 110), 1e-3));
    BOOST_TEST(near(optim::learning_rate(schedule_of(ScheduleKind::wsd), 110, 88), 1e-3));
    BOOST_TEST(near(optim::learning_rate(schedule_of(ScheduleKind::wsd), 110, 99), (1e-3 + 1e-5) / 2));
    BOOST_TEST(near(optim::learning_rate(schedule_of(ScheduleKind::wsd), 110, 110), 1e-5));
}

BOOST_AUTO_TEST_CASE(a_run_of_one_step_has_a_learning_rate) {
    config::ScheduleSection schedule = schedule_of(ScheduleKind::cosine);
    schedule.warmup = 0;
    BOOST_TEST(std::isfinite(optim::learning_rate(schedule, 1, 1)));
    BOOST_TEST(optim::learning_rate(schedule, 1, 1) > 0);
}

BOOST_AUTO_TEST_CASE(the_inner_rate_warms_up) {
    config::ModelDescription model = test::small_model("ttt-mlp");
    BOOST_TEST(optim::inner_rate_factor(model, 100, 1) == 1);
    model.options.change("ttt").set("base_lr_warmup", 0.01);
    BOOST_TEST(near(optim::inner_rate_factor(model, 100, 0), 0.1));
    BOOST_TEST(near(optim::inner_rate_factor(model, 100, 50), 0.55));
    BOOST_TEST(optim::inner_rate_factor(model, 100, 100) == 1);
}

namespace {

// The norm's plan of one rank that has the whole model.
optim::NormPlan everything(const test::Fixture& fixture) {
    return {fixture.parameters.owned(), nullptr};
}

}  // namespace

BOOST_AUTO_TEST_CASE(decay_spares_vectors_when_asked) {
    for (const config::Decay decay : {config::Decay::all, config::Decay::matrices})
        BOOST_TEST_CONTEXT(config::word_of(decay)) {
            test::Fixture fixture(test::small_model("ttt-linear"), {1, 4});
            config::OptimizerSection settings;
            settings.decay = decay;
            settings.weight_decay = 0.5;
            optim::AdamW optimizer({*fixture.backend, fixture.parameters, settings, everything(fixture)});
            const float norm = fixture.parameters.value("final_norm/weight").fp32()[0];
            const float weight = fixture.parameters.value("blocks/0/mlp/up/weight").fp32()[0];
            double loss = 1;
            optimizer.update(0.1, Tensor(&loss, Type::fp64, {1}));  // zero gradients: only decay moves anything
            const float expected_norm = decay == config::Decay::all ? norm * 0.95f : norm;
            BOOST_TEST(std::abs(fixture.parameters.value("final_norm/weight").fp32()[0] - expected_norm) < 1e-6f);
            BOOST_TEST(std::abs(fixture.parameters.value("blocks/0/mlp/up/weight").fp32()[0] - weight * 0.95f) < 1e-6f);
        }
}

BOOST_AUTO_TEST_CASE(the_first_group_that_matches_decides) {
    test::Fixture fixture(test::small_model("ttt-linear"), {1, 4});
    config::OptimizerSection settings;
    settings.decay = config::Decay::matrices;
    settings.weight_decay = 0.5;
    settings.groups = {{"blocks/0/mlp/*", config::ParameterGroup::not_given, 0.25}, {"*", 0.01, 0.5, 0.5}};
    const optim::NormPlan plan = everything(fixture);
    optim::AdamW optimizer({*fixture.backend, fixture.parameters, settings, plan});
    const auto first = [&](const char* name) { return fixture.parameters.value(name).fp32()[0]; };
    const float up = first("blocks/0/mlp/up/weight"), other = first("blocks/1/mlp/up/weight"),
                norm = first("final_norm/weight");
    double loss = 1;
    optimizer.update(0.1, Tensor(&loss, Type::fp64, {1}));  // zero gradients: only decay moves anything
    BOOST_TEST(std::abs(first("blocks/0/mlp/up/weight") - up * 0.975f) < 1e-6f);
    BOOST_TEST(std::abs(first("blocks/1/mlp/up/weight") - other * 0.975f) < 1e-6f);
    BOOST_TEST(std::abs(first("final_norm/weight") - norm * 0.975f) < 1e-6f);
    // A group without a decay of its own decays as the parameter would.
    settings.groups = {{"*", 0.01, config::ParameterGroup::not_given, 0.5}};
    BOOST_TEST(optim::group_of(settings, {"w", {3}}).decay == 0);
    model::ParameterDescription matrix{"w", {3, 3}};
    matrix.matrix = true;
    BOOST_TEST(optim::group_of(settings, matrix).decay == 0.5f);
    BOOST_TEST(optim::group_of(settings, matrix).rate_factor == 0.5f);
}

BOOST_AUTO_TEST_CASE(clipping_scales_the_gradient_to_the_limit) {
    test::Fixture clipped(test::small_model("attention"), {1, 9}), scaled(test::small_model("attention"), {1, 9});
    clipped.loss(true);
    scaled.loss(true);
    config::OptimizerSection settings;
    settings.epsilon = 1;  // so that the size of the gradient shows
    settings.clip = 0.25;
    optim::AdamW with_clip({*clipped.backend, clipped.parameters, settings, everything(clipped)});
    settings.clip = 0;
    optim::AdamW without({*scaled.backend, scaled.parameters, settings, everything(scaled)});
    double loss = 1;
    const Tensor loss_tensor(&loss, Type::fp64, {1});
    with_clip.update(0.01, loss_tensor);
    const double norm = with_clip.decision().fp64()[kernels::Decision::gradient_norm];
    BOOST_TEST_REQUIRE(norm > 0.25);
    scaled.backend->scale(scaled.parameters.all_gradients(), static_cast<float>(0.25 / (norm + 1e-6)));
    without.update(0.01, loss_tensor);
    BOOST_TEST(with_clip.decision().fp64()[kernels::Decision::updates] == 1.0);
    const Tensor a = clipped.parameters.all_values(), b = scaled.parameters.all_values();
    for (std::int64_t i = 0; i < a.count(); ++i) BOOST_TEST_REQUIRE(std::abs(a.fp32()[i] - b.fp32()[i]) < 1e-6f);
}
