#include <boost/test/unit_test.hpp>
#include <cmath>

#include "base/least_squares.hpp"

using namespace lockstep;
namespace tt = boost::test_tools;

namespace {

std::vector<double> solve(std::vector<std::vector<double>> columns, std::vector<double> target,
                          bool non_negative = false, std::vector<double> weights = {}) {
    return least_squares(LinearFit{std::move(columns), std::move(target), std::move(weights), non_negative});
}

void check(const std::vector<double>& solved, const std::vector<double>& expected) {
    BOOST_REQUIRE(solved.size() == expected.size());
    for (std::size_t i = 0; i < solved.size(); ++i)
        BOOST_TEST(std::abs(solved[i] - expected[i]) <= 1e-12 * (1 + std::abs(expected[i])));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(least_squares_of)

BOOST_AUTO_TEST_CASE(linear_functions) {
    const std::vector<std::vector<double>> columns = {{1, 1, 1}, {0, 1, 2}};
    check(solve(columns, {1, 3, 5}), {1, 2});
    // By hand: through 0, 0, 3 the best line is −1/2 + 3/2·x; with no negative coefficient 6/5·x.
    check(solve(columns, {0, 0, 3}), {-0.5, 1.5});
    check(solve(columns, {0, 0, 3}, true), {0, 1.2});
    // A row of weight 0 does not count; by hand with the weights 1, 1, 2: −4/7 + 12/7·x.
    check(solve(columns, {1, 3, 7}, false, {1, 1, 0}), {1, 2});
    check(solve(columns, {0, 0, 3}, false, {1, 1, 2}), {-4.0 / 7, 12.0 / 7});
    BOOST_TEST(solve({{1, 2, 3}, {2, 4, 6}}, {1, 1, 1}).empty());
    BOOST_TEST(solve({{1}, {2}}, {1}).empty());
    BOOST_TEST(solve({{1, 1}}, {-1, -1}, true).empty());
}

BOOST_AUTO_TEST_CASE(dependent_columns_with_no_negative_coefficient_leaves_one_out) {
    check(solve({{0, 0, 0}, {1, 2, 3}}, {2, 4, 6}, true), {0, 2});
    check(solve({{1, 2, 3}, {2, 4, 6}}, {2, 4, 6}, true), {2, 0});
    // Fewer rows than columns.
    check(solve({{1}, {2}}, {4}, true), {4, 0});
}

BOOST_AUTO_TEST_CASE(columns_of_very_different_size) {
    // Seconds of a FLOP, a byte, a call.
    std::vector<std::vector<double>> columns(3);
    std::vector<double> seconds;
    for (const double size : {1e6, 3e7, 1e9, 4e10}) {
        columns[0].push_back(size);
        columns[1].push_back(std::sqrt(size) * 100);
        columns[2].push_back(1);
        seconds.push_back(1e-13 * size + 1e-10 * columns[1].back() + 5e-6);
    }
    const std::vector<double> costs = least_squares(relative_fit(columns, seconds));
    BOOST_REQUIRE(costs.size() == 3u);
    BOOST_TEST(costs[0] == 1e-13, tt::tolerance(1e-9));
    BOOST_TEST(costs[1] == 1e-10, tt::tolerance(1e-9));
    BOOST_TEST(costs[2] == 5e-6, tt::tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(functions_that_are_not_linear) {
    // Rosenbrock's valley, whose least is at (1, 1).
    const Residuals valley = [](const std::vector<double>& x) {
        return std::vector<double>{10 * (x[1] - x[0] * x[0]), 1 - x[0]};
    };
    const std::vector<double> least = least_squares(valley, {-1.2, 1});
    BOOST_TEST(least[0] == 1.0, tt::tolerance(1e-6));
    BOOST_TEST(least[1] == 1.0, tt::tolerance(1e-6));
    // A decay measured exactly: 3·exp(−0.7·t).
    const Residuals decay = [](const std::vector<double>& x) {
        std::vector<double> residuals;
        for (double t = 0; t < 5; ++t) residuals.push_back(x[0] * std::exp(-x[1] * t) - 3 * std::exp(-0.7 * t));
        return residuals;
    };
    const std::vector<double> found = least_squares(decay, {1, 0});
    BOOST_TEST(found[0] == 3.0, tt::tolerance(1e-6));
    BOOST_TEST(found[1] == 0.7, tt::tolerance(1e-6));
}

BOOST_AUTO_TEST_SUITE_END()
