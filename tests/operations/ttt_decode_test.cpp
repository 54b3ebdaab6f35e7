#define BOOST_TEST_MODULE ttt_decode
#include "operations/ttt_support.hpp"

using namespace lockstep;
using namespace lockstep::operation_tests;

namespace {

// The outputs of a sequence decoded in pieces of the given lengths, the last one repeated.
Values decoded(const TttProblem& p, Type type, const std::vector<std::int64_t>& pieces) {
    const TttTensors in(type, p);
    const kernels::TttInner inner = in.inner(p.mlp);
    const auto zeros = [](const OnDevice& like) {
        return OnDevice(Type::fp32, like.tensor().shape(), Values(static_cast<std::size_t>(like.tensor().count())));
    };
    const TttTensors state(Type::fp32, p);  // its learned tensors are the copy that decoding changes
    const OnDevice weight1_sum = zeros(in.weight1), bias1_sum = zeros(in.bias1), weight2_sum = zeros(in.weight2),
                   bias2_sum = zeros(in.bias2);
    const kernels::TttState now = {state.weight1, state.bias1, state.weight2, state.bias2,
                                   weight1_sum,   bias1_sum,   weight2_sum,   bias2_sum};
    OnDevice y(type, in.q.tensor().shape());
    y.poison();
    kernels::TttShape shape = ttt_shape(p);
    const std::int64_t length = shape.length;
    std::int64_t position = 0;
    for (std::size_t piece = 0; position < length; ++piece) {
        shape.length = std::min(pieces[std::min(piece, pieces.size() - 1)], length - position);
        const auto part = [&](const OnDevice& tensor) { return tensor.tensor().slice(position, shape.length); };
        backend().ttt_decode(part(y), now, part(in.q), part(in.k), part(in.v), part(in.step_size), in.token_scale,
                             inner, shape, position);
        position += shape.length;
    }
    return y.values();
}

}  // namespace

BOOST_AUTO_TEST_CASE(decoding_equals_the_parallel_form) {
    for_each_type([](Type type) {
        for (const bool mlp : {false, true})
            for (const TttCase& c : {TttCase{mlp, 1, 35, 3, 8, 16}, TttCase{mlp, 1, 17, 1, 64, 16},
                                     TttCase{mlp, 1, 12, 2, 12, 5}, TttCase{mlp, 1, 3, 1, 96, 1}})
                for (const std::vector<std::int64_t>& pieces : {std::vector<std::int64_t>{1}, {5, 11, 16, 1}, {1000}})
                    BOOST_TEST_CONTEXT(c.text(type) << ", first piece " << pieces[0]) {
                        const TttProblem p = ttt_problem(c, type);
                        // Computed in fp32 from the rounded inputs; the result is rounded once.
                        check_relative(decoded(p, type, pieces), reference::ttt_forward(p),
                                       ttt_tolerance(Type::fp32) + (type == Type::fp32 ? 0 : roundoff(type)), "y");
                    }
    });
}

BOOST_AUTO_TEST_CASE(the_order_of_threads_does_not_change_a_bit) {
    for (const bool mlp : {false, true}) {
        const TttProblem p = ttt_problem({mlp, 1, 9, 2, 12, 4}, Type::bf16);
        for_each_order([&] {
            const Values y = decoded(p, Type::bf16, {4, 1});
            const auto* const bytes = reinterpret_cast<const char*>(y.data());
            return std::vector<std::vector<char>>{{bytes, bytes + y.size() * sizeof(double)}};
        });
    }
}
