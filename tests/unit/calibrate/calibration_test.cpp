// What a calibration says of the machine that it ran on, and what is left of one that was cut off.
#define BOOST_TEST_MODULE calibration
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>

#include "calibrate/calibration.hpp"
#include "calibrate/kept_rounds.hpp"
#include "calibrate/other_load.hpp"
#include "unit/trace/synthetic_trace.hpp"

using namespace lockstep;
using namespace lockstep::calibrate;
using cluster::CpuSet;
using trace::test::TemporaryFolder;

BOOST_AUTO_TEST_CASE(other_programs_are_seen_on_the_cores_that_count) {
    //                            user nice system idle iowait irq softirq steal guest
    const std::string before =
                          "cpu  1 1 1 1 1 1 1 1 1 1\ncpu0 100 0 50 800 50 0 0 0 0 0\ncpu1 0 0 0 900 100 0 0 0 0 0\n"
                          "cpu12 7 0 0 5 0 0 0 0 0 0\nintr 12345\nctxt 99\n",
                      after =
                          "cpu  2 2 2 2 2 2 2 2 2 2\ncpu0 130 20 70 820 60 0 0 0 30 0\ncpu1 40 0 0 900 100 5 5 50 0 0\n"
                          "cpu12 7 0 0 5 0 0 0 0 0 0\nintr 12399\nctxt 100\n";
    BOOST_TEST(busy_cores(before, after, CpuSet({0})).value() == 0.7);  // 30 + 20 + 20 of 100
    BOOST_TEST(busy_cores(before, after, CpuSet({1})).value() == 1.0);
    BOOST_TEST(busy_cores(before, after, CpuSet({0, 1})).value() == 1.7);
    BOOST_TEST(busy_cores(before, after, CpuSet({12})).value() == 0.0);  // between no two ticks
    BOOST_TEST(!busy_cores(before, after, CpuSet({0, 2})));
    BOOST_TEST(!busy_cores("", "", CpuSet({0})));
}

BOOST_AUTO_TEST_CASE(rounds_go_on_after_those_that_were_finished) {
    const auto measure = [](Rounds& rounds, double a, double b) {
        rounds.begin();
        rounds.seconds([&] { return a; });
        rounds.seconds([&] { return b; });
        BOOST_TEST(rounds.at_end());
    };
    Rounds first;
    BOOST_TEST(first.finished() == 0);
    BOOST_TEST(first.spread() == 0);
    measure(first, 1, 10);
    BOOST_TEST(first.spread() == 0);
    measure(first, 1.5, 11);
    Rounds second(first.times());
    BOOST_TEST(second.finished() == 2);
    measure(second, 2, 12);
    BOOST_TEST(second.finished() == 3);
    // (2 − 1) / 1.5 and (12 − 10) / 11, the larger of two.
    BOOST_TEST(second.spread() == 1 / 1.5);
    second.end_measuring();
    second.begin();
    const auto no_measurement = []() -> double { throw std::logic_error("measured again"); };
    BOOST_TEST(second.seconds(no_measurement) == 1.5);
    BOOST_TEST(second.seconds(no_measurement) == 11);
}

BOOST_AUTO_TEST_CASE(finished_rounds_are_kept_for_the_same_settings) {
    const TemporaryFolder folder("rounds");
    const std::string path = rounds_file(folder / "machine.toml");
    const std::vector<std::vector<double>> times = {{0.1, 1e-7}, {1.0 / 3, 2}};
    BOOST_TEST(read_rounds(path, "2 ranks").seconds.empty());
    write_rounds(path, "2 ranks", {times, 0.5});
    BOOST_TEST((read_rounds(path, "2 ranks").seconds == times));
    BOOST_TEST(read_rounds(path, "2 ranks").busy_share == 0.5);
    BOOST_TEST(read_rounds(path, "3 ranks").seconds.empty());
    BOOST_TEST(read_rounds(path, "3 ranks").busy_share == 0);
    for (const char* text : {"", "{", "[]", R"({"settings": "2 ranks", "busy_share": 0, "seconds": [[1, 2], [3]]})",
                             R"({"settings": "2 ranks", "busy_share": 0, "seconds": [[]]})",
                             R"({"settings": "2 ranks", "busy_share": 0, "seconds": 7})"}) {
        std::ofstream(path) << text;
        BOOST_TEST(read_rounds(path, "2 ranks").seconds.empty(), text);
    }
}

BOOST_AUTO_TEST_CASE(doubtful_rates_say_why) {
    config::Rates rates;
    BOOST_TEST(rates.doubt() == "");
    rates.busy_share = 0.1;
    rates.repeat_spread = 0.08;
    BOOST_TEST(rates.doubt() == "");
    rates.repeat_spread = 0.34;
    BOOST_TEST(rates.doubt() == "repeats of a measurement differ by 34 %");
    rates.busy_share = 0.95;
    BOOST_TEST(rates.doubt() == "other programs used 95 % of the cores, and repeats of a measurement differ by 34 %");
}
