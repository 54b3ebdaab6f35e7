// Frozen parameters: which they are, that they take no memory of training, and that the gradients of the others are
// those of a model in which nothing is frozen.
#include "model/frozen.hpp"

#include <boost/test/unit_test.hpp>
#include <cstring>

#include "base/float16.hpp"
#include "model/count.hpp"
#include "unit/model/small_models.hpp"

using namespace lockstep;

namespace {

using Patterns = std::vector<std::string>;

std::string refusal(config::ModelDescription model, const Patterns& frozen) {
    model.frozen = frozen;
    try {
        model::check_frozen(model);
    } catch (const Error& error) {
        BOOST_TEST(static_cast<int>(error.code()) == 2);
        return error.what();
    }
    return "";
}

std::vector<std::string> names_of(const config::ModelDescription& model) {
    std::vector<std::string> names;
    for (const auto& parameter : model::describe_parameters(model, model::whole_model(model)))
        names.push_back(parameter.name);
    return names;
}

bool same_values(Tensor a, Tensor b) {
    return a.count() == b.count() && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

bool close_values(Tensor a, Tensor b) {
    double difference = 0, size = 0;
    for (std::int64_t i = 0; i < a.count(); ++i) {
        const double x = static_cast<double>(a.fp32()[i]), y = static_cast<double>(b.fp32()[i]);
        difference += (x - y) * (x - y);
        size += y * y;
    }
    return a.count() == b.count() && difference <= 1e-10 * size;
}

// One step of `model` with these patterns: loss and gradients are bit for bit those of `whole`, in which all is
// trained. Without `exact`, products sum in another order.
void check_against(test::Fixture& whole, double loss, config::ModelDescription model, const Patterns& frozen,
                   model::Recompute recompute = model::Recompute::none, bool exact = true) {
    model.frozen = frozen;
    test::Fixture fixture(model, whole.shape, true, recompute);
    if (exact)
        BOOST_TEST(fixture.loss(true) == loss);
    else
        BOOST_TEST(fixture.loss(true) == loss, boost::test_tools::tolerance(1e-6));
    std::int64_t trained = 0;
    for (const auto& parameter : fixture.parameters.descriptions()) {
        const Tensor gradient = fixture.parameters.gradient(parameter.name);
        BOOST_TEST(parameter.trained == !model::is_frozen(model, parameter.name));
        BOOST_TEST(gradient.empty() == !parameter.trained);
        if (gradient.empty()) continue;
        ++trained;
        const Tensor expected = whole.parameters.gradient(parameter.name);
        BOOST_TEST((exact ? same_values(gradient, expected) : close_values(gradient, expected)), parameter.name);
    }
    BOOST_TEST(trained > 0);
}

}  // namespace

BOOST_AUTO_TEST_CASE(patterns_match_names) {
    config::ModelDescription model = test::small_model("attention");
    model.frozen = {"blocks/0/*", "*norm/weight", "blocks/?/mixer/[qk]*/weight"};
    for (const char* name : {"blocks/0/mlp/up/weight", "blocks/1/mlp_norm/weight", "final_norm/weight",
                             "blocks/1/mixer/query/weight", "blocks/1/mixer/key/weight"})
        BOOST_TEST(model::is_frozen(model, name), name);
    for (const char* name : {"blocks/1/mlp/up/weight", "embedding/weight", "blocks/1/mixer/value/weight"})
        BOOST_TEST(!model::is_frozen(model, name), name);
    BOOST_TEST(refusal(model, model.frozen).empty());
    BOOST_TEST(refusal(model, {}).empty());
}

BOOST_AUTO_TEST_CASE(patterns_that_cannot_be_meant_are_refused) {
    const config::ModelDescription model = test::small_model("attention");
    BOOST_TEST(
        refusal(model, {"embedding/*", "blocks/*/mlp/upp/weight"}).find("the nearest is blocks/0/mlp/up/weight") !=
        std::string::npos);
    BOOST_TEST(refusal(model, {"final_norm"}).find("the nearest is final_norm/weight") != std::string::npos);
    BOOST_TEST(refusal(model, {"head/weight"}).find("\"head/weight\" matches no parameter") !=
               std::string::npos);  // tied
    BOOST_TEST(refusal(model, {"blocks/2/*"}).find("the nearest is blocks/") != std::string::npos);
    BOOST_TEST(refusal(model, {""}).find("matches no parameter") != std::string::npos);
    BOOST_TEST(refusal(model, {"embedding/*", "blocks/*", "final*"}).find("nothing to train") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_stage_knows_whether_something_is_trained_before_it) {
    config::ModelDescription model = test::small_model("ttt-linear");
    BOOST_TEST(model::trains_before(model, 0));
    model.frozen = {"embedding/*"};
    BOOST_TEST(!model::trains_before(model, 0));
    BOOST_TEST(model::trains_before(model, 1));
    model.frozen = {"embedding/*", "blocks/0/*"};
    BOOST_TEST(!model::trains_before(model, 1));
    BOOST_TEST(model::trains_before(model, 2));
}

BOOST_AUTO_TEST_CASE(frozen_parameters_take_no_memory_of_training) {
    config::ModelDescription model = test::small_model("attention");
    const model::ParameterSet whole({}, model::describe_parameters(model, model::whole_model(model)), true);
    model.frozen = {"embedding/*", "*/weight"};
    model.bias = config::Bias::all;
    const model::ParameterSet biases({}, model::describe_parameters(model, model::whole_model(model)), true);
    const model::ParameterLayout& layout = biases.layout();
    bool frozen_before = false;
    for (std::size_t i = 0; i < layout.size(); ++i) {
        const bool trained = layout.descriptions()[i].trained;
        BOOST_TEST((trained ? !frozen_before : layout.offset(i) >= layout.trained_total()));
        frozen_before = frozen_before || !trained;
    }
    BOOST_TEST(biases.all_gradients().count() == layout.trained_total());
    BOOST_TEST(biases.owned().front().count == layout.trained_total());
    // What the norms' operations make beside the gradients that are wanted: three norms.
    constexpr std::size_t alignments = 4 * Arena::device_alignment;
    BOOST_TEST(biases.gradient_bytes() <=
               static_cast<std::size_t>(layout.trained_total() + 3 * model.width) * sizeof(float) + alignments);
    BOOST_TEST(biases.gradient_bytes() < whole.gradient_bytes() / 4);
}

BOOST_AUTO_TEST_CASE(frozen_matrices_are_kept_in_the_compute_type) {
    config::ModelDescription model = test::small_model("ttt-linear");
    const auto backend = kernels::make_cpu_backend();
    model::ParameterSet exact({}, model::describe_parameters(model, model::whole_model(model)), false);
    exact.initialize(*backend, 7);
    model.frozen = {"embedding/*", "blocks/*"};
    const auto descriptions = model::describe_parameters(model, model::whole_model(model));
    const model::ParameterLayout all(descriptions, {});
    for (const std::vector<model::Piece>& owned : {std::vector<model::Piece>{}, {{0, all.trained_total()}}}) {
        model::ParameterSet parameters({}, all, true, Type::bf16, {owned});
        parameters.initialize(*backend, 7);
        const model::ParameterLayout& layout = parameters.layout();
        std::int64_t exact_count = 0;
        for (std::size_t i = 0; i < layout.size(); ++i) {
            const auto& parameter = layout.descriptions()[i];
            const Tensor expected = exact.value(parameter.name);
            if (parameter.exact) {
                exact_count += layout.count(i) + model::ParameterLayout::alignment;
                BOOST_TEST(same_values(parameters.value(parameter.name), expected), parameter.name);
            }
            if (parameter.trained) continue;
            const Tensor kept = parameters.frozen_value(i);
            BOOST_TEST((kept.type() == (parameter.exact ? Type::fp32 : Type::bf16)), parameter.name);
            if (parameter.exact) continue;
            BOOST_TEST((kept.data() == parameters.working(parameter.name).data()));
            const auto* bits = static_cast<const std::uint16_t*>(kept.data());
            for (std::int64_t e = 0; e < kept.count(); ++e) BOOST_REQUIRE(bits[e] == bf16_bits(expected.fp32()[e]));
        }
        constexpr std::size_t alignments = 4 * Arena::device_alignment;
        BOOST_TEST(parameters.value_bytes() <=
                   static_cast<std::size_t>(layout.total()) * 2 +
                       static_cast<std::size_t>(layout.trained_total() + exact_count) * sizeof(float) + alignments);
    }
}

// The lowest trained parameter is each of the model's in turn: the pass ends at it, and not before.
BOOST_AUTO_TEST_CASE(a_parameter_that_is_trained_alone_has_its_gradient) {
    for (const auto& [name, model] : test::all_kinds()) BOOST_TEST_CONTEXT(name) {
            test::Fixture whole(model, {2, 7});
            const double loss = whole.loss(true);
            const auto names = names_of(model);
            for (const auto& alone : names) BOOST_TEST_CONTEXT(alone) {
                    Patterns others;
                    for (const auto& other : names)
                        if (other != alone) others.push_back(other);
                    // A projection of its own, where it is part of one product with others if all are trained.
                    const bool projection = alone.find("/mixer/") != std::string::npos && alone.ends_with("/weight") &&
                                            alone.find("norm") == std::string::npos;
                    check_against(whole, loss, model, others, model::Recompute::none, !projection);
                }
        }
}

BOOST_AUTO_TEST_CASE(gradients_do_not_feel_what_is_frozen) {
    for (const auto& [name, model] : test::all_kinds()) BOOST_TEST_CONTEXT(name) {
            test::Fixture whole(model, {2, 7});
            const double loss = whole.loss(true);
            for (const Patterns& frozen :
                 {Patterns{"embedding/*"}, Patterns{"*norm/*"}, Patterns{"blocks/1/*"}, Patterns{"*/mlp/*"},
                  Patterns{"*/mixer/*"}, Patterns{"embedding/*", "blocks/0/*"}})
                for (const auto recompute : {model::Recompute::none, model::Recompute::cheap,
                                             model::Recompute::selective, model::Recompute::full})
                    check_against(whole, loss, model, frozen, recompute);
        }
}

BOOST_AUTO_TEST_CASE(below_the_lowest_trained_block_activations_are_forgotten) {
    config::ModelDescription model = test::small_model("attention");
    model.layers = 8;
    const auto activations = [&](const Patterns& frozen) {
        config::ModelDescription changed = model;
        changed.frozen = frozen;
        return static_cast<double>(test::Fixture(changed, {2, 32}).stage.activation_bytes());
    };
    const double whole = activations({}), half = activations({"embedding/*", "blocks/[0-3]/*"});
    BOOST_TEST(activations({"blocks/[0-3]/*"}) == whole);  // the embedding is trained
    BOOST_TEST(half < 0.7 * whole);                        // four blocks, and what one needs for a moment
    BOOST_TEST(activations({"embedding/*", "blocks/*"}) < 0.3 * whole);
}

BOOST_AUTO_TEST_CASE(flop_counts_leave_out_what_is_not_done) {
    config::ModelDescription model = config::preset("gpt2-124m");
    const std::int64_t length = 1024;
    const double d = 768, head = 2 * 50257.0 * d, mixing = 2.0 * length * d;
    const double attention = 2 * 4 * d * d, mlp = 2 * 8 * d * d, layers = 12;
    const double forward = head + layers * (attention + mlp + mixing);
    const auto counted = [&](const Patterns& frozen) {
        model.frozen = frozen;
        return model::training_flop_per_token(model, length);
    };
    const auto near = [](double a, double b) { return std::abs(a / b - 1) < 1e-12; };
    BOOST_TEST(near(counted({}), 3 * forward));
    BOOST_TEST(near(counted({"position/weight"}), 3 * forward));  // a gradient of no product
    BOOST_TEST(near(counted({"blocks/*/weight"}), 3 * forward - layers * (attention + mlp)));
    // The table is the head: its gradient comes from there and from below everything.
    BOOST_TEST(near(counted({"embedding/weight"}), 3 * forward - head));
    // From the last block's MLP on: its norm is frozen, so that nobody needs the gradient of its input.
    BOOST_TEST(near(counted({"embedding/*", "position/*", "blocks/[0-9]/*", "blocks/10/*", "blocks/11/m*_norm/*",
                             "blocks/11/mixer/*"}),
                    forward + head + mlp + mlp / 2));
    BOOST_TEST(
        near(model::recomputed_flop_per_token(model, length, model::Recompute::full), (attention + mlp / 2 + mixing)));
    BOOST_TEST(near(counted({"embedding/*", "position/*", "blocks/*"}), forward + 1 * head));
    BOOST_TEST(model::recomputed_flop_per_token(model, length, model::Recompute::full) == 0);
}
