#define BOOST_TEST_MODULE ttt
#include <cstring>

#include "device/parallel.hpp"
#include "kernels/ttt_gpu_saved.hpp"
#include "unit/kernels/ttt_support.hpp"

using namespace lockstep;
using namespace lockstep::kernels;
using namespace lockstep::kernel_tests;

namespace {

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

void compare(Backend& backend, const TttCase& c, Type type = Type::fp32) {
    BOOST_TEST_CONTEXT(type_name(type) << " " << c.text()) {
        const TttProblem p = problem_of(c, type);
        Problem in(p, type);
        const Values dy = rounded(random_values("dy", p.q.size(), 0, 1), type);
        const double before = 0.25;
        const Run run(backend, in, p, dy, before);
        const Values y = reference::ttt_forward(p);
        BOOST_TEST(relative_error(in.y, y) < accepted_of(type));
        TttProblem expected = reference::ttt_backward(p, dy);
        for (const Compared& gradient : gradients_of(run.out)) {
            Values& values = expected.*gradient.expected;
            if (gradient.summed)
                for (double& x : values) x += before;
            BOOST_TEST_CONTEXT(gradient.name) {
                BOOST_TEST(relative_error(*gradient.tensor, values) < accepted_of(gradient.tensor->type()));
            }
        }
        const Values kept = values_of(in.y);
        backend.ttt_forward(in.y, Tensor(), in.q, in.k, in.v, in.step_size, in.token_scale, in.inner, {}, {}, in.shape);
        BOOST_TEST((values_of(in.y) == kept));
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

void compare_decoding(Backend& backend, const TttCase& c, const std::vector<std::int64_t>& pieces, Type type) {
    BOOST_TEST_CONTEXT(type_name(type) << " " << c.text() << ", first piece " << pieces[0]) {
        const TttProblem p = problem_of(c, type);
        Problem in(p, type);
        decode(backend, in, pieces);
        BOOST_TEST(relative_error(in.y, reference::ttt_forward(p)) < accepted_of(type));
    }
}

// With `carried` the sequences start from states of their own, and the loss depends on those behind their last tokens.
// With `documents` the first sequence begins inside one, the second with one.
void check_reference_gradients(bool mlp, bool carried, bool documents) {
    BOOST_TEST_CONTEXT((mlp ? "mlp" : "linear") << (carried ? ", carried" : "") << (documents ? ", documents" : "")) {
        TttProblem p = problem_of({mlp, 2, carried ? 12u : 11u, 2, 8, 4});
        const Values dy = random_values("dy", p.q.size(), 0, 1);
        TttModels dfinal;
        if (carried) {
            p.initial = random_models(p, "initial", 0.1);
            dfinal = random_models(p, "dfinal", 1);
        }
        if (documents) reference::set_documents(p, 3, 19, {{2, 6, 7}, {3, 11}});
        TttProblem gradients = reference::ttt_backward(p, dy, dfinal);
        const auto loss = [&] {
            TttModels last;
            double sum = reference::dot(reference::ttt_forward(p, &last), dy);
            if (carried)
                sum += reference::dot(last.weight1, dfinal.weight1) + reference::dot(last.bias1, dfinal.bias1) +
                       reference::dot(last.weight2, dfinal.weight2) + reference::dot(last.bias2, dfinal.bias2);
            return sum;
        };
        const RandomStream stream(3, "directions");
        std::uint64_t drawn = 0;
        const std::vector<Values*> members = reference::arrays_of(p), theirs = reference::arrays_of(gradients);
        for (std::size_t member = 0; member < members.size(); ++member) {
            Values& x = *members[member];
            const Values kept = x, &gradient = *theirs[member];
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

}  // namespace

BOOST_AUTO_TEST_CASE(reference_gradients_agree_with_finite_differences) {
    for (const bool mlp : {false, true})
        for (const bool carried : {false, true})
            for (const bool documents : {false, true}) check_reference_gradients(mlp, carried, documents);
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
        for (const Type type : {Type::fp32, Type::bf16}) {
            for (const std::size_t width : {5, 16, 31, 32, 33, 64, 96})
                compare(*backend, {mlp, 2, 21, 2, width, 16}, type);
            compare(*backend, {mlp, 1, 130, 3, 64, 16}, type);
        }
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
        for (const bool mlp : {false, true})
            for (const Type type : {Type::fp32, Type::bf16}) {
                compare(*backend, {mlp, 2, 40, 2, 20, 16}, type);
                compare(*backend, {mlp, 1, 40, 2, 64, 16}, type);
                compare(*backend, {mlp, 1, 37, 1, 33, 7}, type);
                compare(*backend, {mlp, 2, 45, 1, 7, 33}, type);
                TttProblem p = problem_of({mlp, 2, 40, 2, 20, 8}, type);
                p.initial = random_models(p, "initial", 0.1);
                const Values dy = rounded(random_values("dy", p.q.size(), 0, 1), type);
                const TttModels dfinal = random_models(p, "dfinal", 0.3);
                compare_scan(scan_part(*backend, p, dy, true, dfinal, type), reference::ttt_forward(p),
                             reference::ttt_backward(p, dy, dfinal), type);
                compare_decoding(*backend, {mlp, 1, 40, 2, 20, 16}, {7, 33}, type);
            }
    }
    if (before)
        BOOST_REQUIRE(setenv("LOCKSTEP_INSTRUCTION_SET", kept.c_str(), 1) == 0);
    else
        BOOST_REQUIRE(unsetenv("LOCKSTEP_INSTRUCTION_SET") == 0);
}

BOOST_AUTO_TEST_CASE(decoding_equals_the_parallel_form) {
    const auto backend = make_cpu_backend();
    for (const bool mlp : {false, true})
        for (const TttCase& c : {TttCase{mlp, 1, 70, 3, 20, 16}, TttCase{mlp, 1, 40, 2, 64, 16},
                                 TttCase{mlp, 1, 23, 1, 32, 5}, TttCase{mlp, 1, 9, 1, 16, 1}})
            for (const std::vector<std::int64_t>& pieces :
                 {std::vector<std::int64_t>{1}, {7}, {16, 1}, {33, 3, 20}, {5, 11, 32, 1}, {1000}})
                for (const Type type : {Type::fp32, Type::bf16}) compare_decoding(*backend, c, pieces, type);
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
    std::vector<float> no_bias(3);
    backend->step_size_forward(step_tensor, Tensor(logit.data(), Type::fp32, shape),
                               Tensor(no_bias.data(), Type::fp32, {3}), 0.125f);
    backend->step_size_backward(Tensor(dlogit.data(), Type::fp32, shape), Tensor(gradient.data(), Type::fp32, shape),
                                step_tensor, 0.125f);
    for (std::size_t i = 0; i < 9; ++i) {
        const double s = 1 / (1 + std::exp(-static_cast<double>(logit[i])));
        BOOST_TEST(std::abs(static_cast<double>(step[i]) - 0.125 * s) < 1e-7);
        BOOST_TEST(std::abs(static_cast<double>(dlogit[i]) - 2 * 0.125 * s * (1 - s)) < 1e-7);
    }

    std::vector<std::uint16_t> rounded_dlogit(9);
    backend->step_size_backward(Tensor(rounded_dlogit.data(), Type::bf16, shape),
                                Tensor(gradient.data(), Type::fp32, shape), step_tensor, 0.125f);
    for (std::size_t i = 0; i < 9; ++i) BOOST_TEST(rounded_dlogit[i] == bf16_bits(dlogit[i]));

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

// Each kernel's own layout, and no more: 32 chunks in 16 bit; else the states between groups of mini-batches, 12 of 16
// tokens or 16 of one.
BOOST_AUTO_TEST_CASE(a_gpu_saves_what_its_kernel_reads) {
    TttShape shape{false, 3, 2048, 5, 64, 16};
    const std::int64_t pairs = 15, state = 64 * 64 + 64, chunk_state = 64 * 64 / 2 + 64;
    for (const Type type : {Type::bf16, Type::fp16})
        BOOST_TEST(ttt_gpu_saved_count(shape, type) == pairs * 32 * chunk_state);
    BOOST_TEST(ttt_gpu_saved_count(shape, Type::fp32) == pairs * 10 * state);
    shape.mini_batch = 4;
    BOOST_TEST(ttt_gpu_saved_count(shape, Type::bf16) == pairs * 128 * chunk_state);
    shape.mini_batch = 1;
    for (const Type type : {Type::fp32, Type::bf16})
        BOOST_TEST(ttt_gpu_saved_count(shape, type) == pairs * 127 * state);
    shape.mini_batch = 17;
    BOOST_TEST(ttt_gpu_saved_count(shape, Type::bf16) == ttt_gpu_saved_count(shape, Type::fp32));
    shape = {true, 3, 2048, 5, 64, 16};
    BOOST_TEST(ttt_gpu_saved_count(shape, Type::bf16) == pairs * 10 * (8 * 64 * 64 + 5 * 64));
    shape.length = 16;  // nothing to save
    BOOST_TEST(ttt_gpu_saved_count(shape, Type::bf16) == 1);
}

BOOST_AUTO_TEST_CASE(tensors_of_different_types_are_refused) {
    const auto backend = make_cpu_backend();
    const TttProblem p = problem_of({false, 1, 16, 1, 16, 16});
    Problem in(p), halves(p, Type::bf16);
    BOOST_CHECK_THROW(backend->ttt_forward(in.y, Tensor(), in.q, in.k, halves.v, in.step_size, in.token_scale, in.inner,
                                           {}, {}, in.shape),
                      Error);
}
