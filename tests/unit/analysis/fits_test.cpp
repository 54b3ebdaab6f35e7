// Laws of scaling: exact data give back their parameters, noisy data an interval that holds them, few data nothing.
#define BOOST_TEST_MODULE fits
#include "analysis/metrics/fits.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>

#include "analysis/metrics/law.hpp"
#include "base/random.hpp"
#include "unit/analysis/text.hpp"

using namespace lockstep;
using namespace lockstep::analysis;
using lockstep::analysis::test::said;

namespace {

const std::vector<double> powers_of_two = {1, 2, 4, 8, 16, 32, 64};
const std::vector<double> nowhere;

std::vector<FitPoint> exact(const std::vector<double>& ranks, const std::function<double(double)>& law) {
    std::vector<FitPoint> points;
    for (const double p : ranks) points.push_back({p, law(p), {law(p)}});
    return points;
}

// 15 samples a point with errors of 3 %.
std::vector<FitPoint> noisy(const std::vector<double>& ranks, const std::function<double(double)>& law,
                            std::uint64_t seed) {
    std::vector<FitPoint> points;
    for (const double p : ranks) {
        const RandomStream stream(seed, "fits test " + std::to_string(p));
        FitPoint point{p, 0, {}};
        for (std::uint64_t i = 0; i < 15; ++i) point.samples.push_back(law(p) * std::exp(0.03 * stream.normal(i)));
        point.value = median(point.samples);
        points.push_back(point);
    }
    return points;
}

double parameter(const Fit& fit, const std::string& name) {
    for (const Parameter& one : fit.parameters)
        if (one.name == name) return one.value;
    BOOST_FAIL(fit.law << " has no " << name << ": " << fit.refusal);
    return unknown;
}

Interval interval(const Fit& fit, const std::string& name) {
    for (const Parameter& one : fit.parameters)
        if (one.name == name) return one.interval;
    return {};
}

bool holds(const Interval& interval, double truth) {
    return interval.low <= truth && truth <= interval.high;
}

void check(double value, double expected) {
    BOOST_TEST(std::abs(value - expected) <= 1e-7 * std::max(1.0, std::abs(expected)), value << " is not " << expected);
}

std::function<double(double)> amdahl(double s, double seconds) {
    return [=](double p) { return seconds * (s + (1 - s) / p); };
}
std::function<double(double)> scalability(double rate, double sigma, double kappa) {
    return [=](double p) { return rate * p / (1 + sigma * (p - 1) + kappa * p * (p - 1)); };
}
std::function<double(double)> normal_form(double constant, double slope, double power, double logarithm) {
    return [=](double p) { return constant + slope * std::pow(p, power) * std::pow(std::log2(p), logarithm); };
}

}  // namespace

BOOST_AUTO_TEST_CASE(amdahl_recovers_its_parameters) {
    for (const double s : {0.0, 0.05, 1.0}) {
        const Fit fit = fit_amdahl(exact(powers_of_two, amdahl(s, 100)), {128, 512});
        BOOST_TEST(fit.refusal.empty());
        check(parameter(fit, "serial_share"), s);
        check(parameter(fit, "seconds_on_one_rank"), 100);
        BOOST_TEST(fit.relative_error < 1e-9);
        check(fit.at(10), amdahl(s, 100)(10));
        BOOST_REQUIRE(fit.predictions.size() == 2u);
        check(fit.predictions[1].value, amdahl(s, 100)(512));
        BOOST_TEST(fit.prediction_refusal.empty());
        BOOST_TEST(!fit.parameters[0].interval.known());  // one sample a point
        BOOST_TEST(fit.remarks.empty() == (s == 0.05));
    }
}

BOOST_AUTO_TEST_CASE(amdahl_of_runs_that_do_not_begin_at_one_rank) {
    const Fit fit = fit_amdahl(exact({48, 96, 144, 192}, amdahl(0.001, 5e4)), nowhere);
    check(parameter(fit, "serial_share"), 0.001);
    check(parameter(fit, "seconds_on_one_rank"), 5e4);
}

BOOST_AUTO_TEST_CASE(superlinear_data_hold_the_serial_share_at_zero) {
    const Fit fit = fit_amdahl(exact({1, 2, 4}, [](double p) { return 100 / std::pow(p, 1.2); }), nowhere);
    BOOST_TEST(parameter(fit, "serial_share") == 0.0);
    BOOST_TEST(said(fit.remarks, "superlinear"));
    BOOST_TEST(fit.relative_error > 0.05);
    const Fit slower = fit_amdahl(exact({1, 2, 4}, [](double p) { return 100 * std::sqrt(p); }), nowhere);
    BOOST_TEST(parameter(slower, "serial_share") == 1.0);
    BOOST_TEST(said(slower.remarks, "does not fall"));
}

BOOST_AUTO_TEST_CASE(gustafson_recovers_its_parameter) {
    for (const double a : {0.0, 0.05, 1.0}) {
        const auto law = [a](double p) { return p - a * (p - 1); };
        const Fit fit = fit_gustafson(exact(powers_of_two, law), {128});
        check(parameter(fit, "serial_share"), a);
        BOOST_REQUIRE(fit.predictions.size() == 1u);
        check(fit.predictions[0].value, law(128));
        // Rates over 8 ranks, in any unit.
        const auto rates = [law](double ranks) { return 4321 * law(ranks / 8); };
        const Fit larger = fit_gustafson(exact({32, 8, 16, 64}, rates), nowhere);
        check(parameter(larger, "serial_share"), a);
        check(larger.at(64), law(8));
        BOOST_TEST(said(larger.remarks, "units of 8 ranks"));
    }
    const Fit superlinear = fit_gustafson(exact({1, 2, 4}, [](double p) { return p * p; }), nowhere);
    BOOST_TEST(parameter(superlinear, "serial_share") == 0.0);
    BOOST_TEST(said(superlinear.remarks, "its lower bound"));
    const Fit falling = fit_gustafson(exact({1, 2, 4}, [](double p) { return 1 / p; }), nowhere);
    BOOST_TEST(parameter(falling, "serial_share") == 1.0);
}

BOOST_AUTO_TEST_CASE(universal_scalability_recovers_its_parameters) {
    for (const double sigma : {0.0, 0.03, 0.4})
        for (const double kappa : {0.0, 1e-4, 0.01}) {
            const Fit fit = fit_universal_scalability(exact(powers_of_two, scalability(950, sigma, kappa)), {100});
            check(parameter(fit, "rate_of_one_rank"), 950);
            check(parameter(fit, "contention"), sigma);
            check(parameter(fit, "coherence"), kappa);
            check(fit.predictions.at(0).value, scalability(950, sigma, kappa)(100));
            if (kappa > 0)
                check(parameter(fit, "peak_ranks"), std::sqrt((1 - sigma) / kappa));
            else
                BOOST_TEST(said(fit.remarks, "no peak"));
        }
}

BOOST_AUTO_TEST_CASE(universal_scalability_stays_within_bounds) {
    const Fit superlinear =
        fit_universal_scalability(exact({1, 2, 4, 8}, [](double p) { return 10 * std::pow(p, 1.3); }), nowhere);
    BOOST_TEST(parameter(superlinear, "contention") == 0.0);
    BOOST_TEST(parameter(superlinear, "coherence") == 0.0);
    const Fit falling =
        fit_universal_scalability(exact({1, 2, 4, 8}, [](double p) { return 10 / std::sqrt(p); }), nowhere);
    BOOST_TEST(parameter(falling, "contention") <= 1.0);
    BOOST_TEST(parameter(falling, "coherence") > 0.0);
}

BOOST_AUTO_TEST_CASE(a_peak_too_far_away_is_not_told) {
    const Fit few = fit_universal_scalability(exact({1, 2, 3, 4}, scalability(10, 0, 0.01)), nowhere);
    BOOST_TEST(few.parameters.size() == 3u);
    BOOST_TEST(said(few.remarks, "needs 6 different numbers"));
    const Fit far = fit_universal_scalability(exact({1, 2, 3, 4, 5, 6}, scalability(10, 0, 1e-4)), nowhere);
    BOOST_TEST(far.parameters.size() == 3u);
    BOOST_TEST(said(far.remarks, "too far"));
    const Fit measured = fit_universal_scalability(exact({1, 8, 16, 20}, scalability(10, 0, 0.01)), nowhere);
    check(parameter(measured, "peak_ranks"), 10);
}

BOOST_AUTO_TEST_CASE(extra_p_recovers_its_exponents) {
    struct Case {
        double constant, slope, power, logarithm;
    };
    for (const Case& one :
         {Case{2, 100, -1, 0}, {0, 100, -1, 0}, {5, 3, 0, 1}, {5, 3, 0.5, 1}, {1, 0.1, 2, 0}, {4, 0.5, 1.0 / 3, 2}}) {
        const auto law = normal_form(one.constant, one.slope, one.power, one.logarithm);
        const Fit fit = fit_extra_p(exact({2, 4, 8, 16, 32, 64}, law), {512});
        check(parameter(fit, "constant"), one.constant);
        check(parameter(fit, "coefficient"), one.slope);
        BOOST_TEST(parameter(fit, "exponent") == one.power);
        BOOST_TEST(parameter(fit, "logarithm_exponent") == one.logarithm);
        check(fit.predictions.at(0).value, law(512));
    }
    // Terms that span 20 orders of magnitude.
    const auto cubic = normal_form(5, 1e-6, 3, 1);
    const Fit large = fit_extra_p(exact({1, 8, 64, 512, 4096, 8192}, cubic), nowhere);
    BOOST_TEST(parameter(large, "exponent") == 3.0);
    BOOST_TEST(parameter(large, "logarithm_exponent") == 1.0);
    const Fit constant = fit_extra_p(exact(powers_of_two, [](double) { return 7.0; }), {128});
    check(parameter(constant, "constant"), 7);
    BOOST_TEST(parameter(constant, "coefficient") == 0.0);
    BOOST_TEST(said(constant.remarks, "constant"));
    check(constant.predictions.at(0).value, 7);
}

BOOST_AUTO_TEST_CASE(an_extra_p_model_never_predicts_negative_times) {
    const auto superlinear = exact(powers_of_two, [](double p) { return 100 / std::pow(p, 1.5); });
    const Fit fit = fit_extra_p(superlinear, {512});
    BOOST_TEST(parameter(fit, "constant") >= 0.0);
    BOOST_TEST(parameter(fit, "coefficient") >= 0.0);
    BOOST_TEST(fit.predictions.at(0).value > 0.0);
}

BOOST_AUTO_TEST_CASE(intervals_hold_the_truth) {
    int serial = 0, time = 0, gustafson = 0, sigma = 0, kappa = 0, peak = 0, predicted = 0, constant = 0, power = 0;
    constexpr int sets = 40;
    for (std::uint64_t set = 0; set < sets; ++set) {
        const auto strong = amdahl(0.05, 100);
        const Fit first = fit_amdahl(noisy({1, 2, 4, 8, 16}, strong, set), {64});
        serial += holds(interval(first, "serial_share"), 0.05) ? 1 : 0;
        time += holds(interval(first, "seconds_on_one_rank"), 100) ? 1 : 0;
        predicted += holds(first.predictions.at(0).interval, strong(64)) ? 1 : 0;
        const Fit second = fit_gustafson(noisy(
                                             {1, 2, 4, 8, 16}, [](double p) { return p - 0.2 * (p - 1); }, set),
                                         {});
        gustafson += holds(interval(second, "serial_share"), 0.2) ? 1 : 0;
        const Fit third = fit_universal_scalability(noisy(powers_of_two, scalability(950, 0.1, 0.002), set), {});
        sigma += holds(interval(third, "contention"), 0.1) ? 1 : 0;
        kappa += holds(interval(third, "coherence"), 0.002) ? 1 : 0;
        peak += holds(interval(third, "peak_ranks"), std::sqrt(0.9 / 0.002)) ? 1 : 0;
        const Fit fourth = fit_extra_p(noisy(powers_of_two, normal_form(2, 100, -1, 0), set), {});
        constant += holds(interval(fourth, "constant"), 2) ? 1 : 0;
        power += holds(interval(fourth, "exponent"), -1) ? 1 : 0;
    }
    for (const int count : {serial, time, gustafson, sigma, kappa, peak, predicted, constant, power})
        BOOST_TEST(count >= sets * 85 / 100, count << " of " << sets);
}

BOOST_AUTO_TEST_CASE(few_points_are_refused_with_how_many_it_takes) {
    const auto points = exact({1, 2, 4, 8}, amdahl(0.1, 10));
    const std::vector<FitPoint> two(points.begin(), points.begin() + 2), three(points.begin(), points.begin() + 3);
    BOOST_TEST(fit_amdahl(two, nowhere).refusal == "Amdahl's law needs 3 different numbers of ranks; there are 2.");
    BOOST_TEST(fit_amdahl(three, nowhere).refusal.empty());
    BOOST_TEST(fit_gustafson(two, nowhere).refusal ==
               "Gustafson's law needs 3 different numbers of ranks; there are 2.");
    BOOST_TEST(fit_universal_scalability(three, nowhere).refusal ==
               "The Universal Scalability Law needs 4 different numbers of ranks; there are 3.");
    BOOST_TEST(fit_extra_p(points, nowhere).refusal ==
               "An Extra-P model needs 5 different numbers of ranks; there are 4.");
    for (const auto& fit : {fit_amdahl({}, nowhere), fit_gustafson({}, nowhere), fit_universal_scalability({}, nowhere),
                            fit_extra_p({}, nowhere)}) {
        BOOST_TEST(!fit.refusal.empty());
        BOOST_TEST(fit.parameters.empty());
        BOOST_TEST(!fit.at);
        BOOST_TEST(!fit.title.empty());
    }
}

BOOST_AUTO_TEST_CASE(predictions_need_more_points_and_end_at_eight_times_the_largest) {
    const Fit few = fit_amdahl(exact({1, 2, 4}, amdahl(0.1, 10)), {8});
    BOOST_TEST(few.predictions.empty());
    BOOST_TEST(few.prediction_refusal == "Amdahl's law needs 4 different numbers of ranks to predict; there are 3.");
    const Fit far = fit_amdahl(exact({1, 2, 4, 8}, amdahl(0.1, 10)), {64, 65, 1000, 0, -1, unknown});
    BOOST_TEST(far.predictions.size() == 1u);
    BOOST_TEST(far.prediction_refusal.find("Not predicted at 65, 1000, 0, -1, nan ranks: the runs cover 1 to 8") == 0u);
    const Fit large = fit_amdahl(exact({64, 128, 256, 512}, amdahl(0.001, 10)), {1, 8});
    BOOST_TEST(large.predictions.size() == 1u);
    BOOST_TEST(large.prediction_refusal.find("at 1 rank:") != std::string::npos);
    const Fit rates = fit_universal_scalability(exact({1, 2, 4, 8, 16}, scalability(1, 0.1, 0.01)), {32});
    BOOST_TEST(rates.prediction_refusal ==
               "The Universal Scalability Law needs 6 different numbers of ranks to predict; there are 5.");
}

BOOST_AUTO_TEST_CASE(order_repetitions_and_what_is_not_finite) {
    std::vector<FitPoint> points = exact({8, 1, 4, 2, 1, 8}, amdahl(0.1, 10));
    const Fit whole = fit_amdahl(points, {16});
    check(parameter(whole, "serial_share"), 0.1);
    BOOST_TEST(whole.predictions.size() == 1u);
    points.push_back({16, unknown, {}});
    points.push_back({unknown, 3, {}});
    points.push_back({32, -1, {}});
    points.push_back({0, 5, {}});
    points.push_back({64, std::numeric_limits<double>::infinity(), {}});
    check(parameter(fit_amdahl(points, nowhere), "serial_share"), 0.1);
    // The same number of ranks many times is one number of ranks.
    const auto repeated = exact({1, 1, 1, 2, 2, 2}, amdahl(0.1, 10));
    BOOST_TEST(fit_amdahl(repeated, nowhere).refusal ==
               "Amdahl's law needs 3 different numbers of ranks; there are 2.");
    const std::vector<FitPoint> holes = {{1, 10, {}}, {2, unknown, {}}, {4, 3, {}}};
    BOOST_TEST(fit_gustafson(holes, nowhere).refusal.find("(1 of 3 points have no value)") != std::string::npos);
    const Fit repeated_extra_p = fit_extra_p(exact({1, 1, 2, 4, 4, 8, 16}, normal_form(1, 8, -1, 0)), nowhere);
    BOOST_TEST(parameter(repeated_extra_p, "exponent") == -1.0);
}

BOOST_AUTO_TEST_CASE(errors_are_relative_so_that_small_times_count) {
    // One point is off by 10 %. In seconds the error at one rank would drown that at 64.
    auto points = exact(powers_of_two, amdahl(0.02, 100));
    points[0].value *= 1.1;
    const double first = parameter(fit_amdahl(points, nowhere), "serial_share");
    BOOST_TEST(std::abs(first - 0.02) < 0.002);
}
