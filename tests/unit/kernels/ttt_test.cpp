#define BOOST_TEST_MODULE ttt
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "device/parallel.hpp"
#include "kernels/backend.hpp"
#include "reference/ttt_reference.hpp"

using namespace lockstep;
using namespace lockstep::kernels;
using reference::TttProblem;
using reference::Values;

namespace {

// Relative L2, as the golden test of the whole model measures it; there 1e-4 is asked of every gradient.
constexpr double accepted = 2e-5;

struct Case {
    bool mlp;
    std::size_t batch, length, heads, width, mini_batch;
    std::string text() const {
        return fmt::format("{} batch {} length {} heads {} width {} mini-batch {}", mlp ? "mlp" : "linear", batch,
                           length, heads, width, mini_batch);
    }
};

// Values that fp32 holds, so that both sides compute on the same numbers.
Values random_values(const char* purpose, std::size_t count, double mean, double deviation) {
    const RandomStream stream(17, purpose);
    Values x(count);
    for (std::size_t i = 0; i < count; ++i)
        x[i] = static_cast<double>(static_cast<float>(mean + deviation * stream.normal(i)));
    return x;
}

TttProblem problem_of(const Case& c) {
    TttProblem p;
    p.mlp = c.mlp;
    p.batch = c.batch;
    p.length = c.length;
    p.heads = c.heads;
    p.width = c.width;
    p.mini_batch = c.mini_batch;
    const std::size_t rows = c.batch * c.length, slices = c.heads * c.width, g = p.hidden();
    p.q = random_values("q", rows * slices, 0, 1);
    p.k = random_values("k", rows * slices, 0, 1);
    p.v = random_values("v", rows * slices, 0, 1);
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

// The problem's arrays as fp32 tensors.
struct Problem {
    std::vector<std::vector<float>> memory;
    Tensor q, k, v, y, step_size, token_scale;
    TttInner inner;
    TttShape shape{};

    Tensor tensor(const Values& values, const Shape& shape_of) {
        memory.emplace_back(values.begin(), values.end());
        BOOST_REQUIRE(element_count(shape_of) == static_cast<std::int64_t>(values.size()));
        return {memory.back().data(), Type::fp32, shape_of};
    }
    explicit Problem(const TttProblem& p) {
        memory.reserve(32);
        const auto b = static_cast<std::int64_t>(p.batch), l = static_cast<std::int64_t>(p.length),
                   h = static_cast<std::int64_t>(p.heads), f = static_cast<std::int64_t>(p.width),
                   g = static_cast<std::int64_t>(p.hidden()), m = static_cast<std::int64_t>(p.mini_batch);
        shape = {p.mlp, b, l, h, f, m};
        q = tensor(p.q, {b * l, h * f});
        k = tensor(p.k, {b * l, h * f});
        v = tensor(p.v, {b * l, h * f});
        y = tensor(Values(p.q.size(), -7), {b * l, h * f});
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
    }
    Problem(const Problem&) = delete;
    Problem& operator=(const Problem&) = delete;
};

double relative_error(const Tensor& tensor, const Values& expected) {
    double difference = 0, size = 0;
    const float* actual = tensor.fp32();
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const double e = static_cast<double>(actual[i]) - expected[i];
        difference += e * e;
        size += expected[i] * expected[i];
    }
    return std::sqrt(difference / std::max(size, 1e-30));
}

struct Run {
    std::vector<float> saved;
    Problem out;  // y in the input's place, gradients in the places of what they belong to
    std::vector<float> dy;

    // Gradients that are summed into start at `before`.
    Run(Backend& backend, Problem& in, const TttProblem& p, const Values& dy_values, double before)
        : saved(static_cast<std::size_t>(backend.ttt_saved_count(in.shape)), std::numeric_limits<float>::quiet_NaN()),
          out(filled(p, before)),
          dy(dy_values.begin(), dy_values.end()) {
        const Tensor saved_tensor(saved.data(), Type::fp32, {static_cast<std::int64_t>(saved.size())});
        backend.ttt_forward(in.y, saved_tensor, in.q, in.k, in.v, in.step_size, in.token_scale, in.inner, in.shape);
        const Tensor dy_tensor(dy.data(), Type::fp32, in.q.shape());
        backend.ttt_backward(out.q, out.k, out.v, out.step_size, out.token_scale, out.inner, dy_tensor, saved_tensor,
                             in.q, in.k, in.v, in.step_size, in.token_scale, in.inner, in.shape);
    }
    static TttProblem filled(const TttProblem& p, double value) {
        TttProblem d = p;
        for (Values* x : {&d.q, &d.k, &d.v, &d.step_size, &d.token_scale, &d.weight1, &d.bias1, &d.weight2, &d.bias2,
                          &d.norm_weight, &d.norm_bias})
            x->assign(x->size(), value);
        return d;
    }
};

struct Compared {
    const char* name;
    const Tensor* tensor;
    Values TttProblem::*expected;
    bool summed;
};
std::vector<Compared> gradients_of(const Problem& d) {
    std::vector<Compared> list = {{"dq", &d.q, &TttProblem::q, false},
                                  {"dk", &d.k, &TttProblem::k, false},
                                  {"dv", &d.v, &TttProblem::v, false},
                                  {"dstep_size", &d.step_size, &TttProblem::step_size, false},
                                  {"dtoken_scale", &d.token_scale, &TttProblem::token_scale, true},
                                  {"dweight1", &d.inner.weight1, &TttProblem::weight1, true},
                                  {"dbias1", &d.inner.bias1, &TttProblem::bias1, true},
                                  {"dnorm_weight", &d.inner.norm_weight, &TttProblem::norm_weight, true},
                                  {"dnorm_bias", &d.inner.norm_bias, &TttProblem::norm_bias, true}};
    if (d.shape.mlp) {
        list.push_back({"dweight2", &d.inner.weight2, &TttProblem::weight2, true});
        list.push_back({"dbias2", &d.inner.bias2, &TttProblem::bias2, true});
    }
    return list;
}

void compare(Backend& backend, const Case& c) {
    BOOST_TEST_CONTEXT(c.text()) {
        const TttProblem p = problem_of(c);
        Problem in(p);
        const Values dy = random_values("dy", p.q.size(), 0, 1);
        const double before = 0.25;
        const Run run(backend, in, p, dy, before);
        const Values y = reference::ttt_forward(p);
        BOOST_TEST(relative_error(in.y, y) < accepted);
        TttProblem expected = reference::ttt_backward(p, dy);
        for (const Compared& gradient : gradients_of(run.out)) {
            Values& values = expected.*gradient.expected;
            if (gradient.summed)
                for (double& x : values) x += before;
            BOOST_TEST_CONTEXT(gradient.name) {
                BOOST_TEST(relative_error(*gradient.tensor, values) < accepted);
            }
        }
        std::vector<float> kept(in.y.fp32(), in.y.fp32() + in.y.count());
        backend.ttt_forward(in.y, Tensor(), in.q, in.k, in.v, in.step_size, in.token_scale, in.inner, in.shape);
        BOOST_TEST(std::memcmp(kept.data(), in.y.data(), in.y.bytes()) == 0);
    }
}

// The state of a fresh sequence.
struct Decoding {
    std::vector<std::vector<float>> memory;
    TttState state;

    explicit Decoding(const TttInner& inner) {
        memory.reserve(8);
        const auto take = [&](const Tensor& learned, Tensor& current, Tensor& sum) {
            if (learned.empty()) return;
            memory.emplace_back(learned.fp32(), learned.fp32() + learned.count());
            current = Tensor(memory.back().data(), Type::fp32, learned.shape());
            memory.emplace_back(static_cast<std::size_t>(learned.count()), 0.0f);
            sum = Tensor(memory.back().data(), Type::fp32, learned.shape());
        };
        take(inner.weight1, state.weight1, state.weight1_sum);
        take(inner.bias1, state.bias1, state.bias1_sum);
        take(inner.weight2, state.weight2, state.weight2_sum);
        take(inner.bias2, state.bias2, state.bias2_sum);
    }
};

// Decodes the sequence in pieces of the given lengths, the last one repeated.
void decode(Backend& backend, Problem& in, const std::vector<std::int64_t>& pieces) {
    Decoding decoding(in.inner);
    std::int64_t position = 0;
    for (std::size_t piece = 0; position < in.shape.length; ++piece) {
        TttShape shape = in.shape;
        shape.length = std::min(pieces[std::min(piece, pieces.size() - 1)], in.shape.length - position);
        backend.ttt_decode(in.y.slice(position, shape.length), decoding.state, in.q.slice(position, shape.length),
                           in.k.slice(position, shape.length), in.v.slice(position, shape.length),
                           in.step_size.slice(position, shape.length), in.token_scale, in.inner, shape, position);
        position += shape.length;
    }
}

}  // namespace

BOOST_AUTO_TEST_CASE(reference_gradients_agree_with_finite_differences) {
    for (const bool mlp : {false, true}) {
        TttProblem p = problem_of({mlp, 2, 11, 2, 8, 4});
        const Values dy = random_values("dy", p.q.size(), 0, 1);
        const TttProblem gradients = reference::ttt_backward(p, dy);
        const auto loss = [&] {
            const Values y = reference::ttt_forward(p);
            double sum = 0;
            for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
            return sum;
        };
        const RandomStream stream(3, "directions");
        std::uint64_t drawn = 0;
        for (Values TttProblem::*member :
             {&TttProblem::q, &TttProblem::k, &TttProblem::v, &TttProblem::step_size, &TttProblem::token_scale,
              &TttProblem::weight1, &TttProblem::bias1, &TttProblem::weight2, &TttProblem::bias2,
              &TttProblem::norm_weight, &TttProblem::norm_bias}) {
            Values& x = p.*member;
            const Values kept = x, &gradient = gradients.*member;
            for (int probe = 0; probe < 3 && !x.empty(); ++probe) {
                Values direction(x.size());
                double squares = 0, analytic = 0, gradient_squares = 0;
                for (double& u : direction) {
                    u = stream.normal(drawn++);
                    squares += u * u;
                }
                const double h = 1e-4 / std::sqrt(squares);
                for (std::size_t i = 0; i < x.size(); ++i) {
                    analytic += gradient[i] * direction[i];
                    gradient_squares += gradient[i] * gradient[i];
                }
                const auto at = [&](double steps) {
                    for (std::size_t i = 0; i < x.size(); ++i) x[i] = kept[i] + steps * h * direction[i];
                    return loss();
                };
                const double numeric = (at(-2) - 8 * at(-1) + 8 * at(1) - at(2)) / (12 * h);
                x = kept;
                BOOST_TEST(std::abs(numeric - analytic) < 1e-7 * std::sqrt(gradient_squares * squares / 3 + 1e-12));
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(reference_decoding_equals_the_parallel_form) {
    for (const bool mlp : {false, true}) {
        const TttProblem p = problem_of({mlp, 2, 23, 2, 12, 5});
        const Values parallel = reference::ttt_forward(p), decoded = reference::ttt_decode(p);
        for (std::size_t i = 0; i < parallel.size(); ++i) BOOST_TEST(std::abs(parallel[i] - decoded[i]) < 1e-11);
    }
}

BOOST_AUTO_TEST_CASE(forward_and_backward_agree_with_the_reference) {
    const auto backend = make_cpu_backend();
    for (const bool mlp : {false, true}) {
        for (const std::size_t width : {20, 32, 64, 96, 128})
            for (const std::size_t length : {1, 17, 40}) compare(*backend, {mlp, 1, length, 1, width, 16});
        for (const std::size_t length : {1, 15, 16, 17, 40, 130})
            for (const std::size_t mini_batch : {16, 4, 5}) compare(*backend, {mlp, 3, length, 3, 20, mini_batch});
        compare(*backend, {mlp, 3, 130, 1, 32, 16});
        compare(*backend, {mlp, 1, 130, 3, 64, 16});
        compare(*backend, {mlp, 2, 45, 1, 7, 33});  // a mini-batch of more than one block of 16
        compare(*backend, {mlp, 1, 5, 2, 6, 1});    // every token a mini-batch
    }
}

// 38 mini-batches, five saved states: the error must not grow with them.
BOOST_AUTO_TEST_CASE(long_sequences_keep_their_accuracy) {
    const auto backend = make_cpu_backend();
    for (const bool mlp : {false, true}) compare(*backend, {mlp, 1, 600, 1, 32, 16});
}

BOOST_AUTO_TEST_CASE(every_instruction_set_agrees_with_the_reference) {
    const char* before = std::getenv("LOCKSTEP_INSTRUCTION_SET");
    const std::string kept = before ? before : "";
    for (const char* name : {"baseline", "avx2", "avx512"}) {
        BOOST_REQUIRE(setenv("LOCKSTEP_INSTRUCTION_SET", name, 1) == 0);
        std::unique_ptr<Backend> backend;
        try {
            backend = make_cpu_backend();
        } catch (const Error&) {
            continue;  // this processor lacks it
        }
        for (const bool mlp : {false, true}) compare(*backend, {mlp, 2, 40, 2, 20, 16});
    }
    if (before)
        BOOST_REQUIRE(setenv("LOCKSTEP_INSTRUCTION_SET", kept.c_str(), 1) == 0);
    else
        BOOST_REQUIRE(unsetenv("LOCKSTEP_INSTRUCTION_SET") == 0);
}

BOOST_AUTO_TEST_CASE(decoding_equals_the_parallel_form) {
    const auto backend = make_cpu_backend();
    for (const bool mlp : {false, true})
        for (const Case& c : {Case{mlp, 1, 70, 3, 20, 16}, Case{mlp, 1, 40, 2, 64, 16}, Case{mlp, 1, 23, 1, 32, 5},
                              Case{mlp, 1, 9, 1, 16, 1}})
            for (const std::vector<std::int64_t>& pieces :
                 {std::vector<std::int64_t>{1}, {7}, {16, 1}, {33, 3, 20}, {5, 11, 32, 1}, {1000}})
                BOOST_TEST_CONTEXT(c.text() << ", first piece " << pieces[0]) {
                    const TttProblem p = problem_of(c);
                    Problem in(p);
                    decode(*backend, in, pieces);
                    BOOST_TEST(relative_error(in.y, reference::ttt_forward(p)) < accepted);
                }
}

BOOST_AUTO_TEST_CASE(the_number_of_threads_does_not_change_a_bit) {
    const auto backend = make_cpu_backend();
    const int kept = threads();
    for (const bool mlp : {false, true}) {
        const TttProblem p = problem_of({mlp, 9, 150, 3, 20, 16});
        const Values dy = random_values("dy", p.q.size(), 0, 1);
        Problem one(p), two(p);
        set_threads(1);
        const Run with_one(*backend, one, p, dy, 0);
        set_threads(2);
        const Run with_two(*backend, two, p, dy, 0);
        BOOST_TEST(std::memcmp(one.y.data(), two.y.data(), one.y.bytes()) == 0);
        const auto first = gradients_of(with_one.out), second = gradients_of(with_two.out);
        for (std::size_t i = 0; i < first.size(); ++i)
            BOOST_TEST(std::memcmp(first[i].tensor->data(), second[i].tensor->data(), first[i].tensor->bytes()) == 0,
                       first[i].name);
    }
    set_threads(kept);
}

BOOST_AUTO_TEST_CASE(what_is_not_a_number_stays_visible) {
    const auto backend = make_cpu_backend();
    for (const bool mlp : {false, true})
        for (Values TttProblem::*member : {&TttProblem::q, &TttProblem::k, &TttProblem::v, &TttProblem::step_size}) {
            TttProblem p = problem_of({mlp, 1, 40, 1, 20, 16});
            (p.*member)[(p.*member).size() / 40 * 18] = std::numeric_limits<double>::quiet_NaN();  // token 18
            Problem in(p);
            const Run run(*backend, in, p, random_values("dy", p.q.size(), 0, 1), 0);
            const auto is_nan_at = [&](std::size_t token) { return std::isnan(in.y.fp32()[token * 20 + 3]); };
            BOOST_TEST(!is_nan_at(15));  // the mini-batch before it
            BOOST_TEST(is_nan_at(18));
            if (member != &TttProblem::q) BOOST_TEST(is_nan_at(39));
            BOOST_TEST(std::isnan(run.out.inner.weight1.fp32()[0]));
        }
}

BOOST_AUTO_TEST_CASE(step_sizes_and_token_scales) {
    const auto backend = make_cpu_backend();
    std::vector<float> logit = {-200, -20, -3, -0.5f, 0, 0.25f, 2, 9, 200}, step(9), gradient(9, 2.0f), dlogit(9);
    const Shape shape = {3, 3};
    const Tensor step_tensor(step.data(), Type::fp32, shape);
    backend->step_size_forward(step_tensor, Tensor(logit.data(), Type::fp32, shape), 0.125f);
    backend->step_size_backward(Tensor(dlogit.data(), Type::fp32, shape), Tensor(gradient.data(), Type::fp32, shape),
                                step_tensor, 0.125f);
    for (std::size_t i = 0; i < 9; ++i) {
        const double s = 1 / (1 + std::exp(-static_cast<double>(logit[i])));
        BOOST_TEST(std::abs(static_cast<double>(step[i]) - 0.125 * s) < 1e-7);
        BOOST_TEST(std::abs(static_cast<double>(dlogit[i]) - 2 * 0.125 * s * (1 - s)) < 1e-7);
    }

    // 1/i + δ: below, at and above 0; a gradient passes at 0 itself.
    std::vector<float> delta = {0, -0.75f, -1.0f / 3, 0.5f}, scale(4), dscale = {1, 2, 3, 4}, ddelta(4, 10.0f);
    const Tensor delta_tensor(delta.data(), Type::fp32, {4});
    backend->token_scale_forward(Tensor(scale.data(), Type::fp32, {4}), delta_tensor);
    backend->token_scale_backward(Tensor(ddelta.data(), Type::fp32, {4}), Tensor(dscale.data(), Type::fp32, {4}),
                                  delta_tensor);
    const std::vector<float> expected_scale = {1, 0, 0, 0.75f}, expected_gradient = {11, 10, 13, 14};
    BOOST_TEST(scale == expected_scale, boost::test_tools::per_element());
    BOOST_TEST(ddelta == expected_gradient, boost::test_tools::per_element());
}
