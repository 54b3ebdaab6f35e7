// Problems of the TTT operations, linear and mlp, as tensors on the device, and their comparison with the reference.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "operations/support.hpp"
#include "reference/ttt_reference.hpp"

namespace lockstep::operation_tests {

using reference::TttProblem;

struct TttCase {
    bool mlp;
    std::size_t batch, length, heads, width, mini_batch;
    std::string text(Type type) const {
        return fmt::format("{} {} batch {} length {} heads {} width {} mini-batch {}", type_name(type),
                           mlp ? "mlp" : "linear", batch, length, heads, width, mini_batch);
    }
};

// Relative L2 error of a tensor. fp32: as the CPU's operations are held to. 16 bit: the products' operands are rounded
// to bf16, which moves gradients by 4e-3 to 7e-3 at these lengths (measured with exact sums); three times that is
// allowed, for the tensors are short.
inline double ttt_tolerance(Type type) {
    return type == Type::fp32 ? 2e-5 : 2e-2;
}

inline TttProblem ttt_problem(const TttCase& c, Type type) {
    TttProblem p;
    p.mlp = c.mlp;
    p.batch = c.batch;
    p.length = c.length;
    p.heads = c.heads;
    p.width = c.width;
    p.mini_batch = c.mini_batch;
    const std::size_t rows = c.batch * c.length, slices = c.heads * c.width, g = p.hidden();
    const auto learned = [](std::size_t count, const char* purpose, double mean, double deviation) {
        Values x = kernel_tests::random_values(count, purpose, deviation);
        for (double& value : x) value = static_cast<double>(static_cast<float>(mean + value));
        return x;
    };
    p.q = random_rounded(type, rows * slices, "q");
    p.k = random_rounded(type, rows * slices, "k");
    p.v = random_rounded(type, rows * slices, "v");
    const RandomStream steps(17, "step size");
    p.step_size.resize(rows * c.heads);
    for (std::size_t i = 0; i < p.step_size.size(); ++i)
        p.step_size[i] = static_cast<double>(
            static_cast<float>((c.mlp ? 0.1 : 1.0) * (0.1 + 0.8 * steps.uniform(i)) / static_cast<double>(c.width)));
    p.token_scale = learned(c.mini_batch, "token scale", 0, 0.05);
    for (std::size_t i = 0; i < c.mini_batch; ++i)
        p.token_scale[i] = static_cast<double>(
            std::max(0.0f, static_cast<float>(p.token_scale[i] + 1.0 / static_cast<double>(i + 1))));
    p.weight1 = learned(slices * g, "weight1", 0, 0.1);
    p.bias1 = learned(c.heads * g, "bias1", 0, 0.1);
    if (c.mlp) {
        p.weight2 = learned(slices * g, "weight2", 0, 0.1);
        p.bias2 = learned(slices, "bias2", 0, 0.1);
    }
    p.norm_weight = learned(slices, "norm weight", 1, 0.2);
    p.norm_bias = learned(slices, "norm bias", 0, 0.2);
    return p;
}

// The arrays of a problem, or their gradients in their places.
struct TttTensors {
    OnDevice q, k, v, step_size, token_scale, weight1, bias1, weight2, bias2, norm_weight, norm_bias;

    explicit TttTensors(Type type, const TttProblem& p)
        : TttTensors(type, p, static_cast<std::int64_t>(p.batch * p.length), static_cast<std::int64_t>(p.heads),
                     static_cast<std::int64_t>(p.width), static_cast<std::int64_t>(p.hidden())) {}
    kernels::TttInner inner(bool mlp) const {
        return {weight1,     bias1,    mlp ? weight2.tensor() : Tensor(), mlp ? bias2.tensor() : Tensor(),
                norm_weight, norm_bias};
    }

  private:
    TttTensors(Type type, const TttProblem& p, std::int64_t n, std::int64_t h, std::int64_t f, std::int64_t g)
        : q(type, {n, h * f}, p.q),
          k(type, {n, h * f}, p.k),
          v(type, {n, h * f}, p.v),
          step_size(Type::fp32, {n, h}, p.step_size),
          token_scale(Type::fp32, {static_cast<std::int64_t>(p.mini_batch)}, p.token_scale),
          weight1(Type::fp32, {h, f, g}, p.weight1),
          bias1(Type::fp32, {h, 1, g}, p.bias1),
          weight2(Type::fp32, p.mlp ? Shape{h, g, f} : Shape{1}, p.mlp ? p.weight2 : Values(1)),
          bias2(Type::fp32, p.mlp ? Shape{h, 1, f} : Shape{1}, p.mlp ? p.bias2 : Values(1)),
          norm_weight(Type::fp32, {h, f}, p.norm_weight),
          norm_bias(Type::fp32, {h, f}, p.norm_bias) {}
};

inline kernels::TttShape ttt_shape(const TttProblem& p) {
    return {p.mlp,
            static_cast<std::int64_t>(p.batch),
            static_cast<std::int64_t>(p.length),
            static_cast<std::int64_t>(p.heads),
            static_cast<std::int64_t>(p.width),
            static_cast<std::int64_t>(p.mini_batch)};
}

// The documents of a problem; one element each where there are none.
class TttDocumentsOnDevice {
  public:
    explicit TttDocumentsOnDevice(const TttProblem& p)
        : starts_(Type::int32, shape_of(p), p.joined() ? Values(1) : p.starts),
          ends_(Type::int32, shape_of(p), p.joined() ? Values(1) : p.ends),
          given_(!p.joined()),
          first_position_(static_cast<std::int64_t>(p.first_position)) {}
    kernels::Documents documents() const {
        return given_ ? kernels::Documents{starts_, ends_, first_position_} : kernels::Documents{};
    }

  private:
    static Shape shape_of(const TttProblem& p) {
        if (p.joined()) return {1};
        return {static_cast<std::int64_t>(p.batch), static_cast<std::int64_t>(p.positions)};
    }
    OnDevice starts_, ends_;
    bool given_;
    std::int64_t first_position_;
};

inline double relative_error(const Values& actual, const Values& expected) {
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
        size += expected[i] * expected[i];
    }
    return std::sqrt(difference / std::max(size, 1e-30));
}

inline void check_relative(const Values& actual, const Values& expected, double allowed, const std::string& what) {
    BOOST_REQUIRE_EQUAL(actual.size(), expected.size());
    const double error = relative_error(actual, expected);
    BOOST_CHECK_MESSAGE(error <= allowed, what << ": relative error " << error << ", " << allowed << " is allowed");
}

// What forward and backward compute: y, then the gradients.
struct TttResults {
    static constexpr const char* names[] = {"y",        "dq",     "dk",       "dv",     "dstep_size",   "dtoken_scale",
                                            "dweight1", "dbias1", "dweight2", "dbias2", "dnorm_weight", "dnorm_bias"};
    std::vector<Values> values;
    std::vector<std::vector<char>> bytes;
};

// Outputs that are overwritten start as NaN; those that are += start at `before`, which is taken off again in fp32's
// precision, so that small gradients are judged by their own size.
inline TttResults run_ttt(const TttProblem& p, Type type, const Values& dy_values) {
    const float before = 0.25f;
    const kernels::TttShape shape = ttt_shape(p);
    const TttTensors in(type, p);
    TttProblem start = p;
    for (Values* x : {&start.q, &start.k, &start.v, &start.step_size, &start.token_scale, &start.weight1, &start.bias1,
                      &start.weight2, &start.bias2, &start.norm_weight, &start.norm_bias})
        x->assign(x->size(), static_cast<double>(before));
    TttTensors out(type, start);
    OnDevice y(type, in.q.tensor().shape()), dy(type, in.q.tensor().shape(), dy_values);
    OnDevice saved(Type::fp32, {backend().ttt_saved_count(shape, type)});
    for (OnDevice* tensor : {&y, &saved, &out.q, &out.k, &out.v, &out.step_size}) tensor->poison();
    backend().ttt_forward(y, saved, in.q, in.k, in.v, in.step_size, in.token_scale, in.inner(p.mlp), {}, {}, shape);
    backend().ttt_backward(out.q, out.k, out.v, out.step_size, out.token_scale, out.inner(p.mlp), {}, dy, saved, in.q,
                           in.k, in.v, in.step_size, in.token_scale, in.inner(p.mlp), {}, {}, shape);
    TttResults results;
    for (const OnDevice* tensor : {&y, &out.q, &out.k, &out.v, &out.step_size, &out.token_scale, &out.weight1,
                                   &out.bias1, &out.weight2, &out.bias2, &out.norm_weight, &out.norm_bias}) {
        results.values.push_back(tensor->values());
        results.bytes.push_back(tensor->bytes());
    }
    // Without a backward to follow: the same outputs.
    y.poison();
    backend().ttt_forward(y, Tensor(), in.q, in.k, in.v, in.step_size, in.token_scale, in.inner(p.mlp), {}, {}, shape);
    BOOST_TEST(y.bytes() == results.bytes[0], "y without states kept");
    return results;
}

// q, k, v and their gradients as columns of wider matrices: what dense ones give, and nothing written beside.
inline void check_columns(const TttCase& c, Type type) {
    const TttProblem p = ttt_problem(c, type);
    const kernels::TttShape shape = ttt_shape(p);
    const Values dy_values = random_rounded(type, p.q.size(), "dy");
    const TttResults dense = run_ttt(p, type, dy_values);
    const std::int64_t rows = shape.batch * shape.length, width = shape.heads * shape.head_width;
    struct Beside {
        std::int64_t before, behind;
    };
    struct Place {
        const char* text;
        Beside q, k, v;
    };
    for (const auto& [text, of_q, of_k, of_v] :
         {Place{"aligned", {64, 64}, {64, 64}, {64, 8}}, Place{"odd columns and strides", {3, 64}, {64, 3}, {3, 8}},
          Place{"q from an odd column", {3, 61}, {64, 64}, {64, 8}}}) {
        const std::string what = c.text(type) + ", " + text;
        const TttTensors in(type, p), out(type, p);
        const Columns q(type, rows, width, of_q.before, of_q.behind, p.q),
            k(type, rows, width, of_k.before, of_k.behind, p.k), v(type, rows, width, of_v.before, of_v.behind, p.v);
        const Columns dq(type, rows, width, 64, of_q.before), dk(type, rows, width, of_q.before, 64),
            dv(type, rows, width, 0, 64);
        const OnDevice y(type, {rows, width}), dy(type, {rows, width}, dy_values);
        const OnDevice saved(Type::fp32, {backend().ttt_saved_count(shape, type)});
        backend().ttt_forward(y, saved, q, k, v, in.step_size, in.token_scale, in.inner(p.mlp), {}, {}, shape);
        backend().ttt_backward(dq, dk, dv, out.step_size, out.token_scale, out.inner(p.mlp), {}, dy, saved, q, k, v,
                               in.step_size, in.token_scale, in.inner(p.mlp), {}, {}, shape);
        const double allowed = 16 * roundoff(type);
        check_relative(y.values(), dense.values[0], allowed, what + ", y");
        check_relative(dq.values(), dense.values[1], allowed, what + ", dq");
        check_relative(dk.values(), dense.values[2], allowed, what + ", dk");
        check_relative(dv.values(), dense.values[3], allowed, what + ", dv");
        BOOST_CHECK_MESSAGE(dq.untouched() && dk.untouched() && dv.untouched(), what << ": wrote beside a gradient");
    }
}

inline void compare_ttt(const TttCase& c, Type type) {
    BOOST_TEST_CONTEXT(c.text(type)) {
        const TttProblem p = ttt_problem(c, type);
        const Values dy = random_rounded(type, p.q.size(), "dy");
        TttResults results = run_ttt(p, type, dy);
        const TttProblem d = reference::ttt_backward(p, dy);
        const Values expected[] = {reference::ttt_forward(p),
                                   d.q,
                                   d.k,
                                   d.v,
                                   d.step_size,
                                   d.token_scale,
                                   d.weight1,
                                   d.bias1,
                                   p.mlp ? d.weight2 : Values(1),
                                   p.mlp ? d.bias2 : Values(1),
                                   d.norm_weight,
                                   d.norm_bias};
        for (std::size_t i = 0; i < results.values.size(); ++i) {
            if (!p.mlp && (i == 8 || i == 9)) continue;  // the second layer
            if (i >= 5)
                for (double& x : results.values[i]) x -= 0.25;
            // dτ is a few numbers, each a sum over all tokens of terms of either sign that nearly cancel.
            const double few = i == 5 && type != Type::fp32 ? 3 : 1;
            check_relative(results.values[i], expected[i], few * ttt_tolerance(type), TttResults::names[i]);
        }
    }
}

}  // namespace lockstep::operation_tests
