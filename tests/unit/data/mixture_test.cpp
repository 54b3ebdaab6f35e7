#define BOOST_TEST_MODULE data_mixture
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "data/dataset.hpp"
#include "data/mixture_order.hpp"
#include "unit/data/temporary_folder.hpp"

using namespace lockstep;
using namespace lockstep::data;

namespace {

// Largest difference between a source's count and its share before any of the samples [first, first + samples).
double worst_difference(const std::vector<double>& weights, std::int64_t first, std::int64_t samples) {
    const MixtureOrder order(weights);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    std::vector<std::int64_t> counts = order.counts_before(first);
    double worst = 0;
    for (std::int64_t i = first; i < first + samples; ++i) {
        for (std::size_t k = 0; k < weights.size(); ++k) {
            // In long double: 2^40 samples times a share keep their fraction.
            const long double share =
                static_cast<long double>(i) * static_cast<long double>(weights[k]) / static_cast<long double>(sum);
            worst = std::max(worst, std::abs(static_cast<double>(static_cast<long double>(counts[k]) - share)));
        }
        const MixtureOrder::Place place = order(i);
        BOOST_REQUIRE(place.number == counts[place.source]++);
    }
    const std::vector<std::int64_t> end = order.counts_before(first + samples);
    BOOST_TEST(counts == end, boost::test_tools::per_element());
    return worst;
}

// `count` windows of 4 tokens; the first token says which. With the last target, unless another file follows.
std::string numbered_windows(const TemporaryFolder& folder, const std::string& name, std::uint16_t first,
                             std::uint16_t count, bool last = true) {
    std::vector<std::uint16_t> tokens;
    for (std::uint16_t i = 0; i < count; ++i)
        tokens.insert(tokens.end(), {static_cast<std::uint16_t>(first + i), 0, 0, 0});
    if (last) tokens.push_back(0);
    return folder.write(name, as_uint16(tokens));
}

std::int32_t window_of(const Dataset& dataset, std::int64_t sample) {
    std::vector<std::int32_t> inputs(4), targets(4);
    dataset.fetch(sample, inputs.data(), targets.data());
    return inputs[0];
}

struct TwoSources {
    TemporaryFolder folder;
    DatasetOptions options;
    TwoSources() {
        options.mixture = {
            {{numbered_windows(folder, "a.bin", 0, 30)}, 3},
            {{numbered_windows(folder, "b.bin", 1000, 7, false), numbered_windows(folder, "c.bin", 2000, 3)}, 1}};
        options.length = 4;
    }
};

}  // namespace

BOOST_AUTO_TEST_CASE(shares_are_right_before_every_sample) {
    BOOST_TEST(worst_difference({1}, 0, 100) == 0);
    BOOST_TEST(worst_difference({1, 1}, 0, 1000) <= 0.5);
    BOOST_TEST(worst_difference({0.7, 0.3}, 0, 10000) <= 0.5 + 1e-9);
    BOOST_TEST(worst_difference({0.5, 0.3, 0.2}, 0, 10000) < 1);
    BOOST_TEST(worst_difference({1e-9, 1e9}, 0, 1000) < 1);
    BOOST_TEST(worst_difference({0.4, 0.25, 0.15, 0.1, 0.06, 0.03, 0.01}, 0, 20000) < 1.5);
    BOOST_TEST(worst_difference({0.4, 0.25, 0.15, 0.1, 0.06, 0.03, 0.01}, std::int64_t{1} << 40, 20000) < 1.5);
    BOOST_TEST(worst_difference(std::vector<double>(64, 1.0), 0, 5000) < 1.5);
    // With shares that binary numbers have exactly, at any sample.
    BOOST_TEST(worst_difference({4, 2, 1, 1}, (std::int64_t{1} << 60) + 12345, 20000) < 1.5);
    BOOST_TEST(worst_difference({3, 1}, (std::int64_t{1} << 61) + 1, 20000) <= 0.5);
    std::mt19937 random(3);
    for (int i = 0; i < 300; ++i) {
        std::vector<double> weights(2 + random() % 12);
        for (double& weight : weights)
            weight = i % 2 == 0 ? static_cast<double>(1 + random() % 1000)
                                : std::exp(std::normal_distribution<double>(0, 3)(random));
        BOOST_TEST(worst_difference(weights, i % 3 == 0 ? random() : 0, 1000) < 1.5);
    }
}

BOOST_AUTO_TEST_CASE(the_order_depends_on_nothing_else) {
    const std::vector<double> weights = {5, 3, 1, 1};
    const MixtureOrder order(weights), again(weights), scaled({0.5, 0.3, 0.1, 0.1});
    std::vector<std::size_t> forward;
    for (std::int64_t i = 0; i < 1000; ++i) forward.push_back(order(i).source);
    for (std::int64_t i = 999; i >= 0; --i) {
        BOOST_TEST(again(i).source == forward[static_cast<std::size_t>(i)]);
        BOOST_TEST(scaled(i).source == forward[static_cast<std::size_t>(i)]);
    }
}

BOOST_AUTO_TEST_CASE(every_source_has_its_own_epochs_and_permutations) {
    const TwoSources two;
    const Dataset dataset(two.options);
    BOOST_TEST(dataset.windows() == 40);
    BOOST_TEST(dataset.tokens() == 121 + 28 + 13);
    std::vector<std::int32_t> first, second;
    for (std::int64_t i = 0; i < 160; ++i) {
        const std::int32_t window = window_of(dataset, i);
        (window < 1000 ? first : second).push_back(window);
    }
    BOOST_TEST(first.size() == 120u);
    BOOST_TEST(second.size() == 40u);
    // Each epoch has every window once, in another order.
    std::set<std::vector<std::int32_t>> orders;
    for (auto* of_source : {&first, &second}) {
        const std::size_t windows = of_source == &first ? 30 : 10;
        for (std::size_t begin = 0; begin < of_source->size(); begin += windows) {
            std::vector<std::int32_t> epoch(of_source->begin() + static_cast<std::ptrdiff_t>(begin),
                                            of_source->begin() + static_cast<std::ptrdiff_t>(begin + windows));
            BOOST_TEST(std::set<std::int32_t>(epoch.begin(), epoch.end()).size() == windows);
            orders.insert(epoch);
        }
    }
    BOOST_TEST(orders.size() == 8u);
    const auto sources = dataset.sources();
    BOOST_REQUIRE(sources.size() == 2u);
    BOOST_TEST(sources[0].share == 0.75);
    BOOST_TEST(sources[1].windows == 10);
    BOOST_TEST(sources[1].name.find("b.bin and 1 more") != std::string::npos);
    BOOST_TEST(dataset.counts_before(160) == (std::vector<std::int64_t>{120, 40}), boost::test_tools::per_element());
    // Adding a source at the end leaves the others' permutations as they are.
    DatasetOptions more = two.options;
    more.mixture.push_back({{numbered_windows(two.folder, "d.bin", 3000, 9)}, 2});
    std::vector<std::int32_t> first_now;
    const Dataset three(more);
    for (std::int64_t i = 0; i < 160; ++i)
        if (const std::int32_t window = window_of(three, i); window < 1000) first_now.push_back(window);
    BOOST_TEST(std::equal(first_now.begin(), first_now.end(), first.begin()));
}

BOOST_AUTO_TEST_CASE(validation_takes_the_end_of_each_source) {
    const TwoSources two;
    Dataset training(two.options);
    const Dataset validation = training.split_off(0.2);
    BOOST_TEST(training.windows() == 32);
    BOOST_TEST(validation.windows() == 8);
    const std::vector<std::int32_t> expected_first = {24, 25, 26, 27, 28, 29}, expected_second = {2001, 2002};
    std::vector<std::int32_t> first, second;
    for (std::int64_t i = 0; i < 8; ++i) {
        const std::int32_t window = window_of(validation, i);
        (window < 1000 ? first : second).push_back(window);
        // Any part of it has both.
        if (i == 3) BOOST_TEST(!second.empty());
    }
    BOOST_TEST(first == expected_first, boost::test_tools::per_element());
    BOOST_TEST(second == expected_second, boost::test_tools::per_element());
    std::map<std::int32_t, int> seen;
    for (std::int64_t i = 0; i < 320; ++i) ++seen[window_of(training, i)];
    BOOST_TEST(seen.size() == 32u);
    for (const auto& [window, count] : seen) {
        BOOST_TEST((window < 24 || (window >= 1000 && window < 2001)));
        BOOST_TEST(count >= 10);
    }
    two.folder.write("small.bin", as_uint16({1, 2, 3, 4, 5}));
    DatasetOptions small = two.options;
    small.mixture.push_back({{two.folder.path("small.bin")}, 1});
    Dataset with_small(small);
    check_error([&] { with_small.split_off(0.5); }, ExitCode::usage, {"small.bin", "single sequence"});
}

BOOST_AUTO_TEST_CASE(the_checksum_covers_weights_and_order) {
    TwoSources two;
    const std::uint64_t checksum = Dataset(two.options).checksum();
    auto scaled = two.options;
    scaled.mixture[0].weight = 0.75;
    scaled.mixture[1].weight = 0.25;
    BOOST_TEST(Dataset(scaled).checksum() == checksum);
    // Equal checksums mean equal orders, however far: these shares differ from those after 10^8 samples.
    auto thirds = two.options, written = two.options;
    thirds.mixture[0].weight = 2;
    thirds.mixture[1].weight = 1;
    written.mixture[0].weight = 0.66666667;
    written.mixture[1].weight = 0.33333333;
    const Dataset of_thirds(thirds), of_written(written);
    BOOST_TEST(of_thirds.checksum() == of_written.checksum());
    for (const std::int64_t sample : {std::int64_t{1000}, std::int64_t{1} << 30, (std::int64_t{1} << 50) + 7}) {
        BOOST_TEST(of_thirds.counts_before(sample) == of_written.counts_before(sample),
                   boost::test_tools::per_element());
        BOOST_TEST(window_of(of_thirds, sample) == window_of(of_written, sample));
    }
    // A share that rounds to nothing is the smallest one.
    written.mixture[1].weight = 1e-12;
    BOOST_TEST(Dataset(written).counts_before(std::int64_t{1} << 24)[1] == 1);
    auto other = two.options;
    other.mixture[0].weight = 3.001;
    BOOST_TEST(Dataset(other).checksum() != checksum);
    std::swap(two.options.mixture[0], two.options.mixture[1]);
    BOOST_TEST(Dataset(two.options).checksum() != checksum);
}

BOOST_AUTO_TEST_CASE(sources_that_do_not_fit_together_are_refused) {
    const TwoSources two;
    auto options = two.options;
    options.mixture.push_back({{two.folder.write("text.txt", "some text that is long enough")}, 1});
    check_error([&] { Dataset dataset(options); }, ExitCode::usage, {"a.bin", "text.txt", "cannot be mixed"});
    options = two.options;
    options.mixture.push_back({{two.folder.write("short.bin", as_uint16({1, 2, 3}))}, 1});
    check_error([&] { Dataset dataset(options); }, ExitCode::usage, {"short.bin", "only 3"});
    options = two.options;
    options.mixture.push_back({{two.folder.path("missing")}, 1});
    check_error([&] { Dataset dataset(options); }, ExitCode::usage, {"missing", "does not exist"});
}
