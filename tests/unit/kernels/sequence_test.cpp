// Embedding, rotary positions, convolution and cross-entropy.
#define BOOST_TEST_MODULE kernels_sequence
#include "reference/convolution.hpp"
#include "reference/cross_entropy.hpp"
#include "reference/embedding.hpp"
#include "reference/finite_difference.hpp"
#include "reference/rotary.hpp"
#include "unit/kernels/support.hpp"

using namespace lockstep;
using namespace lockstep::kernel_tests;
using kernels::RotaryPairs;

namespace {

std::size_t u(std::int64_t size) {
    return static_cast<std::size_t>(size);
}

struct Rows {
    std::int64_t batch, length, width;
};
const std::vector<Rows> row_cases = {{1, 1, 1},   {1, 1, 64},  {2, 31, 32},  {1, 32, 33}, {3, 33, 31},
                                     {2, 97, 97}, {1, 64, 16}, {4, 5, 1025}, {5, 257, 8}};

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

BOOST_AUTO_TEST_CASE(embedding_agrees_with_the_reference) {
    constexpr int vocabulary = 50, first_position = 3;
    for_each_instruction_set([](kernels::Backend& backend, const std::string& name) {
        for (const auto& c : row_cases)
            for (const bool positions : {false, true}) {
                const std::int64_t rows = c.batch * c.length;
                auto ids = random_ids(u(rows), vocabulary, "ids");
                Floats table = random_floats({vocabulary, c.width}, "table");
                Floats position = random_floats({c.length + first_position, c.width}, "position");
                Floats y({rows, c.width}, 9.0f), dy = random_floats({rows, c.width}, "dy");
                const Tensor place = positions ? position.tensor() : Tensor();
                const Values place_values = positions ? position.values() : Values();
                backend.embedding_forward(y.tensor(), id_tensor(ids), table.tensor(), 0, place, c.length,
                                          first_position);
                check_close(y,
                            reference::embedding_forward(ids, table.values(), place_values, u(c.width), u(c.length),
                                                         first_position),
                            1, name + " embedding");
                Values dtable = table.values(), dposition = place_values;
                reference::embedding_backward(dtable, dposition, ids, dy.values(), u(c.width), u(c.length));
                backend.embedding_backward(table.tensor(), place, id_tensor(ids), dy.tensor(), 0, c.length);
                check_close(table, dtable, u(rows), name + " dtable");
                if (positions) check_close(position, dposition, u(c.batch), name + " dposition");
            }
    });
}

BOOST_AUTO_TEST_CASE(ids_outside_the_table_add_nothing) {
    for_each_instruction_set([](kernels::Backend& backend, const std::string& name) {
        for (const std::int64_t width : {1, 33})
            for (const bool positions : {false, true})
                for (const int first_id : {0, 20, 49}) {
                    const std::int64_t length = 31, rows = 2 * length, held = std::min(17, 50 - first_id);
                    auto ids = random_ids(u(rows), 50, "ids");
                    ids[3] = -1;
                    Floats table = random_floats({held, width}, "table"), y({rows, width}, 9.0f);
                    Floats position = random_floats({length, width}, "position"),
                           dy = random_floats({rows, width}, "dy");
                    const Tensor place = positions ? position.tensor() : Tensor();
                    const Values place_values = positions ? position.values() : Values();
                    backend.embedding_forward(y.tensor(), id_tensor(ids), table.tensor(), first_id, place, length, 0);
                    check_close(y,
                                reference::embedding_forward(ids, table.values(), place_values, u(width), u(length), 0,
                                                             first_id),
                                1, name + " part of an embedding");
                    Values dtable = table.values(), dposition = place_values;
                    reference::embedding_backward(dtable, dposition, ids, dy.values(), u(width), u(length), first_id);
                    backend.embedding_backward(table.tensor(), place, id_tensor(ids), dy.tensor(), first_id, length);
                    check_close(table, dtable, u(rows), name + " dtable of a part");
                    if (positions) check_close(position, dposition, 2, name + " dposition");
                }
    });
}

BOOST_AUTO_TEST_CASE(positions_outside_the_table_are_refused) {
    const auto backend = kernels::make_cpu_backend();
    Floats table({4, 8}), y({2, 8}), position({2, 8});
    std::vector<int> ids = {0, 1};
    BOOST_CHECK_THROW(
        backend->embedding_forward(y.tensor(), id_tensor(ids), table.tensor(), 0, position.tensor(), 2, 1), Error);
}

BOOST_AUTO_TEST_CASE(rotation_agrees_with_the_reference_and_can_be_undone) {
    for_each_instruction_set([](kernels::Backend& backend, const std::string& name) {
        for (const std::int64_t half : {1, 16, 31, 32, 48, 64})
            for (const std::int64_t length : {1, 33})
                for (const std::int64_t period : {16, 50})
                    for (const auto pairs : {RotaryPairs::interleaved, RotaryPairs::halves}) {
                        const std::int64_t width = 3 * 2 * half;
                        Angles angles(period, half);
                        Floats x = random_floats({2 * length, width}, "x");
                        const Values before = x.values();
                        for (const bool inverse : {false, true}) {
                            Floats y = x;
                            backend.rotate(y.tensor(), angles.cosine.tensor(), angles.sine.tensor(), length, 5, pairs,
                                           inverse);
                            check_close(
                                y,
                                reference::rotate(x.values(), angles.cosine.values(), angles.sine.values(), u(width),
                                                  u(half), u(length), 5, pairs == RotaryPairs::interleaved, inverse),
                                2, name + " rotate");
                        }
                        backend.rotate(x.tensor(), angles.cosine.tensor(), angles.sine.tensor(), length, 5, pairs,
                                       false);
                        backend.rotate(x.tensor(), angles.cosine.tensor(), angles.sine.tensor(), length, 5, pairs,
                                       true);
                        check_close(x, before, 4, name + " there and back");
                    }
    });
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

BOOST_AUTO_TEST_CASE(convolution_agrees_with_the_reference) {
    for_each_instruction_set([](kernels::Backend& backend, const std::string& name) {
        for (const auto& c : row_cases)
            for (const std::int64_t taps : {1, 2, 4})
                for (const bool with_history : {false, true}) {
                    const reference::ConvolutionShape shape{u(c.batch), u(c.length), u(c.width), u(taps)};
                    const std::int64_t rows = c.batch * c.length;
                    Floats x = random_floats({rows, c.width}, "x"),
                           weight = random_floats({c.width, 1, taps}, "weight");
                    Floats bias = random_floats({c.width}, "bias"),
                           history = random_floats({c.batch, taps - 1, c.width}, "history");
                    Floats y({rows, c.width}, 9.0f);
                    const bool given = with_history && taps > 1;
                    backend.convolution_forward(y.tensor(), x.tensor(), weight.tensor(), bias.tensor(),
                                                given ? history.tensor() : Tensor(), c.length);
                    check_close(y,
                                reference::convolution_forward(x.values(), weight.values(), bias.values(),
                                                               given ? history.values() : Values(), shape),
                                u(taps), name + " convolution");
                    Floats dy = random_floats({rows, c.width}, "dy"), dx({rows, c.width}, 9.0f);
                    Floats dweight = random_floats({c.width, 1, taps}, "dweight"),
                           dbias = random_floats({c.width}, "dbias");
                    const auto expected =
                        reference::convolution_backward(dy.values(), x.values(), weight.values(), shape);
                    const Values expected_dweight = plus(dweight.values(), expected.dweight);
                    const Values expected_dbias = plus(dbias.values(), expected.dbias);
                    backend.convolution_backward(dx.tensor(), dweight.tensor(), dbias.tensor(), dy.tensor(), x.tensor(),
                                                 weight.tensor(), c.length);
                    check_close(dx, expected.dx, u(taps), name + " convolution dx");
                    check_close(dweight, expected_dweight, u(rows), name + " convolution dweight");
                    check_close(dbias, expected_dbias, u(rows), name + " convolution dbias");
                }
    });
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

BOOST_AUTO_TEST_CASE(cross_entropy_agrees_with_the_reference) {
    for_each_instruction_set([](kernels::Backend& backend, const std::string& name) {
        for (const std::int64_t rows : {1, 31, 32, 33, 97})
            for (const std::int64_t vocabulary : {1, 2, 31, 32, 33, 256, 5003}) {
                Floats logits = random_floats({rows, vocabulary}, "logits", 4), losses({rows}, 9.0f);
                auto targets = random_ids(u(rows), static_cast<int>(vocabulary), "targets");
                if (rows > 3) targets[3] = -1;
                auto expected = reference::cross_entropy(logits.values(), targets);
                const Floats before = logits;
                backend.cross_entropy(losses.tensor(), logits.tensor(), id_tensor(targets), 0.0f, {});
                check_close(losses, expected.losses, u(vocabulary), name + " losses");
                BOOST_TEST(same_bits(logits, before));
                double loss_scale = 8;
                const bool scaled = rows % 2 == 0;
                backend.cross_entropy(losses.tensor(), logits.tensor(), id_tensor(targets), 0.25f,
                                      scaled ? Tensor(&loss_scale, Type::fp64, {1}) : Tensor());
                for (double& value : expected.dlogits) value *= scaled ? 2 : 0.25;
                check_close(losses, expected.losses, u(vocabulary), name + " losses");
                check_close(logits, expected.dlogits, u(vocabulary), name + " dlogits");
            }
    });
}

BOOST_AUTO_TEST_CASE(cross_entropy_takes_large_logits_and_shows_not_a_number) {
    for_each_instruction_set([](kernels::Backend& backend, const std::string& name) {
        Floats logits({4, 40}, -1000.0f), losses({4});
        std::vector<int> targets = {0, 1, 2, -1};
        logits[0] = 1e5f;                                                             // all of the weight
        for (std::size_t i = 41; i < 80; ++i) logits[i] = i < 43 ? 2.0f : -infinity;  // masked vocabulary
        logits[85] = not_a_number;
        logits[125] = not_a_number;  // in a row that is left out
        backend.cross_entropy(losses.tensor(), logits.tensor(), id_tensor(targets), 1.0f, {});
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
    BOOST_CHECK_EXCEPTION(backend->cross_entropy(losses.tensor(), logits.tensor(), id_tensor(targets), 0.0f, {}), Error,
                          [](const Error& error) { return error.code() == ExitCode::fault; });
}

BOOST_AUTO_TEST_CASE(cross_entropy_reference_gradient_agrees_with_finite_differences) {
    const std::vector<int> targets = {3, -1, 0, 6};
    Values logits = random_values(28, "logits");
    const auto loss = [&] {
        double sum = 0;
        for (const double value : reference::cross_entropy(logits, targets).losses) sum += value;
        return sum;
    };
    const Values gradient = reference::cross_entropy(logits, targets).dlogits;
    BOOST_TEST(reference::gradient_error(logits, gradient, loss) <= reference::gradient_tolerance);
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
        backend.convolution_forward(y.tensor(), x.tensor(), weight.tensor(), bias.tensor(), {}, length);
        backend.convolution_backward(dx.tensor(), dweight.tensor(), dbias.tensor(), dy.tensor(), x.tensor(),
                                     weight.tensor(), length);
        backend.embedding_backward(dtable.tensor(), dposition.tensor(), id_tensor(ids), dy.tensor(), 0, length);
        backend.cross_entropy(losses.tensor(), x.tensor(), id_tensor(ids), 0.5f, {});
        return std::vector<Floats>{y, dx, dweight, dbias, dtable, dposition, losses, x};
    });
}
