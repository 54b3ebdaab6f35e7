#define BOOST_TEST_MODULE kernels_activation
#define LOCKSTEP_ISA test
#include "kernels/cpu/vector/math.hpp"
#undef LOCKSTEP_ISA
#include "kernels/cpu/vector/elementwise.hpp"
#include "kernels/cpu/vector/vector.hpp"
#include "reference/activation.hpp"
#include "reference/finite_difference.hpp"
#include "unit/kernels/support.hpp"

using namespace lockstep;
using namespace lockstep::kernel_tests;
namespace math = lockstep::kernels::cpu::test;

namespace {
double largest_relative_error(float (*f)(float), double (*exact)(double), double from, double to) {
    double worst = 0;
    for (int i = 0; i <= 400000; ++i) {
        const float x = static_cast<float>(from + (to - from) * i / 400000);
        const double expected = exact(static_cast<double>(x));
        const double error =
            expected == 0 ? std::abs(static_cast<double>(f(x))) : std::abs(static_cast<double>(f(x)) / expected - 1);
        if (!(error <= worst)) worst = error;
    }
    return worst;
}

using Unary = float (*)(float);
}  // namespace

BOOST_AUTO_TEST_CASE(elementary_functions_are_accurate) {
    BOOST_TEST(largest_relative_error(math::exponential, std::exp, -87.3, 88.72) <= 3e-7);
    BOOST_TEST(largest_relative_error(math::exponential, std::exp, -0.5, 0.5) <= 1.5e-7);
    BOOST_TEST(largest_relative_error(math::decaying_exponential, std::exp, -87.3, 0) <= 3e-7);
    BOOST_TEST(largest_relative_error(math::sigmoid, reference::sigmoid, -87, 88) <= 3e-7);
    BOOST_TEST(largest_relative_error(math::hyperbolic_tangent, std::tanh, -12, 12) <= 4e-7);
    BOOST_TEST(largest_relative_error(math::hyperbolic_tangent, std::tanh, -0.4, 0.4) <= 4e-7);
    BOOST_TEST(largest_relative_error(math::silu, reference::silu, -80, 80) <= 4e-7);
}

namespace {
float gelu_second_derivative(float x) {
    return math::gelu_second_derivative(math::gelu_terms(x));
}
}  // namespace

BOOST_AUTO_TEST_CASE(derivatives_are_close_in_absolute_terms) {
    const auto worst = [](Unary f, double (*exact)(double)) {
        double error = 0;
        for (int i = -40000; i <= 40000; ++i) {
            const float x = static_cast<float>(i) * 5e-4f;
            const double difference = std::abs(static_cast<double>(f(x)) - exact(static_cast<double>(x)));
            if (!(difference <= error)) error = difference;
        }
        return error;
    };
    BOOST_TEST(worst(math::gelu_derivative, reference::gelu_derivative) <= 1e-6);
    BOOST_TEST(worst(gelu_second_derivative, reference::gelu_second_derivative) <= 2e-6);
    BOOST_TEST(worst(math::silu_derivative, reference::silu_derivative) <= 1e-6);
}

BOOST_AUTO_TEST_CASE(limits_are_right_and_not_a_number_stays) {
    struct Limit {
        const char* name;
        Unary f;
        float at_minus_infinity, at_infinity;
    };
    const Limit limits[] = {{"exponential", math::exponential, 0, infinity},
                            {"sigmoid", math::sigmoid, 0, 1},
                            {"hyperbolic_tangent", math::hyperbolic_tangent, -1, 1},
                            {"silu", math::silu, 0, infinity},
                            {"silu_derivative", math::silu_derivative, 0, 1},
                            {"gelu", math::gelu, 0, infinity},
                            {"gelu_derivative", math::gelu_derivative, 0, 1},
                            {"gelu_second_derivative", gelu_second_derivative, 0, 0}};
    for (const auto& limit : limits) {
        BOOST_TEST_CONTEXT(limit.name) {
            const auto near = [](float actual, float expected) {
                return actual == expected || std::abs(actual - expected) < 1e-30f;
            };
            BOOST_TEST(near(limit.f(-infinity), limit.at_minus_infinity));
            BOOST_TEST(near(limit.f(infinity), limit.at_infinity));
            BOOST_TEST(near(limit.f(-1e30f), limit.at_minus_infinity));
            BOOST_TEST(!std::isnan(limit.f(1e30f)));
            BOOST_TEST(std::isnan(limit.f(not_a_number)));
        }
    }
    BOOST_TEST(math::exponential(0) == 1.0f);
    BOOST_TEST(math::exponential(88.8f) == infinity);
    BOOST_TEST(math::exponential(-104.0f) == 0.0f);
    BOOST_TEST(std::isfinite(math::exponential(88.72f)));
}

BOOST_AUTO_TEST_CASE(vector_code_keeps_accuracy_limits_and_not_a_number) {
    for_each_instruction_set([](kernels::Backend& backend, const std::string& name) {
        BOOST_TEST_CONTEXT(name) {
            const auto& functions = *kernels::cpu::vector_functions().fp32.elementwise;
            std::vector<float> x(34901);
            for (std::size_t i = 0; i < x.size(); ++i) x[i] = -0.0025f * static_cast<float>(i);  // down to -87.25
            std::vector<float> y = x;
            functions.softmax_gradient(y.data(), 0.0f, 1.0f, 0.0f, static_cast<std::int64_t>(y.size()));
            double worst = 0;
            for (std::size_t i = 0; i < x.size(); ++i) {
                const double error = std::abs(static_cast<double>(y[i]) / std::exp(static_cast<double>(x[i])) - 1);
                if (!(error <= worst)) worst = error;
            }
            BOOST_TEST(worst <= 3e-7);
            std::vector<float> edges = {-87.4f, -1e30f, -infinity, not_a_number};
            functions.softmax_gradient(edges.data(), 0.0f, 1.0f, 0.0f, 4);
            BOOST_TEST((edges[0] == 0 && edges[1] == 0 && edges[2] == 0 && std::isnan(edges[3])));
            for (const float value : {infinity, -infinity, not_a_number, 200.0f, -200.0f}) {
                Floats in({40}, value), out({40}), gate({40}, 1.0f), back({40}), back2({40});
                const bool bad = std::isnan(value);
                backend.gelu_forward(out.tensor(), in.tensor());
                backend.gelu_backward(back.tensor(), gate.tensor(), in.tensor());
                for (std::size_t i = 0; i < 40; ++i)
                    BOOST_TEST((std::isnan(out[i]) == bad && std::isnan(back[i]) == bad));
                backend.swiglu_forward(out.tensor(), in.tensor(), gate.tensor());
                backend.swiglu_backward(back.tensor(), back2.tensor(), gate.tensor(), in.tensor(), gate.tensor());
                for (std::size_t i = 0; i < 40; ++i)
                    BOOST_TEST(
                        (std::isnan(out[i]) == bad && std::isnan(back[i]) == bad && std::isnan(back2[i]) == bad));
            }
        }
    });
}

BOOST_AUTO_TEST_CASE(reference_gradients_agree_with_finite_differences) {
    using namespace reference;
    Values x = random_values(50, "x", 2), up = random_values(50, "up");
    const Values dy = random_values(50, "dy");
    const auto check = [&](Scalar f, Scalar derivative) {
        const auto loss = [&] { return dot(gated(f, x, up), dy); };
        const auto gradients = gated_backward(f, derivative, dy, x, up);
        BOOST_TEST(gradient_error(x, gradients.dgate, loss) <= gradient_tolerance);
        BOOST_TEST(gradient_error(up, gradients.dup, loss) <= gradient_tolerance);
        const auto plain = [&] { return dot(activate(f, x), dy); };
        BOOST_TEST(gradient_error(x, activation_backward(derivative, dy, x), plain) <= gradient_tolerance);
    };
    check(reference::gelu, reference::gelu_derivative);
    check(reference::gelu_derivative, reference::gelu_second_derivative);
    check(reference::silu, reference::silu_derivative);
}

BOOST_AUTO_TEST_CASE(activations_do_not_depend_on_the_number_of_threads) {
    check_same_for_any_threads([](kernels::Backend& backend) {
        Floats x = random_floats({40007}, "x"), y({40007});
        backend.gelu_forward(y.tensor(), x.tensor());
        return std::vector<Floats>{y};
    });
}
