// Activations, and the step sizes and token scales of TTT.
#define BOOST_TEST_MODULE activation
#include "reference/activation.hpp"
#include "operations/support.hpp"

using namespace lockstep;
using namespace lockstep::operation_tests;
namespace ref = lockstep::reference;

namespace {

// Around a warp and the tiles of 2048, 4096 and 8192 elements.
const std::vector<std::int64_t> sizes = {1, 31, 32, 33, 2047, 2049, 4095, 4097, 8193, 10007};

// A tensor of `size` elements from element `start` of its memory.
struct Part {
    Part(Type type, std::int64_t elements, std::int64_t from, const std::string& purpose, double scale = 1)
        : start(from),
          values(random_rounded(type, static_cast<std::size_t>(elements), purpose, scale)),
          memory(type, {elements + from}) {
        Values all(static_cast<std::size_t>(from));
        all.insert(all.end(), values.begin(), values.end());
        memory.set(all);
    }
    operator Tensor() const { return memory.tensor().slice(start, static_cast<std::int64_t>(values.size())); }
    Values now() const {
        Values all = memory.values();
        all.erase(all.begin(), all.begin() + start);
        return all;
    }
    std::int64_t start;
    Values values;
    OnDevice memory;
};

struct Output : Part {
    Output(Type type, std::int64_t size, std::int64_t from) : Part(type, size, from, "output") { memory.poison(); }
};

template <class Body>
void for_each_case(Body&& body) {
    for_each_type([&](Type type) {
        for (const auto size : sizes)
            for (const std::int64_t start : {0, 1})
                body(type, size, start, fmt::format("{}, {} elements from {}", type_name(type), size, start));
    });
}

}  // namespace

BOOST_AUTO_TEST_CASE(activations_follow_the_reference) {
    for_each_case([](Type type, std::int64_t size, std::int64_t start, const std::string& what) {
        for (const bool is_silu : {false, true}) {
            const std::string name = is_silu ? "silu" : "gelu";
            const auto forward = [&](Tensor to, Tensor from) {
                is_silu ? backend().silu_forward(to, from) : backend().gelu_forward(to, from);
            };
            const auto backward = [&](Tensor to, Tensor gradient, Tensor from) {
                is_silu ? backend().silu_backward(to, gradient, from) : backend().gelu_backward(to, gradient, from);
            };
            const Part x(type, size, start, "x", 3), dy(type, size, start, "dy");
            const Output y(type, size, start), dx(type, size, start);
            forward(y, x);
            backward(dx, dy, x);
            check_close(y.now(), ref::activate(is_silu ? ref::silu : ref::gelu, x.values), type, 1, name + ", " + what);
            const Values expected =
                ref::activation_backward(is_silu ? ref::silu_derivative : ref::gelu_derivative, dy.values, x.values);
            check_close(dx.now(), expected, type, 1, name + " backward, " + what);
            backward(dy, dy, x);
            check_close(dy.now(), expected, type, 1, name + " backward in place, " + what);
        }
    });
}

BOOST_AUTO_TEST_CASE(gated_units_follow_the_reference) {
    for_each_case([](Type type, std::int64_t size, std::int64_t start, const std::string& what) {
        for (const bool swiglu : {false, true}) {
            const Part gate(type, size, start, "gate", 3), up(type, size, start, "up"), dy(type, size, start, "dy");
            const Output y(type, size, start), dgate(type, size, start), dup(type, size, start);
            const auto f = swiglu ? ref::silu : ref::gelu;
            const auto derivative = swiglu ? ref::silu_derivative : ref::gelu_derivative;
            const auto backward = [&](Tensor to_gate, Tensor to_up) {
                if (swiglu)
                    backend().swiglu_backward(to_gate, to_up, dy, gate, up);
                else
                    backend().gelu_gate_backward(to_gate, to_up, dy, gate, up);
            };
            if (swiglu)
                backend().swiglu_forward(y, gate, up);
            else
                backend().gelu_gate_forward(y, gate, up);
            backward(dgate, dup);
            check_close(y.now(), ref::gated(f, gate.values, up.values), type, 1, "gated, " + what);
            const ref::GatedGradients expected = ref::gated_backward(f, derivative, dy.values, gate.values, up.values);
            check_close(dgate.now(), expected.dgate, type, 1, "dgate, " + what);
            check_close(dup.now(), expected.dup, type, 1, "dup, " + what);
            backward(gate, up);
            check_close(gate.now(), expected.dgate, type, 1, "dgate in place, " + what);
            check_close(up.now(), expected.dup, type, 1, "dup in place, " + what);
        }
    });
}

// Each tensor in turn is the only one that wide accesses do not suit.
BOOST_AUTO_TEST_CASE(one_tensor_alone_may_begin_anywhere) {
    for_each_type([](Type type) {
        constexpr std::int64_t size = 8193;
        for (int odd = 0; odd < 5; ++odd) {
            const auto start = [&](int tensor) { return tensor == odd ? std::int64_t{1} : 0; };
            const std::string what = fmt::format("{}, tensor {}", type_name(type), odd);
            const Part gate(type, size, start(0), "gate", 3), up(type, size, start(1), "up"),
                dy(type, size, start(2), "dy");
            const Output dgate(type, size, start(3)), dup(type, size, start(4)), y(type, size, start(3)),
                dx(type, size, start(4));
            backend().swiglu_backward(dgate, dup, dy, gate, up);
            const ref::GatedGradients expected =
                ref::gated_backward(ref::silu, ref::silu_derivative, dy.values, gate.values, up.values);
            check_close(dgate.now(), expected.dgate, type, 1, "dgate, " + what);
            check_close(dup.now(), expected.dup, type, 1, "dup, " + what);
            backend().gelu_forward(y, gate);
            check_close(y.now(), ref::activate(ref::gelu, gate.values), type, 1, "gelu, " + what);
            backend().gelu_backward(dx, dy, gate);
            check_close(dx.now(), ref::activation_backward(ref::gelu_derivative, dy.values, gate.values), type, 1,
                        "gelu backward, " + what);
            backend().silu_forward(y, gate);
            check_close(y.now(), ref::activate(ref::silu, gate.values), type, 1, "silu, " + what);
            backend().silu_backward(dx, dy, gate);
            check_close(dx.now(), ref::activation_backward(ref::silu_derivative, dy.values, gate.values), type, 1,
                        "silu backward, " + what);
        }
    });
}

BOOST_AUTO_TEST_CASE(activations_have_their_limits) {
    for_each_backend([] {
        const double inf = static_cast<double>(kernel_tests::infinity);
        const Values points = {
            -inf, -1e30, -100, -20, 20, 100, 1e30, inf, static_cast<double>(kernel_tests::not_a_number)};
        const Shape shape = {static_cast<std::int64_t>(points.size())};
        const OnDevice x(Type::fp32, shape, points), one(Type::fp32, shape, Values(points.size(), 1));
        OnDevice gelu(Type::fp32, shape), dgelu(Type::fp32, shape), silu(Type::fp32, shape), dsilu(Type::fp32, shape),
            swiglu(Type::fp32, shape), dgate(Type::fp32, shape), dup(Type::fp32, shape);
        backend().gelu_forward(gelu, x);
        backend().gelu_backward(dgelu, one, x);
        backend().silu_forward(silu, x);
        backend().silu_backward(dsilu, one, x);
        backend().swiglu_forward(swiglu, x, one);
        backend().swiglu_backward(dgate, dup, one, x, one);
        for (const auto& values : {gelu.values(), silu.values(), swiglu.values(), dup.values()}) {
            for (std::size_t i = 0; i < 3; ++i) BOOST_TEST(std::abs(values[i]) < 1e-30);
            BOOST_TEST(std::abs(values[3]) < 1e-7);
            for (std::size_t i = 5; i < 8; ++i) BOOST_TEST(values[i] == x.values()[i]);
            BOOST_TEST(std::isnan(values[8]));
        }
        for (const auto& values : {dgelu.values(), dsilu.values(), dgate.values()}) {
            for (std::size_t i = 0; i < 8; ++i) BOOST_TEST(std::abs(values[i] - (i < 4 ? 0 : 1)) < 1e-6);
            BOOST_TEST(std::isnan(values[8]));
        }
    });
}

BOOST_AUTO_TEST_CASE(step_sizes_are_scaled_sigmoids) {
    for_each_type([](Type type) {
        for (const std::int64_t rows : {1, 31, 257})
            for (const std::int64_t heads : {1, 12, 33})
                for (const std::int64_t before : {0, 40}) {
                    const auto what =
                        fmt::format("{} rows of {} heads from column {} of {}", rows, heads, before, type_name(type));
                    const auto count = static_cast<std::size_t>(rows * heads), width = static_cast<std::size_t>(heads);
                    const Values logits = random_rounded(type, count, "logit", 3),
                                 biases = random_rounded(Type::fp32, width, "bias"),
                                 dsteps = random_rounded(Type::fp32, count, "dstep");
                    const Columns logit(type, rows, heads, before, before == 0 ? 0 : 4, logits),
                        dlogit(type, rows, heads, before, before);
                    const OnDevice bias(Type::fp32, {heads}, biases), dstep(Type::fp32, {rows, heads}, dsteps);
                    OnDevice step(Type::fp32, {rows, heads});
                    step.poison();
                    backend().step_size_forward(step, logit, bias, 0.25f);
                    Values steps, gradients;
                    for (std::size_t i = 0; i < count; ++i) {
                        const double s = ref::sigmoid(logits[i] + biases[i % width]);
                        steps.push_back(0.25 * s);
                        gradients.push_back(dsteps[i] * 0.25 * s * (1 - s));
                    }
                    check_close(step.values(), steps, Type::fp32, 1, "step, " + what);
                    backend().step_size_backward(dlogit, dstep, step, 0.25f);
                    check_close(dlogit.values(), gradients, type, 1, "dlogit, " + what);
                    BOOST_CHECK(logit.untouched() && dlogit.untouched());
                }
    });
    OnDevice step(Type::fp32, {1, 1}, {0}), dlogit(Type::bf16, {1, 1});
    backend().step_size_backward(dlogit, OnDevice(Type::fp32, {1, 1}, {1}), step, 0);
    BOOST_TEST(dlogit.values()[0] == 0.0);  // a scale of 0 stops learning inside
}

BOOST_AUTO_TEST_CASE(token_scales_are_bounded_below) {
    for_each_backend([] {
        for (const std::int64_t size : {1, 16, 31, 127, 129}) {
            const Part delta(Type::fp32, size, 0, "delta", 0.3), dscale(Type::fp32, size, 0, "dscale"),
                ddelta(Type::fp32, size, 0, "ddelta");
            const Output scale(Type::fp32, size, 0);
            backend().token_scale_forward(scale, delta);
            backend().token_scale_backward(ddelta, dscale, delta);
            Values expected, gradient = ddelta.values;
            for (std::size_t i = 0; i < delta.values.size(); ++i) {
                const double value = 1 / static_cast<double>(i + 1) + delta.values[i];
                expected.push_back(std::max(value, 0.0));
                if (value >= 0) gradient[i] += dscale.values[i];
            }
            check_close(scale.now(), expected, Type::fp32, 1, "token scale");
            check_close(ddelta.now(), gradient, Type::fp32, 1, "gradient of the token scale");
        }
    });
}
