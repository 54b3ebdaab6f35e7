// Embeddings.
#define BOOST_TEST_MODULE embedding
#include "reference/embedding.hpp"
#include "operations/support.hpp"

using namespace lockstep;
using namespace lockstep::operation_tests;

namespace {

struct Case {
    std::int64_t sequences, length, vocabulary, width;
};
// Around a warp, a tile of 32 ordered rows, and a run of 128 ids; more rows than a block's warps read at once.
const std::vector<Case> cases = {{1, 1, 1, 1},    {1, 31, 5, 8},    {2, 16, 128, 32},  {3, 11, 129, 33},
                                 {1, 97, 127, 7}, {5, 13, 300, 16}, {1, 2311, 260, 4}, {2, 40, 50, 264}};

std::size_t count(std::int64_t a, std::int64_t b) {
    return static_cast<std::size_t>(a * b);
}

std::string text(Type type, const Case& c) {
    return fmt::format("{}, {} × {} rows, {} ids of {}", type_name(type), c.sequences, c.length, c.vocabulary, c.width);
}

// `hot`: one id in so many is the same.
std::vector<int> ids_of(const Case& c, int hot) {
    std::vector<int> ids = random_ids(count(c.sequences, c.length), static_cast<int>(c.vocabulary), "ids");
    for (std::size_t i = 0; hot > 0 && i < ids.size(); ++i)
        if (static_cast<int>(i * 7919 % 100) < hot) ids[i] = static_cast<int>(c.vocabulary / 2);
    return ids;
}

}  // namespace

BOOST_AUTO_TEST_CASE(forward_follows_the_reference) {
    for_each_type([](Type type) {
        for (const Case& c : cases)
            for (const std::int64_t start : {0, 1})  // of the output: aligned, or not
                for (const bool positions : {false, true}) {
                    const std::int64_t rows = c.sequences * c.length, first = positions ? 3 : 0;
                    const std::vector<int> ids = ids_of(c, 0);
                    const Values table = random_rounded(type, count(c.vocabulary, c.width), "table");
                    const Values position =
                        positions ? random_rounded(type, count(c.length + first, c.width), "position") : Values();
                    const OnDevice places(type, {c.length + first, c.width},
                                          positions ? position : Values(count(c.length, c.width)));
                    OnDevice y(type, {rows * c.width + start});
                    y.poison();
                    backend().embedding_forward(y.tensor().slice(start, rows * c.width).reshaped({rows, c.width}),
                                                OnDevice(Type::int32, {rows}, as_values(ids)),
                                                OnDevice(type, {c.vocabulary, c.width}, table), 0,
                                                positions ? places.tensor() : Tensor(), c.length, first);
                    Values actual = y.values();
                    actual.erase(actual.begin(), actual.begin() + start);
                    check_close(actual,
                                reference::embedding_forward(ids, table, position, static_cast<std::size_t>(c.width),
                                                             static_cast<std::size_t>(c.length),
                                                             static_cast<std::size_t>(first)),
                                type, 1, text(type, c));
                }
    });
}

BOOST_AUTO_TEST_CASE(backward_follows_the_reference_and_repeats) {
    for_each_type([](Type type) {
        for (const Case& c : cases)
            for (const int hot : {0, 60, 100})
                for (const bool positions : {false, true}) {
                    if (c.length > 1000 && (positions || type == Type::fp16)) continue;
                    const std::int64_t rows = c.sequences * c.length, start = hot == 60 ? 1 : 0;
                    const std::vector<int> ids = ids_of(c, hot);
                    const OnDevice id(Type::int32, {rows}, as_values(ids));
                    Values all = random_rounded(type, count(rows, c.width) + static_cast<std::size_t>(start), "dy");
                    const OnDevice gradients(type, {rows * c.width + start}, all);
                    const Tensor dy = gradients.tensor().slice(start, rows * c.width).reshaped({rows, c.width});
                    all.erase(all.begin(), all.begin() + start);
                    const Values table = random_rounded(Type::fp32, count(c.vocabulary, c.width), "dtable");
                    const Values position = random_rounded(Type::fp32, count(c.length + 2, c.width), "dposition");
                    Values expected = table, expected_position = positions ? position : Values();
                    reference::embedding_backward(expected, expected_position, ids, all,
                                                  static_cast<std::size_t>(c.width),
                                                  static_cast<std::size_t>(c.length));
                    for_each_order([&] {
                        OnDevice dtable(Type::fp32, {c.vocabulary, c.width}, table),
                            dposition(Type::fp32, {c.length + 2, c.width}, position);
                        backend().embedding_backward(dtable, positions ? dposition.tensor() : Tensor(), id, dy, 0,
                                                     c.length);
                        check_close(dtable.values(), expected, Type::fp32, static_cast<std::size_t>(rows),
                                    text(type, c) + fmt::format(", {} % of one id", hot));
                        check_close(dposition.values(), positions ? expected_position : position, Type::fp32,
                                    static_cast<std::size_t>(c.sequences), text(type, c) + ", position");
                        return std::vector{dtable.bytes(), dposition.bytes()};
                    });
                }
    });
}

BOOST_AUTO_TEST_CASE(ids_outside_the_table_add_nothing) {
    struct Part {
        int first, held;
    };
    for_each_type([](Type type) {
        for (const std::int64_t width : {7, 264})
            for (const Part& part : {Part{0, 300}, {0, 127}, {100, 128}, {171, 129}, {299, 1}, {1000, 5}})
                for (const bool positions : {false, true}) {
                    const Case c{5, 29, part.held, width};
                    // Unaligned: the gradient of positions, or the output and its gradient.
                    const bool skews_positions = positions && part.first == 0;
                    const std::int64_t rows = c.sequences * c.length, start = positions && !skews_positions ? 1 : 0;
                    const std::string what = text(type, c) + fmt::format(" from {}", part.first);
                    std::vector<int> ids = ids_of({c.sequences, c.length, 300, width}, 40);
                    ids[0] = -1;
                    ids[50] = std::numeric_limits<int>::max();
                    const OnDevice id(Type::int32, {rows}, as_values(ids));
                    const auto sizes = [](std::int64_t size) { return static_cast<std::size_t>(size); };
                    const Values table = random_rounded(type, count(part.held, width), "table");
                    const Values position =
                        positions ? random_rounded(type, count(c.length, width), "position") : Values();
                    const OnDevice places(type, {c.length, width},
                                          positions ? position : Values(count(c.length, width)));
                    const Skewed y(type, {rows, width}, start);
                    backend().embedding_forward(y, id, OnDevice(type, {part.held, width}, table), part.first,
                                                positions ? places.tensor() : Tensor(), c.length, 0);
                    check_close(y.values(),
                                reference::embedding_forward(ids, table, position, sizes(width), sizes(c.length), 0,
                                                             part.first),
                                type, 1, what);
                    const Values dy = random_rounded(type, count(rows, width), "dy");
                    const Skewed gradient(type, {rows, width}, start, dy);
                    // A row before and one behind must stay as they are.
                    const Values guarded = random_rounded(Type::fp32, count(part.held + 2, width), "dtable");
                    Values expected(guarded.begin() + width, guarded.end() - width),
                        expected_position(positions ? count(c.length, width) : 0);
                    reference::embedding_backward(expected, expected_position, ids, dy, sizes(width), sizes(c.length),
                                                  part.first);
                    expected.insert(expected.begin(), guarded.begin(), guarded.begin() + width);
                    expected.insert(expected.end(), guarded.end() - width, guarded.end());
                    for_each_order([&] {
                        const OnDevice dtable(Type::fp32, {part.held + 2, width}, guarded);
                        const Skewed dposition(Type::fp32, {c.length, width}, skews_positions ? 1 : 0,
                                               Values(count(c.length, width)));
                        backend().embedding_backward(dtable.tensor().slice(1, part.held),
                                                     positions ? Tensor(dposition) : Tensor(), id, gradient, part.first,
                                                     c.length);
                        check_close(dtable.values(), expected, Type::fp32, sizes(rows), what + " dtable");
                        if (positions)
                            check_close(dposition.values(), expected_position, Type::fp32, sizes(c.sequences),
                                        what + " dposition");
                        return std::vector{dtable.bytes(), dposition.bytes()};
                    });
                }
    });
}
