#define BOOST_TEST_MODULE kernels_attention
#include "reference/attention.hpp"

#include "reference/finite_difference.hpp"
#include "unit/kernels/support.hpp"

using namespace lockstep;
using namespace lockstep::kernel_tests;

namespace {

struct Case {
    std::int64_t batch, query_length, key_length, heads, key_heads, width;

    kernels::AttentionShape shape() const { return {batch, query_length, key_length, heads, key_heads, width}; }
    reference::AttentionShape reference() const {
        const auto u = [](std::int64_t size) { return static_cast<std::size_t>(size); };
        return {u(batch), u(query_length), u(key_length), u(heads), u(key_heads), u(width)};
    }
    std::string text() const {
        return fmt::format("B {} Lq {} Lk {} H {} G {} f {}", batch, query_length, key_length, heads, key_heads, width);
    }
    Shape queries() const { return {batch * query_length, heads * width}; }
    Shape keys() const { return {batch * key_length, key_heads * width}; }
    Shape sums() const { return {batch, heads, query_length}; }
};

// Lengths around the tile of 64, all head widths of the presets and odd ones, groups of 1, 2, 3 and all heads.
const std::vector<Case> square = {{1, 1, 1, 1, 1, 32},      {2, 1, 1, 4, 2, 64},     {1, 2, 2, 2, 2, 64},
                                  {2, 31, 31, 2, 1, 32},    {1, 32, 32, 2, 2, 64},   {3, 33, 33, 3, 1, 96},
                                  {1, 63, 63, 4, 2, 128},   {2, 64, 64, 6, 2, 64},   {1, 65, 65, 2, 1, 96},
                                  {1, 97, 97, 2, 2, 40},    {1, 127, 127, 2, 1, 32}, {1, 129, 129, 4, 4, 64},
                                  {1, 193, 193, 2, 1, 128}, {2, 70, 70, 2, 2, 7},    {1, 66, 66, 1, 1, 1}};
const std::vector<Case> decoding = {{1, 1, 2, 4, 2, 64},   {2, 1, 64, 2, 1, 32},  {1, 1, 65, 2, 2, 128},
                                    {3, 1, 200, 3, 3, 96}, {2, 3, 131, 4, 2, 64}, {1, 65, 130, 2, 1, 64},
                                    {1, 64, 65, 2, 2, 33}};

std::vector<Floats> forward(kernels::Backend& backend, const Case& c, double scale = 1) {
    Floats q = random_floats(c.queries(), "q", scale), k = random_floats(c.keys(), "k"),
           v = random_floats(c.keys(), "v");
    Floats y(c.queries(), 9.0f), sums(c.sums(), 9.0f);
    backend.attention_forward(y.tensor(), sums.tensor(), q.tensor(), k.tensor(), v.tensor(), c.shape());
    return {q, k, v, y, sums};
}

void check_forward(kernels::Backend& backend, const Case& c, const std::string& name) {
    const auto run = forward(backend, c);
    const auto expected =
        reference::attention_forward(run[0].values(), run[1].values(), run[2].values(), c.reference());
    const std::size_t terms = static_cast<std::size_t>(c.key_length + c.width);
    check_close(run[3], expected.y, terms, name + " " + c.text() + " y");
    check_close(run[4], expected.log_sum_exp, terms, name + " " + c.text() + " log_sum_exp");
}

std::vector<Floats> backward(kernels::Backend& backend, const Case& c) {
    auto run = forward(backend, c);
    Floats dy = random_floats(c.queries(), "dy"), dq(c.queries(), 9.0f), dk(c.keys(), 9.0f), dv(c.keys(), 9.0f);
    backend.attention_backward(dq.tensor(), dk.tensor(), dv.tensor(), dy.tensor(), run[0].tensor(), run[1].tensor(),
                               run[2].tensor(), run[3].tensor(), run[4].tensor(), c.shape());
    return {run[0], run[1], run[2], dy, dq, dk, dv};
}

void check_backward(kernels::Backend& backend, const Case& c, const std::string& name) {
    const auto run = backward(backend, c);
    const auto expected = reference::attention_backward(run[3].values(), run[0].values(), run[1].values(),
                                                        run[2].values(), c.reference());
    const std::size_t terms = static_cast<std::size_t>(c.key_length + c.width) * static_cast<std::size_t>(c.heads);
    check_close(run[6], expected.dv, terms, name + " " + c.text() + " dv");
    if (c.query_length > 1) {
        check_close(run[4], expected.dq, terms, name + " " + c.text() + " dq");
        check_close(run[5], expected.dk, terms, name + " " + c.text() + " dk");
    } else {  // a single key has weight 1 whatever the scores: only the rounding of dy·(v - y) is left
        for (const float value : run[4].data) BOOST_TEST(std::abs(value) < 1e-5f);
        for (const float value : run[5].data) BOOST_TEST(std::abs(value) < 1e-5f);
    }
}

}  // namespace

BOOST_AUTO_TEST_CASE(forward_agrees_with_the_reference) {
    for_each_instruction_set([](kernels::Backend& backend, const std::string& name) {
        for (const auto& c : square) check_forward(backend, c, name);
        for (const auto& c : decoding) check_forward(backend, c, name);
    });
}

BOOST_AUTO_TEST_CASE(backward_agrees_with_the_reference) {
    for_each_instruction_set([](kernels::Backend& backend, const std::string& name) {
        for (const auto& c : square) check_backward(backend, c, name);
    });
}

BOOST_AUTO_TEST_CASE(a_query_of_a_longer_sequence_attends_as_it_does_alone) {
    const Case whole{1, 131, 131, 4, 2, 64}, last{1, 1, 131, 4, 2, 64};
    for_each_instruction_set([&](kernels::Backend& backend, const std::string& name) {
        auto run = forward(backend, whole);
        Floats y(last.queries()), sums(last.sums());
        const Tensor query = run[0].tensor().slice(130, 1);
        backend.attention_forward(y.tensor(), sums.tensor(), query, run[1].tensor(), run[2].tensor(), last.shape());
        const Values expected(run[3].data.end() - 256, run[3].data.end());
        check_close(y, expected, 131, name);
    });
}

BOOST_AUTO_TEST_CASE(later_tokens_do_not_change_earlier_ones) {
    const Case c{1, 100, 100, 2, 1, 32};
    for_each_instruction_set([&](kernels::Backend& backend, const std::string&) {
        auto run = forward(backend, c);
        for (std::size_t i = 70 * 32; i < 100 * 32; ++i) run[1][i] = run[2][i] = 3.0f;
        Floats y(c.queries()), sums(c.sums());
        backend.attention_forward(y.tensor(), sums.tensor(), run[0].tensor(), run[1].tensor(), run[2].tensor(),
                                  c.shape());
        BOOST_TEST(std::memcmp(y.data.data(), run[3].data.data(), 70 * 64 * sizeof(float)) == 0);
        BOOST_TEST(y[70 * 64] != run[3][70 * 64]);
    });
}

BOOST_AUTO_TEST_CASE(large_scores_stay_finite_and_not_a_number_is_seen) {
    const Case c{1, 70, 70, 2, 2, 32};
    for_each_instruction_set([&](kernels::Backend& backend, const std::string& name) {
        auto run = forward(backend, c, 1e4);
        const auto expected =
            reference::attention_forward(run[0].values(), run[1].values(), run[2].values(), c.reference());
        for (std::size_t i = 0; i < run[3].data.size(); ++i)  // weights are nearly 0 or 1; scores of 1e4 carry 1e-3
            BOOST_TEST(std::abs(static_cast<double>(run[3][i]) - expected.y[i]) < 2e-2, name);
        run[0][3 * 64 + 5] = not_a_number;  // a query of token 3, head 0
        Floats y(c.queries()), sums(c.sums());
        backend.attention_forward(y.tensor(), sums.tensor(), run[0].tensor(), run[1].tensor(), run[2].tensor(),
                                  c.shape());
        BOOST_TEST(
            (std::isnan(y[3 * 64]) && !std::isnan(y[3 * 64 + 32]) && !std::isnan(y[2 * 64]) && !std::isnan(y[4 * 64])));
        run[0][3 * 64 + 5] = 0;
        run[2][0] = not_a_number;  // a value of token 0, seen by all
        backend.attention_forward(y.tensor(), sums.tensor(), run[0].tensor(), run[1].tensor(), run[2].tensor(),
                                  c.shape());
        BOOST_TEST((std::isnan(y[0]) && std::isnan(y[69 * 64])));
    });
}

BOOST_AUTO_TEST_CASE(reference_gradients_agree_with_finite_differences) {
    const reference::AttentionShape shape{2, 5, 5, 4, 2, 3};
    Values q = random_values(120, "q"), k = random_values(60, "k"), v = random_values(60, "v");
    const Values dy = random_values(120, "dy");
    const auto loss = [&] { return reference::dot(reference::attention_forward(q, k, v, shape).y, dy); };
    const auto gradients = reference::attention_backward(dy, q, k, v, shape);
    BOOST_TEST(reference::gradient_error(q, gradients.dq, loss) <= reference::gradient_tolerance);
    BOOST_TEST(reference::gradient_error(k, gradients.dk, loss) <= reference::gradient_tolerance);
    BOOST_TEST(reference::gradient_error(v, gradients.dv, loss) <= reference::gradient_tolerance);
}

BOOST_AUTO_TEST_CASE(attention_does_not_depend_on_the_number_of_threads) {
    const Case c{2, 131, 131, 6, 3, 32};
    check_same_for_any_threads([&](kernels::Backend& backend) { return forward(backend, c); });
    check_same_for_any_threads([&](kernels::Backend& backend) { return backward(backend, c); });
}

BOOST_AUTO_TEST_CASE(shapes_that_do_not_fit_are_refused) {
    const auto backend = kernels::make_cpu_backend();
    const Case c{1, 4, 4, 4, 2, 8};
    Floats q(c.queries()), k(c.keys()), v(c.keys()), y(c.queries()), sums(c.sums());
    auto wrong = c.shape();
    wrong.key_heads = 3;
    BOOST_CHECK_THROW(backend->attention_forward(y.tensor(), sums.tensor(), q.tensor(), k.tensor(), v.tensor(), wrong),
                      Error);
}
