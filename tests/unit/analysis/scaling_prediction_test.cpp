// Scaling curves from steps with known laws: what was put in comes out, and the intervals hold it.
#define BOOST_TEST_MODULE scaling_prediction
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <string>

#include "analysis/predict/randomized_fit.hpp"
#include "analysis/predict/scaling_prediction.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "unit/analysis/text.hpp"

using namespace lockstep;
using namespace lockstep::config;
using namespace lockstep::analysis;
using lockstep::analysis::test::said;

namespace {

const std::vector<WorkTerm> terms = {{"forward", WorkTerm::Follows::share, false, 0},
                                     {"backward", WorkTerm::Follows::share, false, 1},
                                     {"optimizer", WorkTerm::Follows::update, false, 0}};

Machine machine() {
    Machine hardware;
    hardware.name = "four devices a node";
    hardware.device.per_node = 4;
    hardware.node_link = {20, 5};
    hardware.network = {1, 12.5, 10};
    return hardware;
}

ScalingProgram program() {
    ScalingProgram program;
    program.gradient_bytes = 4e8;
    program.buckets = 12;
    program.ranks_per_node = program.places_per_node = 4;
    return program;
}

// The most that is believed of a step on one rank with 512 sequences.
std::vector<ScalingModel::Unknown> beliefs(const ScalingProgram& of) {
    ScalingModel model(of, terms);
    return model.unknowns(machine(), {5.12, 10.24, 0.02}, 512, 1);
}

std::size_t index_of(const std::vector<ScalingModel::Unknown>& unknowns, const std::string& name) {
    for (std::size_t i = 0; i < unknowns.size(); ++i)
        if (unknowns[i].name == name) return i;
    BOOST_REQUIRE_MESSAGE(false, "no unknown " << name);
    return 0;
}

// What is believed, with some numbers replaced.
std::vector<double> law(const ScalingProgram& of, const std::vector<std::pair<std::string, double>>& known) {
    const auto unknowns = beliefs(of);
    std::vector<double> values;
    for (const auto& unknown : unknowns) values.push_back(unknown.mean);
    for (const auto& [name, value] : known) values[index_of(unknowns, name)] = value;
    return values;
}

MeasuredSteps measured(const ScalingModel& model, const std::vector<double>& truth, double ranks, double batch,
                       double noise = 1) {
    const Scale scale = scale_of(model.program(), ranks, batch);
    const StepTime step = model.step(scale, truth);
    MeasuredSteps run;
    run.ranks = ranks;
    run.nodes = scale.nodes;
    run.batch = batch;
    run.seconds = step.total() * noise;
    run.deviation = 0.003;
    for (const double seconds : step.work) run.work.push_back(seconds * noise);
    run.wait = step.wait * noise;
    run.exchange = step.exchange * noise;
    return run;
}

CurveRequest request(CurveKind kind, double batch, std::vector<double> ranks) {
    CurveRequest curve;
    curve.kind = kind;
    curve.batch = batch;
    curve.ranks = std::move(ranks);
    curve.tokens_a_sequence = 1000;
    return curve;
}

const LearnedNumber& number(const ScalingPrediction& prediction, const std::string& name) {
    for (const LearnedNumber& one : prediction.numbers)
        if (one.name == name) return one;
    BOOST_REQUIRE_MESSAGE(false, "no number " << name);
    return prediction.numbers.front();
}

double near_to(double value, double expected) {
    return std::abs(value / expected - 1);
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_largest_of_many) {
    // Teichroew 1956, table of expected values of normal order statistics.
    BOOST_TEST(std::abs(largest_of_normal(1)) < 1e-12);
    BOOST_TEST(near_to(largest_of_normal(2), 0.5641896) < 1e-6);
    BOOST_TEST(near_to(largest_of_normal(10), 1.5387527) < 1e-6);
    BOOST_TEST(near_to(largest_of_normal(100), 2.5075936) < 1e-6);
    BOOST_TEST(near_to(largest_of_exponential(3), 1 / 2.0 + 1 / 3.0) < 1e-12);
    // The sum and its expansion meet.
    BOOST_TEST(near_to(largest_of_exponential(101), largest_of_exponential(100) + 1 / 101.0) < 1e-5);
}

BOOST_AUTO_TEST_CASE(draws_of_a_linear_problem_have_its_known_mean_and_width) {
    // Believed 0 ± 1 and 5 ± 2; the first is measured as 2 ± 1, of the second nothing is.
    FitProblem problem;
    problem.mean = {0, 5};
    problem.deviation = {1, 2};
    problem.measured = {2};
    problem.measured_deviation = {1};
    problem.predict = [](const std::vector<double>& unknowns) { return std::vector<double>{unknowns[0]}; };
    const auto best = most_probable(problem);
    BOOST_TEST(std::abs(best[0] - 1) < 1e-6);
    BOOST_TEST(std::abs(best[1] - 5) < 1e-6);
    const auto draws = draw_unknowns(problem, 2000, 7);
    BOOST_TEST(draws == draw_unknowns(problem, 2000, 7));
    for (const std::size_t which : {0, 1}) {
        double mean = 0, square = 0;
        for (const auto& draw : draws) mean += draw[which] / 2000, square += draw[which] * draw[which] / 2000;
        BOOST_TEST(std::abs(mean - (which == 0 ? 1 : 5)) < 0.15);
        BOOST_TEST(near_to(std::sqrt(square - mean * mean), which == 0 ? std::sqrt(0.5) : 2) < 0.06);
    }
}

BOOST_AUTO_TEST_CASE(known_rates_and_latencies_come_out_of_the_steps) {
    ScalingProgram of = program();
    of.gradient_bytes = 4e9;
    of.buckets = 1000;   // so that messages take time at a latency that is believed possible
    of.micro_batch = 1;  // hardly anything is hidden beneath the last micro-batch
    ScalingModel model(of, terms);
    const auto truth = law(of, {{"forward_constant_seconds", std::log(0.05)},
                                {"forward_seconds_a_sequence", std::log(0.012)},
                                {"backward_seconds_a_sequence", std::log(0.023)},
                                {"optimizer_constant_seconds", std::log(0.03)},
                                {"hidden", -1.0},
                                {"node_bytes_per_second", std::log(9e9)},
                                {"network_bytes_per_second", std::log(7e9)},
                                {"network_latency_seconds", std::log(8e-5)}});
    std::vector<MeasuredSteps> runs;
    for (const double ranks : {1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0})
        for (const double batch : {64.0, 512.0}) runs.push_back(measured(model, truth, ranks, batch));
    const auto prediction = predict_scaling(of, terms, machine(), runs, {request(CurveKind::strong, 512, {1, 256})});
    const auto check = [&](const char* name, double expected, double tolerance, bool told = true) {
        const LearnedNumber& one = number(prediction, name);
        BOOST_TEST(near_to(one.value.median, expected) < tolerance,
                   name << " is " << one.value.median << " instead of " << expected);
        BOOST_TEST(one.value.low < expected);
        BOOST_TEST(one.value.high > expected);
        BOOST_TEST(one.measured == told, name << " is said to be measured: " << one.measured);
    };
    check("forward_seconds_a_sequence", 0.012, 0.02);
    check("backward_seconds_a_sequence", 0.023, 0.02);
    check("optimizer_constant_seconds", 0.03, 0.05);
    check("node_bytes_per_second", 9e9, 0.15);
    check("network_bytes_per_second", 7e9, 0.15);
    // Rings that pass on more messages of less latency would fit nearly as well.
    check("network_latency_seconds", 8e-5, 0.3, false);
    const double far = model.step(scale_of(of, 256, 512), truth).total();
    BOOST_TEST(near_to(prediction.curves[0].points[1].seconds.median, far) < 0.1);
}

// Laws drawn from what is believed, measured with noise on 1 to 8 ranks; the truth at 8 to 100 times as many lies in
// the 90 % interval nearly as often as that.
BOOST_AUTO_TEST_CASE(intervals_hold_the_truth) {
    const ScalingProgram of = program();
    ScalingModel model(of, terms);
    const auto unknowns = beliefs(of);
    const RandomStream random(3, "laws");
    std::size_t index = 0, inside = 0, all = 0;
    double widest = 0;
    for (int trial = 0; trial < 20; ++trial) {
        std::vector<double> truth;
        for (const auto& unknown : unknowns) {
            const bool amount = unknown.name.find("_a_sequence") != std::string::npos;
            truth.push_back(unknown.mean + (amount ? 0.3 : unknown.deviation) * random.normal(index++));
        }
        std::vector<MeasuredSteps> runs;
        for (const double ranks : {1.0, 2.0, 4.0, 8.0})
            runs.push_back(measured(model, truth, ranks, 512, std::exp(0.005 * random.normal(index++))));
        const auto prediction =
            predict_scaling(of, terms, machine(), runs,
                            {request(CurveKind::strong, 512, {1, 64, 512}), request(CurveKind::weak, 64, {1, 800})});
        for (const PredictedCurve& curve : prediction.curves)
            for (const CurvePoint& point : curve.points) {
                if (point.ranks == 1) continue;
                const double is = model.step(scale_of(of, point.ranks, point.batch), truth).total();
                inside += is >= point.seconds.low && is <= point.seconds.high ? 1 : 0;
                ++all;
                widest = std::max(widest, point.seconds.high / point.seconds.low);
                BOOST_TEST(point.seconds.low < point.seconds.median);
                BOOST_TEST(point.seconds.median < point.seconds.high);
            }
    }
    BOOST_TEST_MESSAGE(inside << " of " << all << " inside, the widest by a factor of " << widest);
    BOOST_TEST(static_cast<double>(inside) >= 0.8 * static_cast<double>(all));
    BOOST_TEST(widest < 20);
}

BOOST_AUTO_TEST_CASE(what_the_other_runs_say_of_each_widens_the_intervals) {
    const ScalingProgram of = program();
    ScalingModel model(of, terms);
    const auto truth = law(of, {});
    std::vector<MeasuredSteps> runs;
    for (const double ranks : {1.0, 2.0, 4.0, 8.0}) runs.push_back(measured(model, truth, ranks, 512));
    const auto lawful = predict_scaling(of, terms, machine(), runs, {request(CurveKind::strong, 512, {1, 2, 8, 32})});
    BOOST_REQUIRE(lawful.left_out.size() == 4);
    for (const LeftOutRun& left : lawful.left_out) BOOST_TEST(std::abs(left.error) < 0.04);
    runs[2] = measured(model, truth, 4, 512, 1.3);
    const auto odd = predict_scaling(of, terms, machine(), runs, {request(CurveKind::strong, 512, {1, 2, 8})});
    BOOST_TEST(odd.left_out[2].error < -0.15);
    BOOST_TEST(odd.left_out_error > 5 * lawful.left_out_error);
    for (const std::size_t point : {1, 2}) {
        const Range narrow = lawful.curves[0].points[point].seconds, wide = odd.curves[0].points[point].seconds;
        BOOST_TEST(std::log(wide.high / wide.low) > 2 * std::log(narrow.high / narrow.low));
    }
    // Further away it is wider than near.
    const auto& points = lawful.curves[0].points;
    BOOST_TEST(points[3].seconds.high / points[3].seconds.low > points[2].seconds.high / points[2].seconds.low);
    // What would span more than a factor of 5 is refused, or left out beside points that are told.
    BOOST_CHECK_EXCEPTION(
        predict_scaling(of, terms, machine(), runs, {request(CurveKind::strong, 512, {8, 32, 128})}), Error,
        [](const Error& error) {
            BOOST_TEST_MESSAGE(error.what());
            return error.code() == ExitCode::usage &&
                   std::string(error.what())
                           .find("the 90 % interval at 32 ranks spans more than a factor of 5; add a run") !=
                       std::string::npos;
        });
    const auto both = predict_scaling(of, terms, machine(), runs, {request(CurveKind::strong, 512, {8, 16, 512})});
    const PredictedCurve& told = both.curves.front();
    BOOST_REQUIRE(told.points.size() == 2u);
    BOOST_TEST(told.points[1].seconds.high < widest_interval * told.points[1].seconds.low);
    BOOST_TEST(said(told.remarks, "No point at 512 ranks: the 90 % interval there, "));
    BOOST_TEST(said(told.remarks, "It would take a run on more than 8 ranks."));
}

BOOST_AUTO_TEST_CASE(strong_scaling_ends_where_ranks_have_no_sequence) {
    ScalingProgram of = program();
    of.shards = 2;
    ScalingModel model(of, terms);
    const auto truth = law(of, {});
    std::vector<MeasuredSteps> runs;
    for (const double ranks : {2.0, 4.0, 8.0}) runs.push_back(measured(model, truth, ranks, 48));
    CurveRequest curve = request(CurveKind::strong, 48, {2, 7, 64, 96, 192, 10000});
    curve.base_ranks = 2;
    curve.base_seconds = runs.front().seconds;
    const auto prediction = predict_scaling(of, terms, machine(), runs, {curve});
    const PredictedCurve& strong = prediction.curves.front();
    BOOST_TEST(strong.most_ranks == 96);
    BOOST_REQUIRE(strong.points.size() == 2);
    BOOST_TEST(strong.points[1].ranks == 96);
    BOOST_TEST(strong.points[1].sequences_per_replica == 1);
    BOOST_TEST(strong.points[1].nodes == 24);
    BOOST_TEST(said(strong.remarks, "7 ranks are not a multiple of the 2 that share a replica"));
    BOOST_TEST(said(strong.remarks, "48 sequences do not divide evenly among the 32 replicas of 64 ranks"));
    BOOST_TEST(said(strong.remarks, "Strong scaling with 48 sequences per step ends at 96 ranks"));
    BOOST_TEST(said(strong.remarks, "10,000 ranks need a batch of 5,000 or more"));
    // Over the base of 2 ranks.
    const CurvePoint& last = strong.points[1];
    BOOST_TEST(near_to(last.speedup.median, runs.front().seconds / last.seconds.median) < 1e-12);
    BOOST_TEST(near_to(last.efficiency.median, last.speedup.median / 48) < 1e-12);
    BOOST_TEST(near_to(last.tokens_per_second.low, 48000 / last.seconds.high) < 1e-12);
}

BOOST_AUTO_TEST_CASE(the_cards_of_a_node_are_shared_by_its_devices) {
    ScalingProgram of = program();
    of.gradient_bytes = 8e9;
    of.buckets = 1;
    const auto exchange = [&](double shards, double ranks, double network_rate) {
        of.shards = shards;
        ScalingModel model(of, terms);
        return model
            .step(scale_of(of, ranks, 512), law(of, {{"network_bytes_per_second", std::log(network_rate)},
                                                     {"hidden", -8.0},
                                                     {"node_latency_seconds", std::log(1e-9)},
                                                     {"network_latency_seconds", std::log(1e-9)},
                                                     {"node_bytes_per_second", std::log(1e15)}}))
            .exchange;
    };
    // 4 replicas of a node send one sum between 2 nodes: 2 · (2 − 1)/2 · 8 GB through 1 GB/s.
    BOOST_TEST(near_to(exchange(1, 8, 1e9), 8) < 0.01);
    BOOST_TEST(near_to(exchange(1, 8, 2e9), 4) < 0.01);
    BOOST_TEST(near_to(exchange(1, 64, 1e9), 2 * 15 / 16.0 * 8) < 0.01);
    // Where they hold different parameters, each has a sum of its own.
    BOOST_TEST(near_to(exchange(4, 8, 1e9), 4 * 8) < 0.01);
    BOOST_TEST(exchange(1, 4, 1e9) < 0.01);  // inside the node
    BOOST_TEST(exchange(1, 1, 1e9) == 0);
}

BOOST_AUTO_TEST_CASE(one_number_of_ranks_is_refused) {
    const ScalingProgram of = program();
    ScalingModel model(of, terms);
    const auto truth = law(of, {});
    BOOST_CHECK_EXCEPTION(
        predict_scaling(of, terms, machine(), {measured(model, truth, 2, 512), measured(model, truth, 2, 256)}, {}),
        Error, [](const Error& error) {
            return error.code() == ExitCode::usage &&
                   std::string(error.what()).find("runs on 2 ranks alone do not show") != std::string::npos;
        });
}

BOOST_AUTO_TEST_CASE(whole_times_alone_are_enough) {
    const ScalingProgram of = program();
    ScalingModel model(of, terms);
    const auto truth = law(of, {{"optimizer_constant_seconds", std::log(0.3)}});
    ScalingProgram unknown = of;
    unknown.gradient_bytes = 0;
    std::vector<MeasuredSteps> runs;
    for (const double ranks : {1.0, 2.0, 4.0, 8.0, 16.0}) {
        MeasuredSteps run = measured(model, truth, ranks, 512);
        run.work = {NAN};
        run.wait = run.exchange = NAN;
        runs.push_back(run);
    }
    const std::vector<WorkTerm> whole = {{"step", WorkTerm::Follows::share, false, 2.0 / 3}};
    const auto prediction =
        predict_scaling(unknown, whole, machine(), runs, {request(CurveKind::strong, 512, {1, 32, 64})});
    for (const CurvePoint& point : prediction.curves[0].points) {
        const double is = model.step(scale_of(of, point.ranks, 512), truth).total();
        BOOST_TEST(is > point.seconds.low);
        BOOST_TEST(is < point.seconds.high);
        BOOST_TEST(near_to(point.seconds.median, is) < 0.4);
    }
}
