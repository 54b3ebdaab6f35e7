// The geometry of spread tensors, against maps of single elements.
#define BOOST_TEST_MODULE spread
#include "checkpoint/spread.hpp"

#include <boost/test/unit_test.hpp>
#include <numeric>
#include <set>

#include "base/random.hpp"
#include "checkpoint/holdings.hpp"
#include "spread_fixture.hpp"

using namespace lockstep;
using namespace lockstep::checkpoint;
using lockstep::checkpoint_tests::elements_of_part;
using lockstep::checkpoint_tests::Part;

namespace {

const std::vector<Shape> shapes = {{1}, {7}, {5, 3}, {3, 1}, {1, 6}, {4, 3, 2}, {2, 5, 1, 3}, {3, 4, 2, 2}};

SliceRange slice_range(const Shape& shape, const Part& part) {
    return checkpoint::slice_range(shape, part.axis, part.offset, part.extent, part.first, part.count);
}

class Dice {
  public:
    explicit Dice(std::uint64_t seed) : stream_(seed, "spread") {}
    // One of [0, count).
    std::int64_t operator()(std::int64_t count) {
        return static_cast<std::int64_t>(stream_.bits(next_++) % static_cast<std::uint64_t>(count));
    }

  private:
    RandomStream stream_;
    std::uint64_t next_ = 0;
};

Part some_part(const Shape& shape, Dice& dice) {
    Part part;
    part.axis = static_cast<int>(dice(std::min<std::int64_t>(2, std::ssize(shape))));
    const std::int64_t size = shape[static_cast<std::size_t>(part.axis)];
    part.offset = dice(size);
    part.extent = 1 + dice(size - part.offset);
    if (dice(3) == 0) {
        part.offset = 0;
        part.extent = size;
    }
    const std::int64_t slice = element_count(shape) / size * part.extent;
    part.first = dice(2) == 0 ? 0 : dice(slice);
    part.count = dice(2) == 0 ? slice - part.first : dice(slice - part.first + 1);
    return part;
}

// Every slice of axes 0 and 1 of the shape, and every run of elements of it.
template <class Check>
void for_each_part(const Shape& shape, Check&& check) {
    for (int axis = 0; axis < std::min<int>(2, static_cast<int>(shape.size())); ++axis) {
        const std::int64_t size = shape[static_cast<std::size_t>(axis)];
        for (std::int64_t offset = 0; offset < size; ++offset)
            for (std::int64_t extent = 1; offset + extent <= size; ++extent) {
                const std::int64_t slice = element_count(shape) / size * extent;
                for (std::int64_t first = 0; first < slice; ++first)
                    for (std::int64_t count = 1; first + count <= slice; ++count)
                        check(Part{axis, offset, extent, first, count});
            }
    }
}

}  // namespace

BOOST_AUTO_TEST_CASE(elements_of_a_piece_lie_where_a_map_says) {
    for (const Shape& shape : shapes) {
        std::int64_t wrong = 0;
        for_each_part(shape, [&](const Part& part) {
            const auto expected = elements_of_part(shape, part);
            const SliceRange piece = slice_range(shape, part);
            wrong += piece.count != std::ssize(expected);
            for (std::int64_t i = 0; i < part.count; ++i) {
                const auto at = static_cast<std::size_t>(i);
                wrong += element_of_tensor(piece, i) != expected[at];
                // As long as possible, and no longer.
                std::size_t run = 1;
                while (at + run < expected.size() && expected[at + run] == expected[at + run - 1] + 1) ++run;
                wrong += run_length(piece, i, part.count) > static_cast<std::int64_t>(run);
                wrong += run_length(piece, i, part.count) < 1;
                if (i == 0) wrong += run_length(piece, i, part.count) != static_cast<std::int64_t>(run);
            }
            for (std::int64_t element = 0; element <= element_count(shape); ++element)
                wrong += elements_before(piece, element) !=
                         std::lower_bound(expected.begin(), expected.end(), element) - expected.begin();
        });
        BOOST_TEST(wrong == 0, "shape " << shape_text(shape));
    }
}

// Otherwise ranks that hold the same would not count as holders of one piece.
BOOST_AUTO_TEST_CASE(pieces_that_are_the_same_run_are_equal) {
    const Shape shape = {4, 6, 2};
    BOOST_TEST((slice_range(shape, {0, 0, 4, 0, 48}) == slice_range(shape, {1, 0, 6, 0, 48})));
    BOOST_TEST((slice_range(shape, {0, 1, 2, 0, 24}) == slice_range(shape, {0, 0, 4, 12, 24})));
    BOOST_TEST((slice_range(shape, {0, 1, 2, 3, 5}) == slice_range(shape, {1, 0, 6, 15, 5})));
    BOOST_TEST((slice_range(shape, {1, 2, 3, 0, 6}) == slice_range(shape, {1, 0, 6, 4, 6})));
    BOOST_TEST(!(slice_range(shape, {1, 2, 3, 0, 7}) == slice_range(shape, {1, 2, 3, 0, 6})));
    BOOST_TEST((slice_range(shape, {1, 2, 0, 0, 0}) == SliceRange{}));
    BOOST_CHECK_THROW(slice_range(shape, {1, 5, 2, 0, 1}), Error);
    BOOST_CHECK_THROW(slice_range(shape, {0, 1, 2, 20, 5}), Error);
    BOOST_CHECK_THROW(slice_range(shape, {3, 0, 1, 0, 1}), Error);
}

BOOST_AUTO_TEST_CASE(every_element_comes_from_a_rank_that_holds_it) {
    std::int64_t several = 0, holes = 0;
    for (std::uint64_t seed = 0; seed < 3000; ++seed) {
        Dice dice(seed);
        const Shape& shape = shapes[static_cast<std::size_t>(dice(std::ssize(shapes)))];
        const int ranks = static_cast<int>(1 + dice(5));
        Spread spread;
        std::vector<std::set<int>> holders(static_cast<std::size_t>(element_count(shape)));
        std::map<std::pair<int, int>, std::vector<std::int64_t>> elements_of_entry;
        for (int rank = 0; rank < ranks; ++rank) {
            const std::int64_t entries = dice(3);
            for (int entry = 0; entry < entries; ++entry) {
                const Part part = some_part(shape, dice);
                spread.add(slice_range(shape, part), {rank, entry});
                elements_of_entry[{rank, entry}] = elements_of_part(shape, part);
                for (const auto element : elements_of_entry[{rank, entry}])
                    holders[static_cast<std::size_t>(element)].insert(rank);
            }
        }
        const std::int64_t first = dice(element_count(shape)), last = first + 1 + dice(element_count(shape) - first);
        const int owner = static_cast<int>(dice(ranks + 1));
        std::int64_t next = first, wrong = 0;
        const auto is_hole = [&](std::int64_t from, std::int64_t to) {
            for (; from < to; ++from) {
                ++holes;
                if (!holders[static_cast<std::size_t>(from)].empty()) return false;
            }
            return true;
        };
        for (const Segment& segment : sources(spread, first, last, owner)) {
            wrong += segment.first < next || segment.count < 1 || !is_hole(next, segment.first);
            const auto& elements = elements_of_entry[{segment.holder.rank, segment.holder.entry}];
            for (std::int64_t i = 0; i < segment.count; ++i) {
                const std::int64_t element = segment.first + i;
                wrong += elements.at(static_cast<std::size_t>(segment.from + i)) != element;
                const auto& of_element = holders[static_cast<std::size_t>(element)];
                several += of_element.size() > 1;
                if (of_element.contains(owner))
                    wrong += segment.holder.rank != owner;
                else
                    wrong += !of_element.contains(segment.holder.rank);
            }
            next = segment.first + segment.count;
        }
        wrong += next > last || !is_hole(next, last);
        BOOST_TEST(wrong == 0, "seed " << seed);
    }
    BOOST_TEST(several > 1000);
    BOOST_TEST(holes > 1000);
}

BOOST_AUTO_TEST_CASE(neighbours_of_one_holder_are_one_segment) {
    const Shape shape = {6, 4};
    Spread spread;
    spread.add(slice_range(shape, {0, 0, 6, 0, 24}), {0, 7});
    spread.add(slice_range(shape, {1, 1, 2, 0, 12}), {1, 3});
    BOOST_TEST((sources(spread, 3, 21, 0) == std::vector<Segment>{{3, 18, {0, 7}, 3}}));
    BOOST_TEST((sources(spread, 4, 11, 1) ==
                std::vector<Segment>{{4, 1, {0, 7}, 4}, {5, 2, {1, 3}, 2}, {7, 2, {0, 7}, 7}, {9, 2, {1, 3}, 4}}));
}

// Every holder serves as many owners as any other.
BOOST_AUTO_TEST_CASE(owners_are_divided_among_holders) {
    const Shape shape = {6, 4};
    Spread spread;
    for (const int rank : {2, 3, 7}) spread.add(slice_range(shape, {0, 0, 6, 0, 24}), {rank, 0});
    for (const int rank : {4, 6}) spread.add(slice_range(shape, {0, 0, 3, 0, 12}), {rank, 1});
    std::map<int, int> served;
    for (int owner = 100; owner < 150; ++owner) ++served[sources(spread, 0, 12, owner).at(0).holder.rank];
    BOOST_TEST((served == std::map<int, int>{{2, 10}, {3, 10}, {4, 10}, {6, 10}, {7, 10}}));
}

BOOST_AUTO_TEST_CASE(holders_are_those_that_were_added) {
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
        Dice dice(seed);
        Holders holders;
        std::vector<Holder> expected;
        for (int rank = 0; rank < 40;) {
            const int entry = static_cast<int>(dice(2)), step = static_cast<int>(1 + dice(2));
            const std::int64_t count = 1 + dice(5);
            for (std::int64_t i = 0; i < count; ++i, rank += step) expected.push_back({rank, entry});
            if (dice(3) == 0) expected.push_back({expected.back().rank, 2});
        }
        for (const Holder& holder : expected) holders.add(holder);
        std::vector<Holder> all, by_number, by_rank;
        holders.each([&](const Holder& holder) { all.push_back(holder); });
        for (std::int64_t i = 0; i < holders.count(); ++i) by_number.push_back(holders.at(i));
        for (int rank = 0; rank <= expected.back().rank + 1; ++rank)
            holders.each_entry_of(rank, [&](int entry) { by_rank.push_back({rank, entry}); });
        BOOST_TEST((all == expected), "seed " << seed);
        BOOST_TEST((by_number == expected), "seed " << seed);
        BOOST_TEST((by_rank == expected), "seed " << seed);
    }
}

BOOST_AUTO_TEST_CASE(a_share_is_cut_into_rounds) {
    Layout layout;
    layout.block_bytes = 40 * sizeof(float);
    for (const std::int64_t elements : {100, 3, 1, 40, 85})
        layout.places.push_back({"", {elements}, static_cast<std::uint64_t>(elements) * sizeof(float), 0, 0});
    for (const int ranks : {1, 2, 3, 4, 50})
        for (const std::int64_t most : {1, 7, 39, 40, 41, 80, 1000}) {
            std::vector<std::int64_t> next(layout.places.size(), 0);
            for (int rank = 0; rank < ranks; ++rank) {
                const auto share = share_of_blocks(layout, rank, ranks);
                const auto spans = cut_into_rounds(share, most);
                std::vector<std::int64_t> used;
                for (const Span& span : spans) {
                    const auto round = static_cast<std::size_t>(span.round);
                    BOOST_TEST((round == used.size() || round + 1 == used.size()));
                    used.resize(round + 1);
                    used[round] += span.count;
                    BOOST_TEST(span.place == share[span.block].place);
                    BOOST_TEST(span.first == next[span.place]);
                    next[span.place] += span.count;
                    // Blocks are cut only where they are larger than a round.
                    if (most >= 40) BOOST_TEST(span.count == static_cast<std::int64_t>(share[span.block].bytes / 4));
                }
                std::size_t found = 0;
                for (int round = 0; round < static_cast<int>(used.size()); ++round) {
                    BOOST_TEST(used[static_cast<std::size_t>(round)] <= most);
                    for (const Span& span : spans_of_round(spans, round)) {
                        BOOST_TEST(&span == &spans[found]);
                        BOOST_TEST(span.round == round);
                        ++found;
                    }
                }
                BOOST_TEST(found == spans.size());
            }
            for (std::size_t place = 0; place < next.size(); ++place)
                BOOST_TEST(next[place] == layout.places[place].shape[0]);
        }
    BOOST_TEST(elements_a_round(1) == 16 << 20);
    BOOST_TEST(elements_a_round(16) == 1 << 20);
    BOOST_TEST(elements_a_round(1 << 20) > 0);
    for (const int ranks : {1, 3, 1000, 1024}) BOOST_TEST(ranks * elements_a_round(ranks) <= elements_in_flight);
}

BOOST_AUTO_TEST_CASE(what_ranks_say_of_their_entries_is_understood) {
    const std::vector<Place> places = {{"a", {300, 200}, 240000, 0, 0}, {"b", {5}, 20, 0, 0}, {"c", {2, 2}, 16, 0, 0}};
    std::vector<float> memory(60000);
    const auto entry = [&](std::string path, Shape shape, const Part& part) {
        return Entry{std::move(path),
                     std::move(shape),
                     part.axis,
                     part.offset,
                     part.extent,
                     part.first,
                     part.count > 0 ? Tensor(memory.data(), Type::fp32, {part.count}) : Tensor()};
    };
    const std::vector<std::vector<Entry>> ranks = {
        {entry("b", {5}, {0, 0, 5, 0, 5}), entry("a", {300, 200}, {1, 3, 150, 129, 40000})},
        {},
        {entry("z", {7}, {0, 0, 7, 0, 7}), entry("a", {300, 200}, {1, 0, 200, 0, 60000}),
         entry("b", {5}, {0, 0, 5, 0, 0}), entry("b", {5}, {0, 0, 5, 0, 5})},
        {entry("c", {2, 2}, {0, 1, 1, 0, 0}), entry("b", {1, 70000}, {0, 0, 1, 0, 5}),
         entry("y", {1}, {0, 0, 1, 0, 1})},
        {entry("b", {5, 5}, {0, 0, 1, 0, 5})}};
    lockstep::cluster::DistinctTexts all;
    const auto tell = [&](const std::vector<Entry>& entries) {
        all.of_rank.emplace_back();
        for (const std::string& text : holdings_to_texts(places, entries)) {
            all.of_rank.back().push_back(static_cast<std::uint32_t>(all.texts.size()));
            all.texts.push_back(text);
        }
    };
    for (const auto& entries : ranks) tell(entries);
    const Holdings holdings = holdings_from_texts(places, all);
    const auto holders_of = [&](std::size_t place, std::size_t held) {
        std::vector<Holder> holders;
        holdings.spreads[place].all()[held].holders.each([&](const Holder& holder) { holders.push_back(holder); });
        return holders;
    };
    BOOST_TEST((holdings.named == std::vector<bool>{true, true, true}));
    BOOST_TEST((holdings.not_there == std::vector<std::string>{"z", "y"}));
    BOOST_TEST((holdings.other_shapes == std::map<std::size_t, Shape>{{1, {1, 70000}}}));
    const auto& of_a = holdings.spreads[0].all();
    BOOST_REQUIRE(of_a.size() == 2u);
    BOOST_TEST((of_a[0].piece == slice_range({300, 200}, {0, 0, 300, 0, 60000})));
    BOOST_TEST((holders_of(0, 0) == std::vector<Holder>{{2, 1}}));
    BOOST_TEST((of_a[1].piece == slice_range({300, 200}, {1, 3, 150, 129, 40000})));
    BOOST_TEST((holders_of(0, 1) == std::vector<Holder>{{0, 1}}));
    BOOST_REQUIRE(holdings.spreads[1].all().size() == 1u);
    BOOST_TEST((holders_of(1, 0) == std::vector<Holder>{{0, 0}, {2, 3}}));
    BOOST_TEST(holdings.spreads[2].all().empty());
    all.texts[1].pop_back();
    BOOST_CHECK_THROW(holdings_from_texts(places, all), Error);
}

// Of a model's 700 entries all, none, or slices and pieces of ZeRO: what comes back is what slice_range says.
BOOST_AUTO_TEST_CASE(long_lists_of_entries_are_understood) {
    std::vector<Place> places;
    for (int place = 0; place < 700; ++place) places.push_back({"t" + std::to_string(place), {6, 4}, 96, 0, 0});
    std::vector<float> memory(24);
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        Dice dice(seed);
        std::vector<Entry> entries;
        std::vector<std::size_t> place_of;
        while (entries.size() < 600 + seed) {
            const bool pieces = dice(2) == 0;
            const std::int64_t kind = dice(3), count = 1 + dice(200);
            for (std::int64_t i = 0; i < count; ++i) {
                Part part = pieces ? some_part({6, 4}, dice) : Part{0, 0, 6, 0, kind == 0 ? 0 : 24};
                place_of.push_back(static_cast<std::size_t>(dice(700)));
                entries.push_back({places[place_of.back()].path,
                                   {6, 4},
                                   part.axis,
                                   part.offset,
                                   part.extent,
                                   part.first,
                                   part.count > 0 ? Tensor(memory.data(), Type::fp32, {part.count}) : Tensor()});
            }
        }
        lockstep::cluster::DistinctTexts all;
        all.texts = holdings_to_texts(places, entries);
        all.of_rank.emplace_back(all.texts.size());
        std::iota(all.of_rank[0].begin(), all.of_rank[0].end(), 0U);
        const Holdings holdings = holdings_from_texts(places, all);
        std::vector<Spread> expected(places.size());
        for (std::size_t i = 0; i < entries.size(); ++i)
            expected[place_of[i]].add(checkpoint::slice_range(entries[i]), {0, static_cast<int>(i)});
        for (std::size_t place = 0; place < places.size(); ++place) {
            const auto texts = [](const Spread& spread) {
                std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t, int>> list;
                for (const Held& held : spread.all())
                    held.holders.each([&](const Holder& holder) {
                        list.emplace_back(held.piece.first, held.piece.start, held.piece.count, holder.entry);
                    });
                return list;
            };
            BOOST_TEST((texts(holdings.spreads[place]) == texts(expected[place])), "seed " << seed);
        }
    }
}
