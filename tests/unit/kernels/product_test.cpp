#define BOOST_TEST_MODULE kernels_product
#include "reference/product.hpp"

#include "reference/finite_difference.hpp"
#include "unit/kernels/support.hpp"

using namespace lockstep;
using namespace lockstep::kernel_tests;
using kernels::Accumulate;
using kernels::Transpose;

namespace {
const std::vector<std::int64_t> sizes = {1, 2, 31, 33, 97};
}

BOOST_AUTO_TEST_CASE(products_of_all_shapes_agree_with_the_reference) {
    const auto backend = kernels::make_cpu_backend();
    for (const auto m : sizes)
        for (const auto n : sizes)
            for (const auto k : sizes)
                for (int form = 0; form < 8; ++form) {
                    const bool ta = form & 1, tb = form & 2, add = form & 4;
                    Floats a = random_floats(ta ? Shape{k, m} : Shape{m, k}, "a");
                    Floats b = random_floats(tb ? Shape{n, k} : Shape{k, n}, "b");
                    Floats c = random_floats({m, n}, "c");
                    Values expected = reference::product(a.values(), ta, b.values(), tb, static_cast<std::size_t>(m),
                                                         static_cast<std::size_t>(n), static_cast<std::size_t>(k));
                    if (add) expected = plus(expected, c.values());
                    backend->product(c.tensor(), a.tensor(), ta ? Transpose::yes : Transpose::no, b.tensor(),
                                     tb ? Transpose::yes : Transpose::no, add ? Accumulate::yes : Accumulate::no);
                    check_close(c, expected, static_cast<std::size_t>(k),
                                fmt::format("m {} n {} k {} ta {} tb {} add {}", m, n, k, ta, tb, add));
                }
}

BOOST_AUTO_TEST_CASE(tensors_of_more_axes_count_as_rows) {
    const auto backend = kernels::make_cpu_backend();
    Floats a = random_floats({3, 5, 7}, "a"), b = random_floats({4, 7}, "b"), c({3, 5, 4});
    backend->product(c.tensor(), a.tensor(), Transpose::no, b.tensor(), Transpose::yes, Accumulate::no);
    check_close(c, reference::product(a.values(), false, b.values(), true, 15, 4, 7), 7, "three axes");
}

BOOST_AUTO_TEST_CASE(a_product_may_be_repeated_with_other_memory) {
    const auto backend = kernels::make_cpu_backend();
    for (int round = 0; round < 3; ++round) {
        Floats a = random_floats({33, 31}, fmt::format("a{}", round)), b = random_floats({31, 32}, "b"), c({33, 32});
        backend->product(c.tensor(), a.tensor(), Transpose::no, b.tensor(), Transpose::no, Accumulate::no);
        check_close(c, reference::product(a.values(), false, b.values(), false, 33, 32, 31), 31, "repeated");
    }
}

BOOST_AUTO_TEST_CASE(empty_sums_are_zero_and_no_rows_do_nothing) {
    const auto backend = kernels::make_cpu_backend();
    Floats c({2, 3}, 5.0f), a({2, 0}), b({0, 3});
    backend->product(c.tensor(), a.tensor(), Transpose::no, b.tensor(), Transpose::no, Accumulate::yes);
    BOOST_TEST(c[4] == 5.0f);
    backend->product(c.tensor(), a.tensor(), Transpose::no, b.tensor(), Transpose::no, Accumulate::no);
    BOOST_TEST(c.values() == Values(6, 0.0));
    Floats none({0, 3}), no_rows({0, 4}), weight({4, 3}, 1.0f);
    backend->product(none.tensor(), no_rows.tensor(), Transpose::no, weight.tensor(), Transpose::no, Accumulate::no);
    // As the gradient of a weight from no rows: [4, 0] · [0, 3] added to what is there.
    backend->product(weight.tensor(), no_rows.tensor(), Transpose::yes, none.tensor(), Transpose::no, Accumulate::yes);
    BOOST_TEST(weight.values() == Values(12, 1.0));
}

BOOST_AUTO_TEST_CASE(shapes_that_do_not_fit_are_refused) {
    const auto backend = kernels::make_cpu_backend();
    Floats a({2, 3}), b({4, 5}), c({2, 5});
    BOOST_CHECK_THROW(
        backend->product(c.tensor(), a.tensor(), Transpose::no, b.tensor(), Transpose::no, Accumulate::no), Error);
}

BOOST_AUTO_TEST_CASE(not_a_number_comes_through_a_product) {
    const auto backend = kernels::make_cpu_backend();
    Floats a({3, 4}, 1.0f), b({4, 2}, 1.0f), c({3, 2});
    a[5] = not_a_number;
    backend->product(c.tensor(), a.tensor(), Transpose::no, b.tensor(), Transpose::no, Accumulate::no);
    BOOST_TEST(std::isnan(c[2]));
    BOOST_TEST(c[0] == 4.0f);
}

// dA = dC op(B)ᵀ and dB = op(A)ᵀ dC, which layers use as their backward.
BOOST_AUTO_TEST_CASE(gradients_of_a_product_are_products) {
    Values a = random_values(15, "a"), b = random_values(10, "b");
    const Values dc = random_values(6, "dc");
    const auto loss = [&] { return reference::dot(reference::product(a, false, b, false, 3, 2, 5), dc); };
    const Values da = reference::product(dc, false, b, true, 3, 5, 2),
                 db = reference::product(a, true, dc, false, 5, 2, 3);
    BOOST_TEST(reference::gradient_error(a, da, loss) <= reference::gradient_tolerance);
    BOOST_TEST(reference::gradient_error(b, db, loss) <= reference::gradient_tolerance);
}

BOOST_AUTO_TEST_CASE(biases_are_added_and_their_gradients_summed) {
    for_each_instruction_set([](kernels::Backend& backend, const std::string& name) {
        for (const std::int64_t rows : {1, 31, 32, 33, 97, 4099})
            for (const std::int64_t width : {1, 31, 32, 33}) {
                Floats y = random_floats({rows, width}, "y"), bias = random_floats({width}, "bias");
                Values expected = y.values();
                for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += bias.values()[i % bias.data.size()];
                const Values sums = plus(bias.values(), reference::column_sums(y.values(), bias.data.size()));
                Floats dbias = bias;
                backend.bias_backward(dbias.tensor(), y.tensor());
                check_close(dbias, sums, static_cast<std::size_t>(rows), name + " bias gradient");
                backend.add_bias(y.tensor(), bias.tensor());
                check_close(y, expected, 1, name + " bias");
            }
    });
    check_same_for_any_threads([](kernels::Backend& backend) {
        Floats dy = random_floats({1009, 33}, "dy"), dbias({33});
        backend.bias_backward(dbias.tensor(), dy.tensor());
        return std::vector<Floats>{dbias};
    });
}
