// Rotary positions.
#define BOOST_TEST_MODULE rotary
#include "reference/rotary.hpp"
#include "operations/support.hpp"

using namespace lockstep;
using namespace lockstep::operation_tests;
using kernels::RotaryPairs;

namespace {

struct Case {
    std::int64_t sequences, length, heads, half, period, first;
};
// Heads that fill packs and ones that do not; rows longer than a warp takes at once; positions that wrap around.
const std::vector<Case> cases = {{1, 1, 1, 1, 1, 0},   {2, 7, 3, 8, 16, 0},  {1, 9, 12, 32, 9, 5},
                                 {1, 5, 20, 64, 7, 3}, {3, 31, 1, 4, 64, 2}, {1, 33, 5, 5, 33, 31},
                                 {2, 3, 2, 6, 4, 1},   {1, 2, 40, 48, 16, 0}};

std::size_t size(std::int64_t value) {
    return static_cast<std::size_t>(value);
}

}  // namespace

BOOST_AUTO_TEST_CASE(both_pairings_follow_the_reference) {
    for_each_type([](Type type) {
        for (const Case& c : cases)
            for (const std::int64_t start : {0, 1})
                for (const auto pairs : {RotaryPairs::interleaved, RotaryPairs::halves})
                    for (const bool inverse : {false, true}) {
                        const std::int64_t rows = c.sequences * c.length, width = c.heads * 2 * c.half;
                        const Values cosine = random_rounded(Type::fp32, size(c.period * c.half), "cosine"),
                                     sine = random_rounded(Type::fp32, size(c.period * c.half), "sine");
                        const Values all = random_rounded(type, size(rows * width + start), "x");
                        const OnDevice x(type, {rows * width + start}, all);
                        backend().rotate(x.tensor().slice(start, rows * width).reshaped({rows, width}),
                                         OnDevice(Type::fp32, {c.period, c.half}, cosine),
                                         OnDevice(Type::fp32, {c.period, c.half}, sine), c.length, c.first, pairs,
                                         inverse);
                        Values actual = x.values();
                        BOOST_TEST((std::equal(all.begin(), all.begin() + start, actual.begin())));
                        actual.erase(actual.begin(), actual.begin() + start);
                        const Values expected = reference::rotate(
                            Values(all.begin() + start, all.end()), cosine, sine, size(width), size(c.half),
                            size(c.length), size(c.first), pairs == RotaryPairs::interleaved, inverse);
                        check_close(actual, expected, type, 2,
                                    fmt::format("{}, {} rows of {} heads of {}, period {}, from {}", type_name(type),
                                                rows, c.heads, 2 * c.half, c.period, start));
                    }
    });
}

BOOST_AUTO_TEST_CASE(rows_may_be_columns_of_a_wider_matrix) {
    for_each_type([](Type type) {
        for (const Case& c : cases)
            for (const std::int64_t before : {8, 1}) {
                const std::int64_t rows = c.sequences * c.length, width = c.heads * 2 * c.half;
                const Values cosine = random_rounded(Type::fp32, size(c.period * c.half), "cosine"),
                             sine = random_rounded(Type::fp32, size(c.period * c.half), "sine"),
                             values = random_rounded(type, size(rows * width), "x");
                const Columns x(type, rows, width, before, 24, values);
                backend().rotate(x, OnDevice(Type::fp32, {c.period, c.half}, cosine),
                                 OnDevice(Type::fp32, {c.period, c.half}, sine), c.length, c.first, RotaryPairs::halves,
                                 false);
                check_close(x.values(),
                            reference::rotate(values, cosine, sine, size(width), size(c.half), size(c.length),
                                              size(c.first), false, false),
                            type, 2,
                            fmt::format("{}, {} rows of {} heads of {}", type_name(type), rows, c.heads, 2 * c.half));
                BOOST_CHECK(x.untouched());
            }
    });
}
