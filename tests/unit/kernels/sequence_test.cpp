// Embedding, rotary positions, convolution and cross-entropy.
#define BOOST_TEST_MODULE kernels_sequence
#include <numeric>

#include "reference/convolution.hpp"
#include "reference/cross_entropy.hpp"
#include "reference/embedding.hpp"
#include "reference/finite_difference.hpp"
#include "reference/rotary.hpp"
#include "unit/kernels/support.hpp"

using namespace lockstep;
using namespace lockstep::kernel_tests;

namespace {

struct Angles {
    Floats cosine, sine;
    Angles(std::int64_t period, std::int64_t half) : cosine({period, half}), sine({period, half}) {
        const RandomStream stream(3, "angles");
        for (std::size_t i = 0; i < cosine.data.size(); ++i) {
            cosine[i] = static_cast<float>(std::cos(7 * stream.uniform(i)));
            sine[i] = static_cast<float>(std::sin(7 * stream.uniform(i)));
        }
    }
};

}  // namespace

BOOST_AUTO_TEST_CASE(positions_outside_the_table_are_refused) {
    const auto backend = kernels::make_cpu_backend();
    Floats table({4, 8}), y({2, 8}), position({2, 8});
    std::vector<int> ids = {0, 1};
    BOOST_CHECK_THROW(
        backend->embedding_forward(y.tensor(), id_tensor(ids), table.tensor(), 0, position.tensor(), 2, 1), Error);
}

BOOST_AUTO_TEST_CASE(rotating_back_is_the_gradient) {
    Angles angles(7, 3);
    const Values cosine = angles.cosine.values(), sine = angles.sine.values(), dy = random_values(60, "dy");
    for (const bool interleaved : {false, true}) {
        Values x = random_values(60, "x");
        const auto loss = [&] {
            return reference::dot(reference::rotate(x, cosine, sine, 12, 3, 5, 2, interleaved, false), dy);
        };
        const Values dx = reference::rotate(dy, cosine, sine, 12, 3, 5, 2, interleaved, true);
        BOOST_TEST(reference::gradient_error(x, dx, loss) <= reference::gradient_tolerance);
    }
}

BOOST_AUTO_TEST_CASE(convolution_reference_gradients_agree_with_finite_differences) {
    const reference::ConvolutionShape shape{2, 6, 3, 4};
    Values x = random_values(36, "x"), weight = random_values(12, "weight"), bias = random_values(3, "bias");
    const Values dy = random_values(36, "dy");
    const auto loss = [&] { return reference::dot(reference::convolution_forward(x, weight, bias, {}, shape), dy); };
    const auto gradients = reference::convolution_backward(dy, x, weight, shape);
    BOOST_TEST(reference::gradient_error(x, gradients.dx, loss) <= reference::gradient_tolerance);
    BOOST_TEST(reference::gradient_error(weight, gradients.dweight, loss) <= reference::gradient_tolerance);
    BOOST_TEST(reference::gradient_error(bias, gradients.dbias, loss) <= reference::gradient_tolerance);
}

BOOST_AUTO_TEST_CASE(embedding_reference_gradients_agree_with_finite_differences) {
    const std::vector<int> ids = {0, 2, 2, 1, 0, 2};
    Values table = random_values(12, "table"), position = random_values(9, "position");
    const Values dy = random_values(18, "dy");
    const auto loss = [&] { return reference::dot(reference::embedding_forward(ids, table, position, 3, 3, 0), dy); };
    Values dtable(12), dposition(9);
    reference::embedding_backward(dtable, dposition, ids, dy, 3, 3);
    BOOST_TEST(reference::gradient_error(table, dtable, loss) <= reference::gradient_tolerance);
    BOOST_TEST(reference::gradient_error(position, dposition, loss) <= reference::gradient_tolerance);
}

BOOST_AUTO_TEST_CASE(cross_entropy_takes_large_logits_and_shows_not_a_number) {
    for_each_instruction_set([](kernels::Backend& backend, const std::string& name) {
        Floats logits({4, 40}, -1000.0f), losses({4});
        std::vector<int> targets = {0, 1, 2, -1};
        logits[0] = 1e5f;                                                             // all of the weight
        for (std::size_t i = 41; i < 80; ++i) logits[i] = i < 43 ? 2.0f : -infinity;  // masked vocabulary
        logits[85] = not_a_number;
        logits[125] = not_a_number;  // in a row that is left out
        backend.cross_entropy(losses.tensor(), logits.tensor(), id_tensor(targets), {1.0f}, {});
        BOOST_TEST(losses[0] == 0.0f, name);
        BOOST_TEST(std::abs(losses[1] - std::log(2.0f)) < 1e-6f, name);
        BOOST_TEST((logits[79] == 0.0f && std::abs(logits[41] + 0.5f) < 1e-6f), name);
        BOOST_TEST((std::isnan(losses[2]) && losses[3] == 0.0f && logits[125] == 0.0f), name);
    });
}

BOOST_AUTO_TEST_CASE(a_target_beyond_the_vocabulary_is_a_broken_contract) {
    const auto backend = kernels::make_cpu_backend();
    Floats logits({2, 5}), losses({2});
    std::vector<int> targets = {0, 5};
    BOOST_CHECK_EXCEPTION(backend->cross_entropy(losses.tensor(), logits.tensor(), id_tensor(targets), {0.0f}, {}),
                          Error, [](const Error& error) { return error.code() == ExitCode::fault; });
}

BOOST_AUTO_TEST_CASE(cross_entropy_reference_gradient_agrees_with_finite_differences) {
    const std::vector<int> targets = {3, -1, 0, 6};
    Values logits = random_values(28, "logits");
    for (const double z_loss : {0.0, 0.3}) {
        const auto loss = [&] {
            const auto out = reference::cross_entropy(logits, targets, z_loss);
            return std::accumulate(out.losses.begin(), out.losses.end(), 0.0) +
                   std::accumulate(out.z_losses.begin(), out.z_losses.end(), 0.0);
        };
        const Values gradient = reference::cross_entropy(logits, targets, z_loss).dlogits;
        BOOST_TEST(reference::gradient_error(logits, gradient, loss) <= reference::gradient_tolerance);
    }
}

BOOST_AUTO_TEST_CASE(results_do_not_depend_on_the_number_of_threads) {
    check_same_for_any_threads([](kernels::Backend& backend) {
        constexpr std::int64_t length = 501, width = 97, rows = 2 * length, vocabulary = 40;
        Floats x = random_floats({rows, width}, "x"), dy = random_floats({rows, width}, "dy");
        Floats weight = random_floats({width, 1, 4}, "w"), bias = random_floats({width}, "b"), y({rows, width}),
               dx({rows, width});
        Floats dweight({width, 1, 4}), dbias({width}), dtable({vocabulary, width}), dposition({length, width}),
            losses({rows});
        auto ids = random_ids(rows, vocabulary, "ids");
        backend.convolution_forward(y.tensor(), x.tensor(), weight.tensor(), bias.tensor(), {}, length, {});
        backend.convolution_backward(dx.tensor(), dweight.tensor(), dbias.tensor(), dy.tensor(), x.tensor(),
                                     weight.tensor(), length, {}, kernels::Accumulate::no);
        backend.embedding_backward(dtable.tensor(), dposition.tensor(), id_tensor(ids), dy.tensor(), 0, length);
        backend.cross_entropy(losses.tensor(), x.tensor(), id_tensor(ids), {0.5f}, {});
        return std::vector<Floats>{y, dx, dweight, dbias, dtable, dposition, losses, x};
    });
}
