// Decoding token by token gives the logits of the parallel form.
#include "model/decoder.hpp"

#include <boost/test/unit_test.hpp>

#include "unit/model/small_models.hpp"

using namespace lockstep;
using test::Fixture;

namespace {

double worst_difference(const config::ModelDescription& model, const std::vector<std::int64_t>& pieces) {
    std::int64_t length = 0;
    for (const auto piece : pieces) length += piece;
    Fixture fixture(model, {1, length}, false);
    fixture.stage.forward(0, fixture.id_tensor());
    std::vector<float> expected(static_cast<std::size_t>(length * model.vocabulary));
    fixture.stage.logits(0, Tensor(expected.data(), Type::fp32, {length, model.vocabulary}));

    model::Decoder decoder(*fixture.backend, fixture.parameters, model, length);
    double worst = 0;
    std::int64_t position = 0;
    for (const auto piece : pieces) {
        const auto first = fixture.ids.begin() + position;
        const std::vector<float>& logits = decoder.feed({first, first + piece});
        position += piece;
        for (std::int64_t v = 0; v < model.vocabulary; ++v)
            worst =
                std::max(worst, std::abs(static_cast<double>(logits[static_cast<std::size_t>(v)]) -
                                         expected[static_cast<std::size_t>((position - 1) * model.vocabulary + v)]));
    }
    BOOST_TEST(decoder.position() == length);
    return worst;
}

}  // namespace

BOOST_AUTO_TEST_CASE(one_token_at_a_time) {
    for (const auto& [name, model] : test::all_kinds()) BOOST_TEST_CONTEXT(name) {
            BOOST_TEST(worst_difference(model, std::vector<std::int64_t>(37, 1)) < 2e-4);
        }
}

BOOST_AUTO_TEST_CASE(a_prompt_and_then_single_tokens) {
    for (const auto& [name, model] : test::all_kinds()) BOOST_TEST_CONTEXT(name) {
            BOOST_TEST(worst_difference(model, {19, 1, 1, 2, 16, 1}) < 2e-4);
        }
}

BOOST_AUTO_TEST_CASE(a_prompt_longer_than_one_piece) {
    for (const char* mixer : {"attention", "ttt-linear", "ttt-mlp"}) {
        config::ModelDescription model = test::small_model(mixer);
        model.context = 600;
        BOOST_TEST_CONTEXT(mixer) {
            BOOST_TEST(worst_difference(model, {523, 1}) < 5e-4);
        }
    }
}

BOOST_AUTO_TEST_CASE(a_new_sequence_starts_afresh) {
    for (const auto& [name, model] : test::all_kinds()) BOOST_TEST_CONTEXT(name) {
            Fixture fixture(model, {1, 20}, false);
            model::Decoder decoder(*fixture.backend, fixture.parameters, model, 20);
            const std::vector<float> first = decoder.feed(fixture.ids);
            decoder.start_sequence();
            BOOST_TEST((decoder.feed(fixture.ids) == first));
        }
}

BOOST_AUTO_TEST_CASE(too_long_a_sequence_is_refused) {
    const config::ModelDescription model = test::small_model("ttt-linear");
    Fixture fixture(model, {1, 8}, false);
    model::Decoder decoder(*fixture.backend, fixture.parameters, model, 7);
    BOOST_CHECK_THROW(decoder.feed(fixture.ids), Error);
}
