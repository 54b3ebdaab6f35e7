#define BOOST_TEST_MODULE kernels_norm
#include "reference/norm.hpp"

#include "reference/finite_difference.hpp"
#include "unit/kernels/support.hpp"

using namespace lockstep;
using namespace lockstep::kernel_tests;

constexpr float epsilon = 1e-5f;

BOOST_AUTO_TEST_CASE(reference_gradients_agree_with_finite_differences) {
    for (const bool centred : {false, true}) {
        Values x = random_values(35, "x"), weight = random_values(7, "weight"), bias = random_values(7, "bias");
        const Values dy = random_values(35, "dy");
        const auto loss = [&] { return reference::dot(reference::norm_forward(x, weight, bias, 1e-5, centred).y, dy); };
        const auto gradients = reference::norm_backward(dy, x, weight, 1e-5, centred);
        BOOST_TEST(reference::gradient_error(x, gradients.dx, loss) <= reference::gradient_tolerance);
        BOOST_TEST(reference::gradient_error(weight, gradients.dweight, loss) <= reference::gradient_tolerance);
        if (centred)
            BOOST_TEST(reference::gradient_error(bias, gradients.dbias, loss) <= reference::gradient_tolerance);
    }
}

BOOST_AUTO_TEST_CASE(norms_do_not_depend_on_the_number_of_threads) {
    check_same_for_any_threads([](kernels::Backend& backend) {
        Floats x = random_floats({1009, 65}, "x"), weight = random_floats({65}, "w"), bias({65}),
               dy = random_floats({1009, 65}, "dy");
        Floats y({1009, 65}), mean({1009}), inverse({1009}), dx({1009, 65}), dweight({65}), dbias({65});
        backend.layer_norm_forward(y.tensor(), mean.tensor(), inverse.tensor(), x.tensor(), {}, weight.tensor(),
                                   bias.tensor(), epsilon);
        backend.layer_norm_backward(dx.tensor(), dweight.tensor(), dbias.tensor(), dy.tensor(), x.tensor(),
                                    weight.tensor(), mean.tensor(), inverse.tensor(), kernels::Accumulate::yes);
        Floats rms_y({1009, 65}), rms_dx({1009, 65}), rms_dweight({65});
        backend.rms_norm_forward(rms_y.tensor(), inverse.tensor(), x.tensor(), {}, weight.tensor(), epsilon);
        backend.rms_norm_backward(rms_dx.tensor(), rms_dweight.tensor(), dy.tensor(), x.tensor(), weight.tensor(),
                                  inverse.tensor(), kernels::Accumulate::yes);
        return std::vector<Floats>{y, dx, dweight, dbias, rms_y, rms_dx, rms_dweight};
    });
}
