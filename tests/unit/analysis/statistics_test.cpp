// Medians, rank-based intervals and the bootstrap, on numbers that can be checked by hand.
#define BOOST_TEST_MODULE statistics
#include "analysis/metrics/statistics.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <numeric>

#include "base/random.hpp"

using namespace lockstep;
using namespace lockstep::analysis;

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();
const auto nearly = boost::test_tools::tolerance(1e-12);

// 1, 2 … n, in an order that is not sorted: n must not be a multiple of 7.
std::vector<double> ranks_of(std::size_t n) {
    std::vector<double> numbers;
    for (std::size_t i = 0; i < n; ++i) numbers.push_back(static_cast<double>(i * 7 % n + 1));
    return numbers;
}

double median_of_first(const Groups& groups) {
    return median(groups[0]);
}

// Exponentially distributed, so skewed; the median is ln 2.
std::vector<double> skewed(std::uint64_t seed, std::size_t count) {
    const RandomStream stream(seed, "statistics test");
    std::vector<double> samples;
    for (std::size_t i = 0; i < count; ++i) samples.push_back(-std::log(1 - stream.uniform(i)));
    return samples;
}

// Each sample is 0.8 of the one before and something of its own.
std::vector<double> correlated(std::uint64_t seed, std::size_t count) {
    const RandomStream stream(seed, "statistics test");
    std::vector<double> samples = {10 + stream.normal(0) / 0.6};
    while (samples.size() < count) samples.push_back(10 + 0.8 * (samples.back() - 10) + stream.normal(samples.size()));
    return samples;
}

}  // namespace

BOOST_AUTO_TEST_CASE(medians_means_and_quantiles) {
    BOOST_TEST(median({3, 1, 2}) == 2.0);
    BOOST_TEST(median({4, 1, 3, 2}) == 2.5);
    BOOST_TEST(median({5}) == 5.0);
    BOOST_TEST(median({unknown, 7, infinite}) == 7.0);
    BOOST_TEST(std::isnan(median({})));
    BOOST_TEST(std::isnan(median({unknown, -infinite})));
    BOOST_TEST(mean({1, 2, unknown, 6}) == 3.0);
    BOOST_TEST(std::isnan(mean({})));
    BOOST_TEST(quantile({10, 20, 30}, 0) == 10.0);
    BOOST_TEST(quantile({30, 20, 10}, 1) == 30.0);
    BOOST_TEST(quantile({30, 10, 20}, 0.25) == 15.0);
    BOOST_TEST(quantile({1, unknown, 2}, 0.9) == 1.9, nearly);
    BOOST_TEST(std::isnan(quantile({}, 0.5)));
}

BOOST_AUTO_TEST_CASE(rates_have_a_harmonic_mean) {
    // The same work once at 30 and once at 60 a second takes 1/30 + 1/60 = 1/20 s: 2 ÷ (1/20) = 40 a second.
    BOOST_TEST(harmonic_mean({30, 60}) == 40.0, nearly);
    BOOST_TEST(harmonic_mean({30, unknown, 60, infinite}) == 40.0, nearly);
    BOOST_TEST(harmonic_mean({5}) == 5.0, nearly);
    BOOST_TEST(std::isnan(harmonic_mean({})));
    BOOST_TEST(std::isnan(harmonic_mean({30, 0})));
    BOOST_TEST(std::isnan(harmonic_mean({30, -60})));
}

// From the table of the binomial distribution with p = 1/2: the largest k with 2·P(at most k − 1) ≤ 5 %.
BOOST_AUTO_TEST_CASE(intervals_of_medians_are_those_of_the_binomial_table) {
    struct Expected {
        std::size_t samples, low, high;
    };
    for (const Expected expected : {Expected{6, 1, 6},
                                    {8, 1, 8},
                                    {9, 2, 8},
                                    {10, 2, 9},
                                    {11, 2, 10},
                                    {12, 3, 10},
                                    {15, 4, 12},
                                    {17, 5, 13},
                                    {20, 6, 15},
                                    {25, 8, 18},
                                    {30, 10, 21},
                                    {50, 18, 33},
                                    {100, 40, 61}}) {
        const Interval interval = median_interval(ranks_of(expected.samples));
        BOOST_TEST(interval.low == static_cast<double>(expected.low), "of " << expected.samples << " samples");
        BOOST_TEST(interval.high == static_cast<double>(expected.high), "of " << expected.samples << " samples");
    }
    // Of very many: n/2 ∓ 1.96·√n/2.
    const Interval many = median_interval(ranks_of(1000000));
    BOOST_TEST(std::abs(many.low - 499020) <= 1);
    BOOST_TEST(std::abs(many.high - 500981) <= 1);
}

BOOST_AUTO_TEST_CASE(fewer_than_six_samples_have_no_interval) {
    BOOST_TEST(!median_interval({}).known());
    BOOST_TEST(!median_interval({1, 2, 3, 4, 5}).known());
    BOOST_TEST(!median_interval({1, 2, 3, 4, 5, unknown}).known());
    BOOST_TEST(median_interval({1, 2, 3, 4, 5, 6, unknown}).high == 6.0);
    BOOST_TEST(!bootstrap_interval({{1, 2, 3, 4, 5, unknown}}, median_of_first, 1).known());
    BOOST_TEST(!bootstrap_interval({ranks_of(20), {1, 2}}, median_of_first, 1).known());
    BOOST_TEST(!bootstrap_interval({}, median_of_first, 1).known());
}

BOOST_AUTO_TEST_CASE(the_bootstrap_repeats_itself) {
    const Groups groups = {skewed(1, 40)};
    for (const Resample resample : {Resample::single, Resample::blocks}) {
        const Interval first = bootstrap_interval(groups, median_of_first, 5, resample);
        const Interval again = bootstrap_interval(groups, median_of_first, 5, resample);
        BOOST_TEST(first.low == again.low);
        BOOST_TEST(first.high == again.high);
        BOOST_TEST(first.low < first.high);
        const Interval other = bootstrap_interval(groups, median_of_first, 6, resample);
        BOOST_TEST((other.low != first.low || other.high != first.high));
    }
}

BOOST_AUTO_TEST_CASE(the_bootstrap_of_constants_is_the_constant) {
    const Interval interval = bootstrap_interval({std::vector<double>(10, 3.0)}, median_of_first, 1);
    BOOST_TEST(interval.low == 3.0);
    BOOST_TEST(interval.high == 3.0);
}

BOOST_AUTO_TEST_CASE(resamples_draw_every_group_by_itself_and_keep_its_size) {
    const Groups groups = {{1, 2, 3, 4, 5, 6, 7, unknown}, {11, 12, 13, 14, 15, 16}};
    const auto one_of = [](double value, const std::vector<double>& group) {
        return std::find(group.begin(), group.end(), value) != group.end();
    };
    int resamples = 0;
    const auto intervals = bootstrap_intervals(
        groups, 2,
        [&](const Groups& drawn) {
            ++resamples;
            BOOST_REQUIRE(drawn.size() == 2u);
            BOOST_REQUIRE(drawn[0].size() == 7u);
            BOOST_REQUIRE(drawn[1].size() == 6u);
            for (std::size_t g = 0; g < 2; ++g)
                for (const double value : drawn[g]) BOOST_REQUIRE(one_of(value, groups[g]));
            return std::vector<double>{mean(drawn[0]), mean(drawn[1])};
        },
        1, Resample::single, 200);
    BOOST_TEST(resamples == 200);
    BOOST_TEST((intervals[0].low < 4 && 4 < intervals[0].high));
    BOOST_TEST((intervals[1].low < 13.5 && 13.5 < intervals[1].high));
}

BOOST_AUTO_TEST_CASE(blocks_are_runs_of_neighbours) {
    BOOST_TEST(block_length(0) == 1u);
    BOOST_TEST(block_length(7) == 1u);
    BOOST_TEST(block_length(8) == 2u);
    BOOST_TEST(block_length(64) == 4u);
    BOOST_TEST(block_length(1000) == 10u);
    std::vector<double> numbers(64);
    std::iota(numbers.begin(), numbers.end(), 0.0);
    const auto neighbours = [](const Groups& drawn) {
        BOOST_REQUIRE(drawn[0].size() == 64u);
        for (std::size_t i = 0; i < 64; ++i)
            if (i % 4 != 0) BOOST_REQUIRE(drawn[0][i] == drawn[0][i - 1] + 1);
        return 0.0;
    };
    bootstrap_interval({numbers}, neighbours, 1, Resample::blocks, 50);
}

BOOST_AUTO_TEST_CASE(statistics_that_are_not_finite_are_left_out) {
    int call = 0;
    const auto every_third = [&](const Groups&) { return ++call % 3 == 0 ? unknown : 2.0; };
    BOOST_TEST(bootstrap_interval({ranks_of(10)}, every_third, 1).high == 2.0);
    const auto two_of_three = [&](const Groups&) { return ++call % 3 != 0 ? unknown : 2.0; };
    BOOST_TEST(!bootstrap_interval({ranks_of(10)}, two_of_three, 1).known());
}

BOOST_AUTO_TEST_CASE(intervals_hold_the_truth_about_as_often_as_they_say) {
    int by_ranks = 0, by_bootstrap = 0;
    for (std::uint64_t set = 0; set < 200; ++set) {
        const std::vector<double> samples = skewed(set, 30);
        const auto holds = [](const Interval& interval) {
            return interval.low <= std::log(2.0) && std::log(2.0) <= interval.high;
        };
        by_ranks += holds(median_interval(samples)) ? 1 : 0;
        by_bootstrap += holds(bootstrap_interval({samples}, median_of_first, set)) ? 1 : 0;
    }
    BOOST_TEST((180 <= by_ranks && by_ranks <= 199), by_ranks << " of 200 by ranks");
    BOOST_TEST((180 <= by_bootstrap && by_bootstrap <= 198), by_bootstrap << " of 200 by the bootstrap");
}

BOOST_AUTO_TEST_CASE(very_many_samples_get_fewer_resamples) {
    BOOST_TEST(enough_resamples(0) == 1000);
    BOOST_TEST(enough_resamples(20000) == 1000);
    BOOST_TEST(enough_resamples(40000) == 500);
    BOOST_TEST(enough_resamples(100000000) == 200);
}

BOOST_AUTO_TEST_CASE(blocks_see_that_neighbours_resemble_each_other) {
    double single = 0, blocks = 0;
    for (std::uint64_t set = 0; set < 20; ++set) {
        const Groups groups = {correlated(set, 500)};
        const auto width = [&](Resample resample) {
            const Interval interval = bootstrap_interval(groups, median_of_first, set, resample, 300);
            return interval.high - interval.low;
        };
        single += width(Resample::single);
        blocks += width(Resample::blocks);
    }
    BOOST_TEST(blocks > 1.3 * single);
}
