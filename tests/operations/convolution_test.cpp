// The depthwise causal convolution.
#define BOOST_TEST_MODULE convolution
#include "reference/convolution.hpp"
#include "operations/documents.hpp"

using namespace lockstep;
using namespace lockstep::operation_tests;

namespace {

// Lengths around the runs of 16 and 32 tokens; widths around a pack, a warp's columns, and odd ones.
const std::vector<reference::ConvolutionShape> shapes = {
    {1, 1, 1, 4},  {2, 15, 8, 4},  {1, 17, 16, 4}, {3, 31, 33, 4}, {1, 33, 264, 4}, {2, 65, 40, 4},  {1, 97, 7, 4},
    {5, 2, 24, 4}, {2, 20, 16, 1}, {2, 19, 16, 2}, {1, 35, 9, 3},  {2, 33, 16, 5},  {1, 40, 264, 8}, {3, 7, 3, 8}};

std::int64_t i64(std::size_t value) {
    return static_cast<std::int64_t>(value);
}

std::string text(Type type, const reference::ConvolutionShape& s) {
    return fmt::format("{}, {} × {} × {}, {} taps", type_name(type), s.batch, s.length, s.width, s.taps);
}

}  // namespace

BOOST_AUTO_TEST_CASE(forward_follows_the_reference) {
    for_each_type([](Type type) {
        for (const auto& s : shapes)
            for (const std::int64_t start : {0, 1})
                for (const bool with_history : {false, true}) {
                    if (with_history && s.taps == 1) continue;
                    const std::size_t count = s.batch * s.length * s.width;
                    const Values x = random_rounded(type, count, "x");
                    const Values weight = random_rounded(Type::fp32, s.width * s.taps, "weight"),
                                 bias = random_rounded(Type::fp32, s.width, "bias");
                    const Values before =
                        with_history ? random_rounded(type, s.batch * (s.taps - 1) * s.width, "history") : Values();
                    const Shape shape = {i64(s.batch), i64(s.taps) - 1, i64(s.width)};
                    const OnDevice history(type, s.taps > 1 ? shape : Shape{1},
                                           with_history ? before : Values(s.taps > 1 ? element_count(shape) : 1));
                    OnDevice y(type, {i64(count) + start});
                    y.poison();
                    const Shape rows = {i64(s.batch * s.length), i64(s.width)};
                    backend().convolution_forward(y.tensor().slice(start, i64(count)).reshaped(rows),
                                                  OnDevice(type, rows, x),
                                                  OnDevice(Type::fp32, {i64(s.width), 1, i64(s.taps)}, weight),
                                                  OnDevice(Type::fp32, {i64(s.width)}, bias),
                                                  with_history ? history.tensor() : Tensor(), i64(s.length), {});
                    Values actual = y.values();
                    actual.erase(actual.begin(), actual.begin() + start);
                    check_close(actual, reference::convolution_forward(x, weight, bias, before, s), type, s.taps,
                                text(type, s));
                }
    });
}

BOOST_AUTO_TEST_CASE(backward_follows_the_reference_and_repeats) {
    for_each_type([](Type type) {
        for (const auto& s : shapes)
            for (const std::int64_t start : {0, 1}) {
                const std::size_t count = s.batch * s.length * s.width;
                const Shape rows = {i64(s.batch * s.length), i64(s.width)};
                const Values x = random_rounded(type, count, "x"), dy = random_rounded(type, count, "dy");
                const Values weight = random_rounded(Type::fp32, s.width * s.taps, "weight");
                const Values dweight_before = random_rounded(Type::fp32, s.width * s.taps, "dweight"),
                             dbias_before = random_rounded(Type::fp32, s.width, "dbias");
                const auto expected = reference::convolution_backward(dy, x, weight, s);
                const Shape taps = {i64(s.width), 1, i64(s.taps)};
                for_each_order([&] {
                    OnDevice dx(type, {i64(count) + start}), dweight(Type::fp32, taps, dweight_before),
                        dbias(Type::fp32, {i64(s.width)}, dbias_before);
                    dx.poison();
                    backend().convolution_backward(dx.tensor().slice(start, i64(count)).reshaped(rows), dweight, dbias,
                                                   OnDevice(type, rows, dy), OnDevice(type, rows, x),
                                                   OnDevice(Type::fp32, taps, weight), i64(s.length), {},
                                                   kernels::Accumulate::no);
                    Values actual = dx.values();
                    actual.erase(actual.begin(), actual.begin() + start);
                    check_close(actual, expected.dx, type, s.taps, text(type, s) + ", dx");
                    check_close(dweight.values(), plus(dweight_before, expected.dweight), Type::fp32,
                                s.batch * s.length, text(type, s) + ", dweight");
                    check_close(dbias.values(), plus(dbias_before, expected.dbias), Type::fp32, s.batch * s.length,
                                text(type, s) + ", dbias");
                    return std::vector{dx.bytes(), dweight.bytes(), dbias.bytes()};
                });
            }
    });
}

// The input and its gradient are columns of wider matrices.
BOOST_AUTO_TEST_CASE(rows_may_lie_apart_and_gradients_be_added) {
    for_each_type([](Type type) {
        for (const auto& s : shapes)
            for (const std::int64_t beside : {8, 3}) {
                const std::size_t count = s.batch * s.length * s.width;
                const std::int64_t rows = i64(s.batch * s.length), width = i64(s.width);
                const Values x = random_rounded(type, count, "x"), dy = random_rounded(type, count, "dy"),
                             dx_before = random_rounded(type, count, "dx");
                const Values weight = random_rounded(Type::fp32, s.width * s.taps, "weight"),
                             bias = random_rounded(Type::fp32, s.width, "bias");
                const Shape taps = {width, 1, i64(s.taps)};
                const OnDevice weights(Type::fp32, taps, weight);
                const Columns input(type, rows, width, 0, beside, x);
                OnDevice y(type, {rows, width});
                y.poison();
                backend().convolution_forward(y, input, weights, OnDevice(Type::fp32, {width}, bias), {}, i64(s.length),
                                              {});
                check_close(y.values(), reference::convolution_forward(x, weight, bias, {}, s), type, s.taps,
                            text(type, s));
                const auto expected = reference::convolution_backward(dy, x, weight, s);
                const OnDevice dweight(Type::fp32, taps, Values(s.width * s.taps)),
                    dbias(Type::fp32, {width}, Values(s.width));
                for (const bool adds : {false, true}) {
                    const Columns dx(type, rows, width, beside, 8, dx_before);
                    backend().convolution_backward(dx, dweight, dbias, OnDevice(type, {rows, width}, dy), input,
                                                   weights, i64(s.length), {},
                                                   adds ? kernels::Accumulate::yes : kernels::Accumulate::no);
                    check_close(dx.values(), adds ? plus(dx_before, expected.dx) : expected.dx, type, s.taps,
                                text(type, s) + (adds ? ", dx added" : ", dx"));
                    BOOST_CHECK(dx.untouched());
                }
                check_close(dweight.values(), plus(expected.dweight, expected.dweight), Type::fp32,
                            2 * s.batch * s.length, text(type, s) + ", dweight");
            }
    });
}

// Documents of all lengths around the taps and the runs, cut anywhere, in sequences that begin with the third position
// of theirs; what lies before that is the history.
BOOST_AUTO_TEST_CASE(documents_do_not_see_each_other) {
    for_each_type([](Type type) {
        for (const std::size_t taps : {std::size_t{4}, std::size_t{2}, std::size_t{8}})
            for (const std::size_t width : {std::size_t{16}, std::size_t{33}}) {
                const PackedDocuments documents({{5, 1, 1, 2, 3, 20, 31, 12}, {3, 16, 32, 24}, {1, 2, 2, 62, 8}});
                const std::int64_t first = 3, length = 70;
                reference::ConvolutionShape s{3, 70, width, taps};
                s.documents = documents.begins(first, length, first - i64(taps) + 1);
                const std::size_t count = s.batch * s.length * s.width;
                const Shape rows = {i64(s.batch * s.length), i64(width)}, of_weight = {i64(width), 1, i64(taps)};
                const Values x = random_rounded(type, count, "x"), dy = random_rounded(type, count, "dy"),
                             weight = random_rounded(Type::fp32, width * taps, "weight"),
                             bias = random_rounded(Type::fp32, width, "bias"),
                             before = random_rounded(type, s.batch * (taps - 1) * width, "history");
                const OnDevice history(type, {i64(s.batch), i64(taps) - 1, i64(width)}, before), input(type, rows, x),
                    weights(Type::fp32, of_weight, weight);
                OnDevice y(type, rows);
                y.poison();
                backend().convolution_forward(y, input, weights, OnDevice(Type::fp32, {i64(width)}, bias), history,
                                              length, documents.from(first));
                check_close(y.values(), reference::convolution_forward(x, weight, bias, before, s), type, taps,
                            text(type, s) + ", y");
                const auto expected = reference::convolution_backward(dy, x, weight, s);
                const Values dx_before = random_rounded(type, count, "dx");
                for (const bool adds : {false, true}) {
                    const OnDevice dx(type, rows, dx_before), dweight(Type::fp32, of_weight, Values(width * taps)),
                        dbias(Type::fp32, {i64(width)}, Values(width));
                    backend().convolution_backward(dx, dweight, dbias, OnDevice(type, rows, dy), input, weights, length,
                                                   documents.from(first),
                                                   adds ? kernels::Accumulate::yes : kernels::Accumulate::no);
                    check_close(dx.values(), adds ? plus(dx_before, expected.dx) : expected.dx, type, taps,
                                text(type, s) + ", dx");
                    check_close(dweight.values(), expected.dweight, Type::fp32, s.batch * s.length,
                                text(type, s) + ", dweight");
                    check_close(dbias.values(), expected.dbias, Type::fp32, s.batch * s.length,
                                text(type, s) + ", dbias");
                }
            }
    });
}
