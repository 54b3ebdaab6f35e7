// The attention mixer against its definition in double precision, and its gradients against differences of that.
#include <boost/test/unit_test.hpp>

#include "model/mixers/registry.hpp"
#include "reference/attention_mixer.hpp"
#include "unit/model/small_models.hpp"

using namespace lockstep;
using reference::Values;

namespace {

constexpr model::PassShape shape{2, 13};

config::ModelDescription heads_of_their_own() {
    config::ModelDescription model = test::small_model("attention");
    model.width = 24;
    model.layers = 1;
    model.heads = {4};
    model.kv_heads = {2};
    model.head_widths = {10};
    model.qk_norm = true;
    model.norm_epsilon = 1e-3;
    return model;
}

config::ModelDescription windowed() {
    config::ModelDescription model = heads_of_their_own();
    model.windows = {4};
    model.score_cap = 0.7;
    return model;
}

Values values_of(const Tensor& tensor) {
    return {tensor.fp32(), tensor.fp32() + tensor.count()};
}

// One mixer with random weights, input and output gradient.
struct Mixed {
    explicit Mixed(const config::ModelDescription& model)
        : description(model),
          backend(kernels::make_cpu_backend()),
          parameters({}, model::describe_parameters(model, {0, 1, false, false}), true),
          mixer(model::mixer_type(model.mixer(0))
                    .make(*backend, parameters, model, model.layer(0), model::no_neighbours())) {
        parameters.initialize(*backend, 3);
        for (const auto& parameter : parameters.descriptions()) add_noise(parameters.value(parameter.name), 0.2);
        for (Tensor* tensor : {&x, &dy, &y, &dx}) *tensor = memory.allocate(Type::fp32, {shape.rows(), model.width});
        backend->fill(x, 0);
        backend->fill(dy, 0);
        add_noise(x, 1);
        add_noise(dy, 0.5);
    }

    void pass(model::Recompute recompute) {
        const auto saved = mixer->plan(memory, shape, true, recompute);
        mixer->forward(*backend, memory, y, *saved, nullptr, x, shape, false);
        model::InputGradient to_input(dx);
        mixer->backward(*backend, memory, to_input, dy, *saved, nullptr, x, shape);
    }

    Values value(const std::string& name) const { return values_of(parameters.value("blocks/0/mixer/" + name)); }
    Values gradient(const std::string& name) const { return values_of(parameters.gradient("blocks/0/mixer/" + name)); }

    reference::AttentionMixer twin() const {
        const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
        reference::AttentionMixer made{size(description.width),
                                       size(description.layer(0).heads),
                                       size(description.layer(0).kv_heads),
                                       size(description.layer(0).head_width),
                                       value("query/weight"),
                                       value("key/weight"),
                                       value("value/weight"),
                                       value("output/weight"),
                                       {},
                                       {},
                                       description.norm_epsilon,
                                       description.rope_theta};
        if (description.qk_norm) {
            made.query_norm = value("query_norm/weight");
            made.key_norm = value("key_norm/weight");
        }
        made.window = size(description.layer(0).window);
        made.score_cap = description.score_cap;
        if (description.rope_scaling == config::RopeScaling::none) return made;
        made.factor = description.rope_factor;
        made.low = description.rope_low;
        made.high = description.rope_high;
        made.original_context = static_cast<double>(description.rope_original_context);
        return made;
    }

    config::ModelDescription description;
    std::unique_ptr<kernels::Backend> backend;
    model::ParameterSet parameters;
    std::unique_ptr<model::Mixer> mixer;
    Arena memory{{}, std::size_t{1} << 22, "a mixer"};
    Tensor x, y, dx, dy;

  private:
    void add_noise(Tensor tensor, double deviation) {
        const RandomStream random(++streams_, "noise");
        for (std::int64_t i = 0; i < tensor.count(); ++i)
            tensor.fp32()[i] += static_cast<float>(deviation * random.normal(static_cast<std::uint64_t>(i)));
    }
    std::uint64_t streams_ = 0;
};

void check_output(const config::ModelDescription& model) {
    Mixed mixed(model);
    mixed.pass(model::Recompute::none);
    const Values expected = mixed.twin().forward(values_of(mixed.x), static_cast<std::size_t>(shape.length));
    for (std::size_t i = 0; i < expected.size(); ++i)
        BOOST_TEST(std::abs(mixed.y.fp32()[i] - expected[i]) < 2e-5, "element " << i << ": " << expected[i]);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(attention)

BOOST_AUTO_TEST_CASE(the_output_is_that_of_the_definition) {
    check_output(test::small_model("attention"));
    check_output(heads_of_their_own());
    config::ModelDescription stretched = heads_of_their_own();
    stretched.qk_norm = false;
    stretched.rope_scaling = config::RopeScaling::llama3;
    stretched.rope_theta = 100;
    stretched.rope_factor = 5;
    stretched.rope_low = 0.5;
    stretched.rope_high = 2;
    stretched.rope_original_context = 20;  // some pairs turn less than half, some more than twice
    check_output(stretched);
    check_output(windowed());
}

// In double precision: of every weight, the two norms' among them, and of the input.
void check_gradients(const config::ModelDescription& model) {
    Mixed mixed(model);
    mixed.pass(model::Recompute::none);
    reference::AttentionMixer twin = mixed.twin();
    Values x = values_of(mixed.x);
    const Values dy = values_of(mixed.dy);
    const auto check = [&](const std::string& name, Values& values, const Values& gradient) {
        double difference = 0, size = 0;
        for (std::size_t i = 0; i<values.size(); i += values.size()> 40 ? 7 : 1) {
            constexpr double step = 1e-4;
            const double kept = values[i];
            const auto loss_at = [&](double change) {
                values[i] = kept + change;
                return reference::dot(dy, twin.forward(x, static_cast<std::size_t>(shape.length)));
            };
            const double slope = (loss_at(step) - loss_at(-step)) / (2 * step);
            values[i] = kept;
            difference += std::pow(gradient[i] - slope, 2);
            size += std::pow(slope, 2);
        }
        BOOST_TEST(size > 0, name);
        BOOST_TEST(std::sqrt(difference / size) < 1e-5, name << " is off by " << std::sqrt(difference / size));
    };
    check("query", twin.query, mixed.gradient("query/weight"));
    check("key", twin.key, mixed.gradient("key/weight"));
    check("value", twin.value, mixed.gradient("value/weight"));
    check("output", twin.output, mixed.gradient("output/weight"));
    check("query_norm", twin.query_norm, mixed.gradient("query_norm/weight"));
    check("key_norm", twin.key_norm, mixed.gradient("key_norm/weight"));
    check("x", x, values_of(mixed.dx));
}

BOOST_AUTO_TEST_CASE(gradients_are_differences_of_the_definition) {
    check_gradients(heads_of_their_own());
    check_gradients(windowed());
}

// More tokens than the state has room for, fed in pieces.
BOOST_AUTO_TEST_CASE(decoding_keeps_a_window) {
    for (const std::int64_t window : {1, 2, 5}) {
        config::ModelDescription model = heads_of_their_own();
        model.windows = {window};
        Mixed mixed(model);
        mixed.pass(model::Recompute::none);
        const Values expected = values_of(mixed.y);
        for (const std::int64_t most : {1, 3}) {
            Arena measure;
            const auto state = mixed.mixer->plan_state(mixed.memory, model.context, most);
            mixed.mixer->plan_state(measure, model.context, most);
            const std::int64_t row_bytes = 2 * 20 * 4;  // keys and values of two heads of 10 columns
            BOOST_TEST(static_cast<std::int64_t>(measure.peak()) <=
                       row_bytes * (2 * (window - 1) + most) + 2 * static_cast<std::int64_t>(Arena::device_alignment));
            for (int sequence = 0; sequence < 2; ++sequence) {
                mixed.mixer->start_sequence(*mixed.backend, *state);
                for (std::int64_t position = 0; position < shape.length;) {
                    const std::int64_t count = std::min(1 + position % most, shape.length - position);
                    const Tensor x = mixed.x.slice(sequence * shape.length + position, count);
                    mixed.mixer->decode(*mixed.backend, mixed.memory, mixed.y.slice(0, count), *state, x, position);
                    const float* y = mixed.y.fp32();
                    for (std::int64_t i = 0; i < count * model.width; ++i)
                        BOOST_TEST(std::abs(y[i] - expected[static_cast<std::size_t>(
                                                       (sequence * shape.length + position) * model.width + i)]) <
                                   1e-5);
                    position += count;
                }
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(heads_computed_again_are_the_same) {
    Mixed kept(heads_of_their_own()), again(heads_of_their_own());
    kept.pass(model::Recompute::none);
    again.pass(model::Recompute::cheap);
    BOOST_TEST((values_of(kept.y) == values_of(again.y)));
    BOOST_TEST((values_of(kept.dx) == values_of(again.dx)));
    BOOST_TEST((values_of(kept.parameters.all_gradients()) == values_of(again.parameters.all_gradients())));
}

// Without norms nothing is computed again, and as much is kept as without recomputation.
BOOST_AUTO_TEST_CASE(recomputation_keeps_heads_once) {
    const auto bytes = [](const config::ModelDescription& model, model::Recompute recompute) {
        const Mixed mixed(model);
        Arena measure;
        mixed.mixer->plan(measure, shape, true, recompute);
        return measure.peak();
    };
    config::ModelDescription model = heads_of_their_own();
    BOOST_TEST(bytes(model, model::Recompute::cheap) + sizeof(float) * 26 * (4 + 2) * 10 <=
               bytes(model, model::Recompute::none) + 2 * Arena::device_alignment);
    model.qk_norm = false;
    BOOST_TEST(bytes(model, model::Recompute::cheap) == bytes(model, model::Recompute::none));
}

BOOST_AUTO_TEST_SUITE_END()

// The rotation of TTT within its mini-batches has nothing to scale.
BOOST_AUTO_TEST_CASE(in_hybrids_the_scaling_of_the_rotation_is_attentions_alone) {
    config::ModelDescription model = test::small_model("attention");
    model.mixers = {"ttt-linear", "attention"};
    config::resolve(model);
    const auto loss_of = [](const config::ModelDescription& of) { return test::Fixture(of, {1, 40}).loss(false); };
    config::ModelDescription standing = model, scaled = model;
    standing.position = config::Position::none;
    // No pair of columns turns any more.
    scaled.rope_scaling = config::RopeScaling::llama3;
    scaled.rope_factor = 1e9;
    scaled.rope_original_context = 1;
    BOOST_TEST(loss_of(scaled) == loss_of(standing), boost::test_tools::tolerance(1e-6));
    BOOST_TEST(std::abs(loss_of(scaled) - loss_of(model)) > 1e-5);
}
