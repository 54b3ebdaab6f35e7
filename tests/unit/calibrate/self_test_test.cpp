// What the self-test makes of the rates it has measured.
#define BOOST_TEST_MODULE self_test
#include <boost/test/unit_test.hpp>

#include "calibrate/rates.hpp"

using namespace lockstep;
using namespace lockstep::calibrate;

namespace {

constexpr double long_enough = 0.05;  // seconds, for every kind

std::vector<std::string> hosts_of(std::size_t ranks) {
    std::vector<std::string> hosts;
    for (std::size_t rank = 0; rank < ranks; ++rank) hosts.push_back("n" + std::to_string(rank / 2));
    return hosts;
}

// One kind, as each rank has measured it.
RateTable table_of(RateKind kind, const std::vector<double>& rates, const config::Grid& shape = {},
                   double seconds = long_enough) {
    std::vector<RankRates> of_ranks(rates.size());
    for (std::size_t rank = 0; rank < rates.size(); ++rank) of_ranks[rank][kind] = {rates[rank], 0, seconds};
    return make_table(of_ranks, hosts_of(rates.size()), shape);
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

LaunchRates launch(RateKind kind, const std::vector<double>& rates, double seconds = long_enough) {
    LaunchRates all = summarize(table_of(kind, rates, {}, seconds));
    all.time = "2026-01-31T12:00:00Z";
    all.device = "a processor";
    all.precision = "fp32";
    return all;
}

}  // namespace

BOOST_AUTO_TEST_CASE(groups_are_those_of_the_grid) {
    const config::Grid shape{2, 1, 2, 3};  // tensor, context, data, pipeline
    BOOST_TEST(measured_together(tensor_reduction, 5, shape) == (std::vector<int>{4, 5}));
    BOOST_TEST(measured_together(replica_reduction, 5, shape) == (std::vector<int>{5, 7}));
    BOOST_TEST(measured_together(model_reduction, 0, shape) == (std::vector<int>{0, 1, 4, 5, 8, 9}));
    BOOST_TEST(measured_together(activation_messages, 5, shape) == (std::vector<int>{1, 5, 9}));
    BOOST_TEST(measured_together(end_reduction, 9, shape) == (std::vector<int>{1, 9}));
    BOOST_TEST(measured_together(end_reduction, 5, shape) == (std::vector<int>{5}));
    BOOST_TEST(measured_together(product_rate, 5, shape) == (std::vector<int>{5}));
    const RateTable table = table_of(tensor_reduction, std::vector<double>(12, 1e9), shape);
    BOOST_TEST(table.groups[tensor_reduction].size() == 6u);
    BOOST_TEST(table.groups[replica_reduction].empty());
}

BOOST_AUTO_TEST_CASE(a_slow_rank_is_named_with_its_host) {
    const auto sentences = slow_ones(table_of(product_rate, {60e9, 61e9, 58e9, 20e9}));
    BOOST_TEST_REQUIRE(sentences.size() == 1u);
    BOOST_TEST(sentences[0] ==
               "rank 3 (host n1): matrix products at 20.0 GFLOP/s, 33 % of the median of 4 ranks (60.0 GFLOP/s); check "
               "its node: clock, temperature, other jobs");
}

BOOST_AUTO_TEST_CASE(ranks_that_are_alike_are_not_named) {
    BOOST_TEST(slow_ones(table_of(product_rate, {60e9, 61e9, 45e9, 62e9})).empty());
    BOOST_TEST(slow_ones(table_of(product_rate, {60e9})).empty());
}

BOOST_AUTO_TEST_CASE(of_two_the_faster_one_is_the_median) {
    const auto sentences = slow_ones(table_of(product_rate, {20e9, 60e9}));
    BOOST_TEST_REQUIRE(sentences.size() == 1u);
    BOOST_TEST(contains(sentences[0], "rank 0 (host n0)"));
}

BOOST_AUTO_TEST_CASE(a_slow_group_is_named_with_its_ranks) {
    const config::Grid shape{2, 1, 3, 1};
    const auto sentences = slow_ones(table_of(replica_reduction, {2e9, 1e8, 2e9, 1e8, 2e9, 1e8}, shape));
    BOOST_TEST_REQUIRE(sentences.size() == 1u);
    BOOST_TEST(
        contains(sentences[0], "ranks 1, 3, 5 (hosts n0, n1, n2): all-reduce of replicas at 100.0 MB/s, 5 % of"));
    BOOST_TEST(contains(sentences[0], "2 such groups (2.0 GB/s)"));
}

BOOST_AUTO_TEST_CASE(what_took_too_short_is_not_compared) {
    const config::Grid shape{1, 1, 1, 1};
    BOOST_TEST(slow_ones(table_of(folder_rate, {8e8, 1e8}, shape, 1e-3)).empty());
    BOOST_TEST(slow_ones(table_of(folder_rate, {8e8, 1e8}, shape, 0.03)).size() == 1u);
}

BOOST_AUTO_TEST_CASE(many_slow_ones_take_few_lines) {
    std::vector<double> rates(100, 60e9);
    for (std::size_t rank = 0; rank < 20; ++rank) rates[rank] = 1e9;
    const auto sentences = slow_ones(table_of(product_rate, rates));
    BOOST_TEST_REQUIRE(sentences.size() == 9u);
    BOOST_TEST(contains(sentences.back(), "12 more"));
}

BOOST_AUTO_TEST_CASE(one_line_has_median_and_lowest) {
    std::vector<RankRates> of_ranks(2);
    for (std::size_t rank = 0; rank < 2; ++rank) {
        of_ranks[rank][product_rate] = {rank == 0 ? 61e9 : 58e9, 0, long_enough};
        of_ranks[rank][replica_reduction] = {1.9e9, 12e-6, long_enough};
    }
    of_ranks[0][folder_rate] = {4.1e8, 0, long_enough};
    config::Grid shape;
    shape.data = 2;
    BOOST_TEST(rates_text(make_table(of_ranks, hosts_of(2), shape)) ==
               "matrix products 61.0 GFLOP/s per rank (lowest 58.0 GFLOP/s); all-reduce of replicas 1.9 GB/s, 12 us; "
               "checkpoint folder 410.0 MB/s");
}

BOOST_AUTO_TEST_CASE(the_better_of_two_measurements_is_kept) {
    MeasuredRate best;
    keep_best(best, {5, 0, 1});
    keep_best(best, {3, 2e-6, 0.5});
    keep_best(best, {7, 3e-6, 2});
    BOOST_TEST(best.per_second == 7);
    BOOST_TEST(best.seconds == 2);
    BOOST_TEST(best.latency == 2e-6);
}

BOOST_AUTO_TEST_CASE(a_file_gives_back_what_it_was_given) {
    LaunchRates rates = launch(product_rate, {60e9, 50e9, 55e9});
    rates.kinds[replica_reduction] = {2e9, 1e9, 12e-6, 1e-3, 2, 4};
    const auto read = rates_from_json(to_json(rates));
    BOOST_TEST_REQUIRE(read.has_value());
    BOOST_TEST(read->ranks == 3);
    BOOST_TEST(read->hosts == rates.hosts);
    BOOST_TEST(read->time == rates.time);
    BOOST_TEST(read->device == rates.device);
    BOOST_TEST(read->precision == "fp32");
    BOOST_TEST(read->kinds[product_rate].median == 55e9);
    BOOST_TEST(read->kinds[product_rate].lowest == 50e9);
    BOOST_TEST(read->kinds[product_rate].groups == 3);
    BOOST_TEST(read->kinds[replica_reduction].latency == 12e-6);
    BOOST_TEST(read->kinds[replica_reduction].ranks == 2);
    BOOST_TEST(read->kinds[folder_rate].groups == 0);
}

BOOST_AUTO_TEST_CASE(a_file_that_makes_no_sense_is_nothing) {
    const std::string whole = to_json(launch(product_rate, {60e9}));
    for (const std::string& text : {std::string(), std::string("{}"), std::string("[1, 2"), std::string("7"),
                                    whole.substr(0, whole.size() / 2), std::string(R"({"time": 3})")})
        BOOST_TEST(!rates_from_json(text).has_value(), text);
    std::string wrong_type = whole;
    wrong_type.replace(wrong_type.find("\"median\": "), 10, "\"median\": \"x\", \"m\": ");
    BOOST_TEST(!rates_from_json(wrong_type).has_value());
}

BOOST_AUTO_TEST_CASE(far_below_the_launch_before_is_said) {
    const LaunchRates before = launch(product_rate, {60e9, 60e9});
    const auto sentences = slower_than_before(launch(product_rate, {30e9, 30e9}), before);
    BOOST_TEST_REQUIRE(sentences.size() == 1u);
    BOOST_TEST(contains(sentences[0],
                        "matrix products: 30.0 GFLOP/s, 50 % of the 60.0 GFLOP/s at the launch of "
                        "2026-01-31T12:00:00Z"));
    BOOST_TEST(slower_than_before(launch(product_rate, {40e9, 40e9}), before).empty());
    BOOST_TEST(slower_than_before(launch(product_rate, {90e9, 90e9}), before).empty());
}

BOOST_AUTO_TEST_CASE(only_like_launches_are_compared) {
    const LaunchRates before = launch(product_rate, {60e9, 60e9});
    BOOST_TEST(slower_than_before(launch(product_rate, {10e9}), before).empty());
    LaunchRates now = launch(product_rate, {10e9, 10e9});
    BOOST_TEST(slower_than_before(now, before).size() == 1u);
    now.device = "another processor";
    BOOST_TEST(slower_than_before(now, before).empty());
    now.device = before.device;
    now.precision = "bf16";
    BOOST_TEST(slower_than_before(now, before).empty());
    // A folder so fast that its time means little.
    BOOST_TEST(slower_than_before(launch(folder_rate, {1e8}, 1e-3), launch(folder_rate, {8e8})).empty());
    BOOST_TEST(slower_than_before(launch(folder_rate, {1e8}), launch(folder_rate, {8e8})).size() == 1u);
    // Another grid: the groups are other ones.
    LaunchRates other = before;
    other.kinds[product_rate].ranks = 2;
    BOOST_TEST(slower_than_before(launch(product_rate, {10e9, 10e9}), other).empty());
}
