// The precision of training on the CPU: which one a launch computes in, and that bf16 takes the course that fp32 takes.
#define BOOST_TEST_MODULE precision
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>

#include "end_to_end/command.hpp"

using namespace lockstep::tests;
namespace data = boost::unit_test::data;

namespace {

// The loss of single steps depends on what their sequences say; the mean of twenty says how far the model is.
double mean_loss(const std::map<int, double>& losses, int last) {
    double sum = 0;
    for (int step = last - 19; step <= last; ++step) sum += losses.at(step);
    return sum / 20;
}

const std::string gpt2 =
    "--set model.mixer=attention --set model.norm=layer --set model.mlp=gelu --set model.position=learned "
    "--set model.bias=all ";
const std::string ttt_linear = "--set model.mixer=ttt-linear ";

}  // namespace

BOOST_AUTO_TEST_SUITE(precision_choice)

BOOST_AUTO_TEST_CASE(without_instructions_for_bf16_a_launch_computes_in_fp32_and_says_so) {
    const Workplace place;
    const std::string train = "train run.toml --device cpu --set schedule.steps=6 --set run.name=";
    check_exit(run(train + "exact", place.path()), 0);
    const Result result = run(train + "asked --set precision.compute=bf16", place.path(), 2, "ONEDNN_MAX_CPU_ISA=AVX2");
    check_exit(result, 0);
    BOOST_TEST(count_of(result.error, "this launch computes in fp32") == 1u, result);
    BOOST_TEST(contains(read_file(place.path() / "runs/asked/run.toml"), "compute = \"fp32\""));
    BOOST_TEST(largest_difference(numbers_of(place.path(), "loss", "exact"),
                                  numbers_of(place.path(), "loss", "asked")) < 2e-6);
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(bf16_training)

BOOST_DATA_TEST_CASE(losses_stay_within_a_percent_of_those_in_fp32, data::make({gpt2, ttt_linear}), model) {
    const Workplace place;
    write_file(place.path() / "long.txt", make_text(200000, 5));
    // With 32 sequences a step; with 8 the steps are so noisy that rounding alone moves the course by a percent.
    std::map<std::string, std::map<int, double>> losses;
    for (const std::string compute : {"fp32", "bf16"}) {
        const Result result =
            run("train run.toml --device cpu --set 'data.train=[\"long.txt\"]' --set data.validation=0.01 "
                "--set model.context=64 --set batch.global=32 --set batch.micro=8 --set schedule.steps=300 "
                "--set schedule.warmup=20 --set schedule.peak_lr=1e-3 --set checkpoint.every=300 --set run.name=" +
                    compute + " --set precision.compute=" + compute + " " + model,
                place.path(), 0, "LOCKSTEP_CPU_BF16=1");
        check_exit(result, 0);
        losses[compute] = numbers_of(place.path(), "loss", compute);
        BOOST_TEST_REQUIRE(losses[compute].size() == 300u);
        BOOST_TEST_MESSAGE(model << compute << ": " << result.seconds << " s");
    }
    const auto &exact = losses["fp32"], &rounded = losses["bf16"];
    BOOST_TEST(mean_loss(exact, 300) < 0.7 * mean_loss(exact, 20));  // it learns
    BOOST_TEST((exact != rounded), "bf16 was not computed in bf16");
    for (const int step : {50, 100, 200, 300}) {
        const double expected = mean_loss(exact, step), actual = mean_loss(rounded, step);
        BOOST_TEST_MESSAGE(model << "step " << step << ": " << expected << " in fp32, " << actual << " in bf16");
        BOOST_TEST(std::abs(actual - expected) <= 0.01 * expected, "step " << step);
    }
}

BOOST_AUTO_TEST_SUITE_END()
