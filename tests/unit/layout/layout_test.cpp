// How a run is laid out: process grids, pieces of the model, batches.
#define BOOST_TEST_MODULE layout
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <numeric>
#include <set>

#include "base/random.hpp"
#include "cluster/process_grid.hpp"
#include "layout/batch_plan.hpp"
#include "layout/even_cut.hpp"
#include "layout/run_layout.hpp"
#include "unit/layout/small_run.hpp"

using namespace lockstep;
using namespace lockstep::layout;

namespace {

std::string sentence_of(const std::function<void()>& work) {
    try {
        work();
    } catch (const Error& error) {
        BOOST_TEST(static_cast<int>(error.code()) == 2);
        return error.what();
    }
    return "";
}

}  // namespace

BOOST_AUTO_TEST_CASE(ranks_have_places_and_groups) {
    const config::Grid shape{2, 3, 2, 2};
    std::set<std::vector<int>> tensor, replicas;
    for (int rank = 0; rank < shape.ranks(); ++rank) {
        const cluster::GridPlace place = cluster::grid_place(rank, shape);
        BOOST_TEST(cluster::grid_rank(place, shape) == rank);
        tensor.insert(cluster::ranks_along(rank, shape, {cluster::Axis::tensor}));
        replicas.insert(cluster::ranks_along(rank, shape, {cluster::Axis::data, cluster::Axis::context}));
        const auto own = cluster::ranks_along(rank, shape, {cluster::Axis::data, cluster::Axis::context});
        BOOST_TEST(own[static_cast<std::size_t>(place.replica(shape))] == rank);
    }
    BOOST_TEST(tensor.size() == 12u);   // neighbours, two by two
    BOOST_TEST(replicas.size() == 4u);  // one group for each tensor rank and stage
    BOOST_TEST((cluster::ranks_along(5, shape, {cluster::Axis::tensor}) == std::vector<int>{4, 5}));
}

BOOST_AUTO_TEST_CASE(grids_follow_the_description_or_are_refused_with_others) {
    config::RunDescription description = small();
    description.parallel.tensor = 2;
    const config::Grid grid = choose_grid(description, 8);
    BOOST_TEST((grid.tensor == 2 && grid.data == 4 && grid.pipeline == 1 && grid.context == 1));
    description.parallel.tensor = 3;
    BOOST_TEST(
        sentence_of([&] { choose_grid(description, 6); }) ==
        "parallel.tensor = 3 does not divide model.heads = 4; possible with 6 ranks: data 3 x tensor 2 x pipeline 1, "
        "or data 6 x tensor 1 x pipeline 1, or data 1 x tensor 2 x pipeline 3");
    description.parallel.tensor = 1;
    BOOST_TEST(sentence_of([&] {
                   choose_grid(description, 7);
               }).find("12 sequences, which do not divide evenly among 7") != std::string::npos);
    BOOST_TEST(sentence_of([&] { choose_grid(description, 11); }).find("no grid of 11 ranks is possible") !=
               std::string::npos);
    description.parallel.context = 2;
    description.batch.length = 20;
    BOOST_TEST(sentence_of([&] { choose_grid(description, 2); }).find("whole mini-batches") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(the_most_ranks_that_a_grid_can_have) {
    config::RunDescription description = small();
    description.parallel.data = 0;  // "auto": 12 sequences divide among 1, 2, 3, 4, 6 or 12
    for (const auto& [limit, ranks] : {std::pair{100, 12}, {12, 12}, {11, 6}, {5, 4}, {1, 1}, {0, 0}})
        BOOST_TEST(most_ranks(description, limit) == ranks);
    description.parallel.tensor = 2;
    BOOST_TEST(most_ranks(description, 11) == 8);
    BOOST_TEST(most_ranks(description, 1) == 0);
    description.parallel.data = 3;
    BOOST_TEST(most_ranks(description, 11) == 6);
    BOOST_TEST(most_ranks(description, 5) == 0);
    description.parallel.data = 5;
    BOOST_TEST(most_ranks(description, 100) == 0);
}

BOOST_AUTO_TEST_CASE(pieces_are_whole_blocks_of_even_work) {
    config::RunDescription description = small();
    auto& model = description.model;
    const auto counts = [&](std::int64_t pieces) {
        std::vector<std::int64_t> list;
        std::int64_t next = 0;
        for (const auto& range : cut_model(model, 32, pieces)) {
            BOOST_TEST(range.first_block == next);
            next = range.last_block;
            list.push_back(range.last_block - range.first_block);
        }
        BOOST_TEST(next == model.layers);
        return list;
    };
    BOOST_TEST((counts(1) == std::vector<std::int64_t>{6}));
    BOOST_TEST((counts(6) == std::vector<std::int64_t>{1, 1, 1, 1, 1, 1}));
    model.vocabulary = 5000;  // a head that is the work of many of these blocks
    BOOST_TEST((counts(2) == std::vector<std::int64_t>{5, 1}));
    BOOST_TEST((counts(3) == std::vector<std::int64_t>{2, 3, 1}));  // the embedding is work, too
    model.vocabulary = 8;
    BOOST_TEST((counts(2) == std::vector<std::int64_t>{3, 3}));
    BOOST_TEST((counts(3) == std::vector<std::int64_t>{2, 2, 2}));
}

// Attention at a long context is the work of many blocks of TTT.
BOOST_AUTO_TEST_CASE(pieces_of_hybrids_weigh_each_block) {
    config::RunDescription description = small();
    auto& model = description.model;
    model.mixers = {"attention", "ttt-linear", "ttt-linear", "ttt-linear", "ttt-linear", "ttt-linear"};
    model.context = 8192;
    const auto counts = [&](std::int64_t length, std::int64_t pieces) {
        std::vector<std::int64_t> list;
        for (const auto& range : cut_model(model, length, pieces)) list.push_back(range.last_block - range.first_block);
        return list;
    };
    BOOST_TEST((counts(32, 2) == std::vector<std::int64_t>{3, 3}));
    BOOST_TEST((counts(8192, 2) == std::vector<std::int64_t>{1, 5}));
    BOOST_TEST((counts(8192, 3) == std::vector<std::int64_t>{1, 3, 2}));  // the head is work, too
    model.mixers = {"ttt-linear", "ttt-linear", "attention"};
    BOOST_TEST((counts(8192, 2) == std::vector<std::int64_t>{3, 3}));
    BOOST_TEST((counts(8192, 6) == std::vector<std::int64_t>{1, 1, 1, 1, 1, 1}));
}

namespace {

double heaviest(const std::vector<double>& items, const std::vector<std::int64_t>& counts, double first, double last) {
    double most = 0;
    std::size_t item = 0;
    for (std::size_t piece = 0; piece < counts.size(); ++piece) {
        double work = (piece == 0 ? first : 0) + (piece + 1 == counts.size() ? last : 0);
        for (std::int64_t i = 0; i < counts[piece]; ++i) work += items.at(item++);
        most = std::max(most, work);
    }
    BOOST_TEST(item == items.size());
    return most;
}

// The least that any cut of the items from `begin` on has.
double least_heaviest(const std::vector<double>& items, std::size_t begin, std::int64_t pieces, double first,
                      double last) {
    double work = first, least = INFINITY;
    const auto count = static_cast<std::int64_t>(items.size() - begin);
    for (std::int64_t taken = 1; taken <= count - pieces + 1; ++taken) {
        work += items[begin + static_cast<std::size_t>(taken) - 1];
        if (pieces > 1)
            least = std::min(least, std::max(work, least_heaviest(items, begin + static_cast<std::size_t>(taken),
                                                                  pieces - 1, 0, last)));
        else if (taken == count)
            least = work + last;
    }
    return least;
}

}  // namespace

BOOST_AUTO_TEST_CASE(no_cut_has_a_lighter_heaviest_piece) {
    const RandomStream random(7, "cuts");
    std::uint64_t drawn = 0;
    for (int repeat = 0; repeat < 300; ++repeat) {
        std::vector<double> items;
        for (std::int64_t left = 1 + static_cast<std::int64_t>(random.bits(drawn++) % 10); left > 0; --left)
            items.push_back(random.bits(drawn++) % 3 == 0 ? 10 : 1 + static_cast<double>(random.bits(drawn++) % 4));
        const double first = static_cast<double>(random.bits(drawn++) % 8),
                     last = static_cast<double>(random.bits(drawn++) % 30);
        for (std::int64_t pieces = 1; pieces <= static_cast<std::int64_t>(items.size()); ++pieces) {
            const auto counts = cut_evenly(items, pieces, first, last);
            BOOST_TEST_REQUIRE(counts.size() == static_cast<std::size_t>(pieces));
            BOOST_TEST(*std::min_element(counts.begin(), counts.end()) >= 1);
            BOOST_TEST(heaviest(items, counts, first, last) == least_heaviest(items, 0, pieces, first, last),
                       boost::test_tools::tolerance(1e-12));
        }
    }
}

// Equal items go one by one to the piece with the least work.
BOOST_AUTO_TEST_CASE(equal_items_are_dealt_out) {
    for (const double item : {1.0, 0.1, 7.3})
        for (const double first : {0.0, 0.3, 2.0})
            for (const double last : {0.0, 0.7, 5.0})
                for (const std::int64_t count : {1, 5, 24, 97})
                    for (const std::int64_t pieces : {1, 2, 3, 5, 8, 24}) {
                        if (pieces > count) continue;
                        std::vector<double> work(static_cast<std::size_t>(pieces), item);
                        std::vector<std::int64_t> dealt(work.size(), 1);
                        work.front() += first;
                        work.back() += last;
                        for (std::int64_t left = count - pieces; left > 0; --left) {
                            // The first of those with the least but for rounding.
                            const double least = *std::min_element(work.begin(), work.end());
                            std::size_t at = 0;
                            while (work[at] > least * (1 + 1e-9)) ++at;
                            work[at] += item;
                            ++dealt[at];
                        }
                        const std::vector<double> items(static_cast<std::size_t>(count), item);
                        BOOST_TEST(cut_evenly(items, pieces, first, last) == dealt, boost::test_tools::per_element());
                    }
}

BOOST_AUTO_TEST_CASE(batches_grow_with_the_samples) {
    config::BatchSection batch;
    batch.global = 32;
    batch.length = 16;
    batch.ramp = config::BatchRamp{8, 8, 96};
    BOOST_TEST((batch_sizes(batch) == std::vector<std::int64_t>{8, 16, 24, 32}));
    BOOST_TEST(batch_after(batch, 0) == 8);
    BOOST_TEST(batch_after(batch, 31) == 8);
    BOOST_TEST(batch_after(batch, 32) == 16);
    BOOST_TEST(batch_after(batch, 95) == 24);
    BOOST_TEST(batch_after(batch, 96) == 32);
    // 8 8 8 8, 16 16, 24 24, then 32 each.
    BOOST_TEST(steps_for(batch, 32) == 4);
    BOOST_TEST(steps_for(batch, 32 + 32 + 48 + 320) == 18);
    BOOST_TEST(micro_batch_size(batch, {2}, 1, 1 << 20) == 4);
    BOOST_TEST(micro_batch_size(batch, {2}, 2, 1 << 20) == 2);
    BOOST_TEST(micro_batch_size(batch, {1}, 1, 3 * 16) == 2);      // three would fit, but do not divide 8
    BOOST_TEST(micro_batch_size(batch, {1}, 1, 1 << 20, 4) == 2);  // four micro-batches of the smallest
    batch.micro = 4;
    BOOST_TEST(sentence_of([&] { micro_batch_size(batch, {4}, 1, 1); }).find("which batch.micro = 4 does not divide") !=
               std::string::npos);
    BOOST_TEST(sentence_of([&] { micro_batch_size(batch, {3}, 1, 1); }).find("do not divide evenly among 3 replicas") !=
               std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_validation_takes_a_tenth_of_the_training) {
    config::ValidationSection validation;
    const auto batches = [&](std::int64_t every) {
        validation.every = every;
        return layout::validation_batches(validation, 1000);
    };
    // Forward passes of so many batches, over three times the FLOP of `every` batches.
    for (const std::int64_t every : {1, 5, 100})
        BOOST_TEST(batches(every) / (3 * static_cast<double>(every)) == 0.1, boost::test_tools::tolerance(1e-12));
    BOOST_TEST(batches(0) == 300);  // at the end only
    BOOST_TEST(batches(5000) == 300);
    validation.batches = 4;
    BOOST_TEST(batches(1) == 4);
    validation.batches = 0;
    BOOST_TEST(batches(1) == 0);
}
