#define BOOST_TEST_MODULE kernels_product
#include "reference/product.hpp"

#include "reference/finite_difference.hpp"
#include "unit/kernels/support.hpp"

using namespace lockstep;
using namespace lockstep::kernel_tests;

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
