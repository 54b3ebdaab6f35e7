// Decoding token by token gives the logits of the parallel form.
#include "model/decoder.hpp"

#include <boost/test/unit_test.hpp>

#include "unit/model/model_checks.hpp"

using namespace lockstep;
using test::Fixture;

BOOST_AUTO_TEST_CASE(one_token_at_a_time) {
    for (const auto& [name, model] : test::all_kinds()) BOOST_TEST_CONTEXT(name) {
            BOOST_TEST(test::worst_decoding_difference(model, std::vector<std::int64_t>(37, 1)) < 2e-4);
        }
}

BOOST_AUTO_TEST_CASE(a_prompt_and_then_single_tokens) {
    for (const auto& [name, model] : test::all_kinds()) BOOST_TEST_CONTEXT(name) {
            BOOST_TEST(test::worst_decoding_difference(model, {19, 1, 1, 2, 16, 1}) < 2e-4);
        }
}

BOOST_AUTO_TEST_CASE(a_prompt_longer_than_one_piece) {
    for (const char* mixer : {"attention", "ttt-linear", "ttt-mlp", "gated-deltanet"}) {
        config::ModelDescription model = test::small_model(mixer);
        model.context = 600;
        BOOST_TEST_CONTEXT(mixer) {
            BOOST_TEST(test::worst_decoding_difference(model, {523, 1}) < 5e-4);
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
