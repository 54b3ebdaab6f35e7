// Problems of the TTT operations, linear and mlp, on the CPU backend, and their comparison with the reference.
#pragma once

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/float16.hpp"
#include "base/random.hpp"
#include "kernels/backend.hpp"
#include "reference/ttt_parts.hpp"

namespace lockstep::kernel_tests {

using kernels::Backend;
using kernels::TttCarry;
using kernels::TttInner;
using kernels::TttShape;
using reference::TttModels;
using reference::TttProblem;
using reference::TttScan;
using reference::Values;

// Relative L2, as the golden test of the whole model measures it; there 1e-4 is asked of every gradient.
inline constexpr double accepted = 2e-5;
// Of q, k, v, y and their gradients: in bf16 the one rounding of what is stored comes on top.
inline double accepted_of(Type type) {
    return type == Type::bf16 ? accepted + 0x1p-9 : accepted;
}

struct TttCase {
    bool mlp;
    std::size_t batch, length, heads, width, mini_batch;
    std::string text() const {
        return fmt::format("{} batch {} length {} heads {} width {} mini-batch {}", mlp ? "mlp" : "linear", batch,
                           length, heads, width, mini_batch);
    }
};

// Values that fp32 holds, so that both sides compute on the same numbers.
inline Values random_values(const char* purpose, std::size_t count, double mean, double deviation) {
    const RandomStream stream(17, purpose);
    Values x(count);
    for (std::size_t i = 0; i < count; ++i)
        x[i] = static_cast<double>(static_cast<float>(mean + deviation * stream.normal(i)));
    return x;
}

// Rounded to what tensors of this type hold.
inline Values rounded(Values x, Type type) {
    if (type == Type::bf16)
        for (double& value : x) value = static_cast<double>(bf16_value(bf16_bits(static_cast<float>(value))));
    return x;
}

inline TttProblem problem_of(const TttCase& c, Type type = Type::fp32) {
    TttProblem p;
    p.mlp = c.mlp;
    p.batch = c.batch;
    p.length = c.length;
    p.heads = c.heads;
    p.width = c.width;
    p.mini_batch = c.mini_batch;
    const std::size_t rows = c.batch * c.length, slices = c.heads * c.width, g = p.hidden();
    p.q = rounded(random_values("q", rows * slices, 0, 1), type);
    p.k = rounded(random_values("k", rows * slices, 0, 1), type);
    p.v = rounded(random_values("v", rows * slices, 0, 1), type);
    const RandomStream steps(17, "step size");
    p.step_size.resize(rows * c.heads);
    for (std::size_t i = 0; i < p.step_size.size(); ++i)
        p.step_size[i] = static_cast<double>(
            static_cast<float>((c.mlp ? 0.1 : 1.0) * (0.1 + 0.8 * steps.uniform(i)) / static_cast<double>(c.width)));
    p.token_scale = random_values("token scale", c.mini_batch, 0, 0.05);
    for (std::size_t i = 0; i < c.mini_batch; ++i)
        p.token_scale[i] = static_cast<double>(
            std::max(0.0f, static_cast<float>(p.token_scale[i] + 1.0 / static_cast<double>(i + 1))));
    p.weight1 = random_values("weight1", slices * g, 0, 0.1);
    p.bias1 = random_values("bias1", c.heads * g, 0, 0.1);
    if (c.mlp) {
        p.weight2 = random_values("weight2", slices * g, 0, 0.1);
        p.bias2 = random_values("bias2", slices, 0, 0.1);
    }
    p.norm_weight = random_values("norm weight", slices, 1, 0.2);
    p.norm_bias = random_values("norm bias", slices, 0, 0.2);
    return p;
}

// A model of every sequence and head.
inline TttModels random_models(const TttProblem& p, const char* purpose, double deviation) {
    TttModels models = reference::ttt::zero_models(p);
    const Values values = random_values(
        purpose, models.weight1.size() + models.bias1.size() + models.weight2.size() + models.bias2.size(), 0,
        deviation);
    auto next = values.begin();
    for (Values* x : {&models.weight1, &models.bias1, &models.weight2, &models.bias2}) {
        const auto end = next + static_cast<std::ptrdiff_t>(x->size());
        x->assign(next, end);
        next = end;
    }
    return models;
}

// The problem's arrays as tensors: q, k, v and y of the given type, the others fp32.
struct Problem {
    std::vector<std::vector<float>> memory;
    std::vector<std::vector<std::uint16_t>> halves;
    Tensor q, k, v, y, step_size, token_scale;
    TttInner inner;
    TttCarry initial;
    TttShape shape{};

    Tensor tensor(const Values& values, const Shape& shape_of) {
        memory.emplace_back(values.begin(), values.end());
        BOOST_REQUIRE(element_count(shape_of) == static_cast<std::int64_t>(values.size()));
        return {memory.back().data(), Type::fp32, shape_of};
    }
    Tensor tensor(const Values& values, const Shape& shape_of, Type type) {
        if (type == Type::fp32) return tensor(values, shape_of);
        halves.emplace_back();
        for (const double value : values) halves.back().push_back(bf16_bits(static_cast<float>(value)));
        BOOST_REQUIRE(element_count(shape_of) == static_cast<std::int64_t>(values.size()));
        return {halves.back().data(), type, shape_of};
    }
    explicit Problem(const TttProblem& p, Type type = Type::fp32) {
        memory.reserve(32);
        halves.reserve(8);
        const auto b = static_cast<std::int64_t>(p.batch), l = static_cast<std::int64_t>(p.length),
                   h = static_cast<std::int64_t>(p.heads), f = static_cast<std::int64_t>(p.width),
                   g = static_cast<std::int64_t>(p.hidden()), m = static_cast<std::int64_t>(p.mini_batch);
        shape = {p.mlp, b, l, h, f, m};
        q = tensor(p.q, {b * l, h * f}, type);
        k = tensor(p.k, {b * l, h * f}, type);
        v = tensor(p.v, {b * l, h * f}, type);
        y = tensor(Values(p.q.size(), -7), {b * l, h * f}, type);
        step_size = tensor(p.step_size, {b * l, h});
        token_scale = tensor(p.token_scale, {m});
        inner.weight1 = tensor(p.weight1, {h, f, g});
        inner.bias1 = tensor(p.bias1, {h, 1, g});
        if (p.mlp) {
            inner.weight2 = tensor(p.weight2, {h, g, f});
            inner.bias2 = tensor(p.bias2, {h, 1, f});
        }
        inner.norm_weight = tensor(p.norm_weight, {h, f});
        inner.norm_bias = tensor(p.norm_bias, {h, f});
        if (!p.initial.empty()) initial = carry(p.initial);
    }
    TttCarry carry(const TttModels& models) {
        const std::int64_t b = shape.batch, h = shape.heads, f = shape.head_width, g = shape.hidden();
        TttCarry tensors{tensor(models.weight1, {b, h, f, g}), tensor(models.bias1, {b, h, 1, g}), {}, {}};
        if (shape.mlp) {
            tensors.weight2 = tensor(models.weight2, {b, h, g, f});
            tensors.bias2 = tensor(models.bias2, {b, h, 1, f});
        }
        return tensors;
    }
    Problem(const Problem&) = delete;
    Problem& operator=(const Problem&) = delete;
};

inline Values values_of(const Tensor& tensor) {
    if (tensor.empty()) return {};
    if (tensor.type() == Type::fp32) return {tensor.fp32(), tensor.fp32() + tensor.count()};
    Values values(static_cast<std::size_t>(tensor.count()));
    const auto* bits = static_cast<const std::uint16_t*>(tensor.data());
    std::transform(bits, bits + tensor.count(), values.begin(),
                   [](std::uint16_t value) { return static_cast<double>(bf16_value(value)); });
    return values;
}

inline double relative_error(const Values& actual, const Values& expected) {
    BOOST_REQUIRE_EQUAL(actual.size(), expected.size());
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const double e = actual[i] - expected[i];
        difference += e * e;
        size += expected[i] * expected[i];
    }
    return std::sqrt(difference / std::max(size, 1e-30));
}
inline double relative_error(const Tensor& tensor, const Values& expected) {
    return relative_error(values_of(tensor), expected);
}

struct Run {
    std::vector<float> saved;
    Problem out;  // gradients in the places of what they belong to
    TttCarry final_state;
    Tensor dy;

    // Gradients that are summed into start at `before`, all others as NaN.
    Run(Backend& backend, Problem& in, const TttProblem& p, const Values& dy_values, double before,
        bool goes_on = false, const TttModels& dfinal_values = {})
        : saved(static_cast<std::size_t>(backend.ttt_saved_count(in.shape, in.q.type())),
                std::numeric_limits<float>::quiet_NaN()),
          out(outputs(p, before), in.q.type()) {
        const Tensor saved_tensor(saved.data(), Type::fp32, {static_cast<std::int64_t>(saved.size())});
        if (goes_on) final_state = out.carry(filled(p, unknown));
        backend.ttt_forward(in.y, saved_tensor, in.q, in.k, in.v, in.step_size, in.token_scale, in.inner, in.initial,
                            final_state, in.shape);
        if (dy_values.empty()) return;
        TttCarry dfinal;
        if (!dfinal_values.empty()) dfinal = out.carry(dfinal_values);
        dy = out.tensor(dy_values, in.q.shape(), in.q.type());
        backend.ttt_backward(out.q, out.k, out.v, out.step_size, out.token_scale, out.inner, out.initial, dy,
                             saved_tensor, in.q, in.k, in.v, in.step_size, in.token_scale, in.inner, in.initial, dfinal,
                             in.shape);
    }
    static constexpr double unknown = std::numeric_limits<double>::quiet_NaN(), left_alone = 0.75;
    static TttModels filled(const TttProblem& p, double value) {
        TttModels models = reference::ttt::zero_models(p);
        for (Values* x : {&models.weight1, &models.bias1, &models.weight2, &models.bias2}) x->assign(x->size(), value);
        return models;
    }
    static TttProblem outputs(const TttProblem& p, double before) {
        TttProblem d = p;
        for (Values* x : {&d.token_scale, &d.weight1, &d.bias1, &d.weight2, &d.bias2, &d.norm_weight, &d.norm_bias})
            x->assign(x->size(), before);
        for (Values* x : {&d.q, &d.k, &d.v, &d.step_size}) x->assign(x->size(), unknown);
        if (!d.initial.empty()) {
            d.initial = filled(p, unknown);
            for (Values* x : {&d.weight1, &d.bias1, &d.weight2, &d.bias2}) x->assign(x->size(), left_alone);
        }
        return d;
    }
};

// One scan as the parts of a sequence take it.
inline TttScan scan_part(Backend& backend, const TttProblem& p, const Values& dy, bool goes_on, const TttModels& dfinal,
                         Type type = Type::fp32) {
    const auto models = [](const TttCarry& carry) {
        return TttModels{values_of(carry.weight1), values_of(carry.bias1), values_of(carry.weight2),
                         values_of(carry.bias2)};
    };
    Problem in(p, type);
    const Run run(backend, in, p, dy, 0, goes_on, dfinal);
    const Problem& d = run.out;
    TttScan scan{values_of(in.y), models(run.final_state), p};
    scan.gradients.q = values_of(d.q);
    scan.gradients.k = values_of(d.k);
    scan.gradients.v = values_of(d.v);
    scan.gradients.step_size = values_of(d.step_size);
    scan.gradients.token_scale = values_of(d.token_scale);
    scan.gradients.weight1 = values_of(d.inner.weight1);
    scan.gradients.bias1 = values_of(d.inner.bias1);
    scan.gradients.weight2 = values_of(d.inner.weight2);
    scan.gradients.bias2 = values_of(d.inner.bias2);
    scan.gradients.norm_weight = values_of(d.inner.norm_weight);
    scan.gradients.norm_bias = values_of(d.inner.norm_bias);
    scan.gradients.initial = models(d.initial);
    if (!p.initial.empty())
        for (const Values* x :
             {&scan.gradients.weight1, &scan.gradients.bias1, &scan.gradients.weight2, &scan.gradients.bias2})
            BOOST_TEST(*x == Values(x->size(), Run::left_alone),
                       "gradients of a learned model that nothing starts from");
    return scan;
}

inline void compare_scan(TttScan scan, const Values& y, TttProblem expected, Type type = Type::fp32) {
    BOOST_TEST(relative_error(scan.y, y) < accepted_of(type));
    const std::vector<Values*> gradients = reference::arrays_of(scan.gradients),
                               wanted = reference::arrays_of(expected);
    BOOST_REQUIRE_EQUAL(gradients.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) BOOST_TEST_CONTEXT("gradient " << i << " of arrays_of") {
            BOOST_TEST(relative_error(*gradients[i], *wanted[i]) < (i < 3 ? accepted_of(type) : accepted));
        }
}

}  // namespace lockstep::kernel_tests
