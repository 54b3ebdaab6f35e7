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
    Shape queries() const { return {batch * query_length, heads * width}; }
    Shape keys() const { return {batch * key_length, key_heads * width}; }
    Shape sums() const { return {batch, heads, query_length}; }
};

std::vector<Floats> forward(kernels::Backend& backend, const Case& c) {
    Floats q = random_floats(c.queries(), "q"), k = random_floats(c.keys(), "k"), v = random_floats(c.keys(), "v");
    Floats y(c.queries(), 9.0f), sums(c.sums(), 9.0f);
    backend.attention_forward(y.tensor(), sums.tensor(), q.tensor(), k.tensor(), v.tensor(), c.shape());
    return {q, k, v, y, sums};
}

std::vector<Floats> backward(kernels::Backend& backend, const Case& c) {
    auto run = forward(backend, c);
    Floats dy = random_floats(c.queries(), "dy"), dq(c.queries(), 9.0f), dk(c.keys(), 9.0f), dv(c.keys(), 9.0f);
    backend.attention_backward(dq.tensor(), dk.tensor(), dv.tensor(), dy.tensor(), run[0].tensor(), run[1].tensor(),
                               run[2].tensor(), run[3].tensor(), run[4].tensor(), c.shape());
    return {run[0], run[1], run[2], dy, dq, dk, dv};
}

}  // namespace

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
