#define BOOST_TEST_MODULE kernels_norm
#include "reference/norm.hpp"

#include "reference/finite_difference.hpp"
#include "unit/kernels/support.hpp"

using namespace lockstep;
using namespace lockstep::kernel_tests;

namespace {

struct Case {
    std::int64_t rows, width;
};
const std::vector<Case> cases = {{1, 1},  {1, 31},  {1, 32},    {1, 33},    {31, 64}, {32, 97},
                                 {33, 8}, {97, 97}, {257, 768}, {4099, 16}, {3, 1025}};
constexpr float epsilon = 1e-5f;
const double epsilon_value = static_cast<double>(epsilon);

void check_norm(kernels::Backend& backend, const Case& size, bool centred, const std::string& name) {
    const std::string what = fmt::format("{} {} [{}, {}]", name, centred ? "layer" : "rms", size.rows, size.width);
    const std::size_t terms = static_cast<std::size_t>(size.width), sums = static_cast<std::size_t>(size.rows) + terms;
    Floats x = random_floats({size.rows, size.width}, "x", 2), weight = random_floats({size.width}, "weight");
    Floats bias = random_floats({size.width}, "bias"), dy = random_floats({size.rows, size.width}, "dy");
    if (size.width == 1 && centred)
        for (auto& value : x.data) value = 1;  // one value has no spread: 0/sqrt(epsilon), where rounding is all
    Floats y({size.rows, size.width}, 9.0f), mean({size.rows}), inverse({size.rows});
    Floats dx = random_floats({size.rows, size.width}, "dx"), dweight = random_floats({size.width}, "dweight");
    Floats dbias = random_floats({size.width}, "dbias");
    const auto forward = reference::norm_forward(x.values(), weight.values(), bias.values(), epsilon_value, centred);
    const auto backward = reference::norm_backward(dy.values(), x.values(), weight.values(), epsilon_value, centred);
    const Values expected_dx = plus(dx.values(), backward.dx),
                 expected_dweight = plus(dweight.values(), backward.dweight);
    const Values expected_dbias = plus(dbias.values(), backward.dbias);
    if (centred) {
        backend.layer_norm_forward(y.tensor(), mean.tensor(), inverse.tensor(), x.tensor(), {}, weight.tensor(),
                                   bias.tensor(), epsilon);
        backend.layer_norm_backward(dx.tensor(), dweight.tensor(), dbias.tensor(), dy.tensor(), x.tensor(),
                                    weight.tensor(), mean.tensor(), inverse.tensor());
        check_close(mean, forward.mean, terms, what + " mean");
        check_close(dbias, expected_dbias, sums, what + " dbias");
    } else {
        backend.rms_norm_forward(y.tensor(), inverse.tensor(), x.tensor(), {}, weight.tensor(), epsilon);
        backend.rms_norm_backward(dx.tensor(), dweight.tensor(), dy.tensor(), x.tensor(), weight.tensor(),
                                  inverse.tensor());
    }
    check_close(y, forward.y, terms, what + " y");
    check_close(inverse, forward.inverse, terms, what + " inverse");
    check_close(dx, expected_dx, terms, what + " dx");
    check_close(dweight, expected_dweight, sums, what + " dweight");
}

}  // namespace

BOOST_AUTO_TEST_CASE(norms_agree_with_the_reference) {
    for_each_instruction_set([](kernels::Backend& backend, const std::string& name) {
        for (const auto& size : cases) {
            check_norm(backend, size, false, name);
            check_norm(backend, size, true, name);
        }
    });
}

BOOST_AUTO_TEST_CASE(a_residual_is_added_first_and_kept) {
    for_each_instruction_set([](kernels::Backend& backend, const std::string& name) {
        for (const bool centred : {false, true}) {
            Floats x = random_floats({301, 33}, "x"), residual = random_floats({301, 33}, "residual");
            Floats weight = random_floats({33}, "weight"), bias = random_floats({33}, "bias");
            Floats y({301, 33}), mean({301}), inverse({301});
            const Values sum = plus(x.values(), residual.values());
            const auto expected = reference::norm_forward(sum, weight.values(), bias.values(), epsilon_value, centred);
            if (centred)
                backend.layer_norm_forward(y.tensor(), mean.tensor(), inverse.tensor(), x.tensor(), residual.tensor(),
                                           weight.tensor(), bias.tensor(), epsilon);
            else
                backend.rms_norm_forward(y.tensor(), inverse.tensor(), x.tensor(), residual.tensor(), weight.tensor(),
                                         epsilon);
            check_close(x, sum, 1, name + " sum");
            check_close(y, expected.y, 33, name + " y");
        }
    });
}

BOOST_AUTO_TEST_CASE(a_large_mean_does_not_spoil_the_variance) {
    for_each_instruction_set([](kernels::Backend& backend, const std::string& name) {
        Floats x = random_floats({3, 256}, "x"), weight({256}, 1.0f), bias({256}), y({3, 256}), mean({3}), inverse({3});
        for (auto& value : x.data) value += 1000.0f;
        backend.layer_norm_forward(y.tensor(), mean.tensor(), inverse.tensor(), x.tensor(), {}, weight.tensor(),
                                   bias.tensor(), epsilon);
        const auto expected = reference::norm_forward(x.values(), weight.values(), bias.values(), epsilon_value, true);
        for (std::size_t i = 0; i < y.data.size(); ++i)  // the mean is rounded to 6e-5, a 1e-4th of the spread
            BOOST_TEST(std::abs(static_cast<double>(y[i]) - expected.y[i]) < 5e-4, name);
    });
}

BOOST_AUTO_TEST_CASE(rows_of_zeros_are_finite_and_not_a_number_stays_in_its_row) {
    for_each_instruction_set([](kernels::Backend& backend, const std::string&) {
        Floats x({3, 40}), weight({40}, 1.0f), bias({40}), y({3, 40}), mean({3}), inverse({3});
        x[45] = not_a_number;
        backend.rms_norm_forward(y.tensor(), inverse.tensor(), x.tensor(), {}, weight.tensor(), epsilon);
        BOOST_TEST((y[0] == 0.0f && std::isnan(y[41]) && y[80] == 0.0f));
        backend.layer_norm_forward(y.tensor(), mean.tensor(), inverse.tensor(), x.tensor(), {}, weight.tensor(),
                                   bias.tensor(), epsilon);
        BOOST_TEST((y[0] == 0.0f && std::isnan(y[41]) && y[80] == 0.0f));
    });
}

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
                                    weight.tensor(), mean.tensor(), inverse.tensor());
        Floats rms_y({1009, 65}), rms_dx({1009, 65}), rms_dweight({65});
        backend.rms_norm_forward(rms_y.tensor(), inverse.tensor(), x.tensor(), {}, weight.tensor(), epsilon);
        backend.rms_norm_backward(rms_dx.tensor(), rms_dweight.tensor(), dy.tensor(), x.tensor(), weight.tensor(),
                                  inverse.tensor());
        return std::vector<Floats>{y, dx, dweight, dbias, rms_y, rms_dx, rms_dweight};
    });
}
