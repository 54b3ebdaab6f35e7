// Dropout.
#define BOOST_TEST_MODULE dropout
#include "reference/dropout.hpp"
#include "base/random.hpp"
#include "operations/support.hpp"

using namespace lockstep;
using namespace lockstep::operation_tests;
using kernels::Accumulate;

namespace {

constexpr std::uint64_t layer = 0x9ABCDEF012345678;

struct Case {
    std::int64_t rows, columns, first_column;
    double probability;
};
// Columns that fill a thread's 8 and ones that do not, from an aligned column of the layer's input on and from another
// one; more than a block of threads and more than the CPU's 128 take at once.
const std::vector<Case> cases = {{1, 1, 0, 0.5},      {3, 8, 0, 0.1},      {5, 8, 8, 0.9},
                                 {4, 24, 4, 0.3},     {7, 130, 0, 0.05},   {2, 61, 67, 0.25},
                                 {3, 2056, 128, 0.5}, {2, 2051, 3, 0.001}, {3, 40, 16, 0}};

struct Tokens {
    explicit Tokens(std::int64_t rows) : memory(Type::int32, {rows, 2}) {
        const RandomStream stream(5, "tokens");
        Values words;
        for (std::int64_t row = 0; row < rows; ++row) {
            bits.push_back(stream.bits(static_cast<std::uint64_t>(row)));
            for (const int shift : {0, 32})
                words.push_back(static_cast<std::int32_t>(static_cast<std::uint32_t>(bits.back() >> shift)));
        }
        memory.set(words);
    }
    std::vector<std::uint64_t> bits;
    OnDevice memory;
};

kernels::Dropout dropout_of(const Case& c, const Tokens& tokens) {
    return {tokens.memory, layer, c.first_column, static_cast<float>(c.probability)};
}

}  // namespace

BOOST_AUTO_TEST_CASE(what_is_left_is_that_of_the_reference) {
    for_each_type([](Type type) {
        for (const Case& c : cases)
            for (const std::int64_t before : {8, 1})
                for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
                    const auto count = static_cast<std::size_t>(c.rows * c.columns);
                    const Tokens tokens(c.rows);
                    const Values x = random_rounded(type, count, "x"), sum = random_rounded(type, count, "y");
                    const Columns in(type, c.rows, c.columns, before, 24, x);
                    const Columns out = accumulate == Accumulate::yes ? Columns(type, c.rows, c.columns, 8, before, sum)
                                                                      : Columns(type, c.rows, c.columns, 8, before);
                    backend().dropout(out, in, dropout_of(c, tokens), accumulate);
                    const Values left = reference::dropout(x, tokens.bits, layer, c.first_column, c.probability);
                    check_close(out.values(), accumulate == Accumulate::yes ? plus(sum, left) : left, type, 1,
                                fmt::format("{}, {} rows of {} columns from {}", type_name(type), c.rows, c.columns,
                                            c.first_column));
                    BOOST_CHECK(in.untouched() && out.untouched());
                }
    });
}

BOOST_AUTO_TEST_CASE(what_is_cleared_is_exactly_zero_and_may_be_cleared_in_place) {
    for_each_type([](Type type) {
        const Case c = {9, 200, 0, 0.4};
        const Tokens tokens(c.rows);
        const Values x(static_cast<std::size_t>(c.rows * c.columns), 3);
        const OnDevice values(type, {c.rows, c.columns}, x);
        backend().dropout(values, values, dropout_of(c, tokens), Accumulate::no);
        const Values left = reference::dropout(x, tokens.bits, layer, 0, c.probability), found = values.values();
        for (std::size_t i = 0; i < x.size(); ++i) BOOST_TEST((found[i] == 0) == (left[i] == 0));
    });
}

// A share of the elements within 5 standard deviations, and another one in each row, column and layer.
BOOST_AUTO_TEST_CASE(as_many_are_cleared_as_should_be) {
    const Case c = {64, 512, 0, 0.2};
    const Tokens tokens(c.rows);
    const auto count = static_cast<std::size_t>(c.rows * c.columns);
    const OnDevice x(Type::fp32, {c.rows, c.columns}, Values(count, 1)), y(Type::fp32, {c.rows, c.columns});
    const auto cleared = [&](std::uint64_t number) {
        kernels::Dropout dropout = dropout_of(c, tokens);
        dropout.layer = number;
        backend().dropout(y, x, dropout, Accumulate::no);
        return y.values();
    };
    const Values first = cleared(1), second = cleared(2);
    double zeros = 0, both = 0;
    for (std::size_t i = 0; i < count; ++i) {
        zeros += first[i] == 0 ? 1 : 0;
        both += first[i] == 0 && second[i] == 0 ? 1 : 0;
    }
    const auto all = static_cast<double>(count);
    BOOST_TEST(std::abs(zeros - 0.2 * all) < 5 * std::sqrt(0.2 * 0.8 * all));
    BOOST_TEST(std::abs(both - 0.04 * all) < 5 * std::sqrt(0.04 * 0.96 * all));
    for (std::int64_t line = 0; line < 64; ++line) {
        double in_row = 0, in_column = 0;
        for (std::int64_t i = 0; i < c.columns; ++i) in_row += first[static_cast<std::size_t>(line * c.columns + i)];
        for (std::int64_t i = 0; i < c.rows; ++i) in_column += first[static_cast<std::size_t>(i * c.columns + line)];
        BOOST_TEST(std::abs(in_row - 512) < 5 * std::sqrt(512 * 0.25));
        BOOST_TEST(std::abs(in_column - 64) < 5 * std::sqrt(64 * 0.25));
    }
}
