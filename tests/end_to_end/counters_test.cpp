// What machines count of steps: from their counters to metrics.jsonl, the trace and summary.
#define BOOST_TEST_MODULE counters
#include <atomic>
#include <chrono>
#include <cmath>
#include <sstream>
#include <thread>

#include "end_to_end/command.hpp"

using namespace lockstep::tests;

BOOST_AUTO_TEST_SUITE(counters)

// Recorded counters that another thread moves on by 1 J every few milliseconds.
BOOST_AUTO_TEST_CASE(energy_is_in_metrics_trace_and_summary) {
    const Workplace place;
    const fs::path zone = place.path() / "machine/sys/class/powercap/intel-rapl:0";
    write_file(zone / "name", "package-0\n");
    write_file(zone / "energy_uj", "0\n");
    std::atomic<bool> over = false;
    std::atomic<int> joules = 0;
    std::thread counter([&] {
        while (!over) {
            write_file(zone / "next", std::to_string(++joules * 1000000) + "\n");
            fs::rename(zone / "next", zone / "energy_uj");
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
    });
    const Result result = run("train run.toml --set run.self_test=false --device cpu", place.path(), 2,
                              "LOCKSTEP_FAULT=energy_root:*:*:" + (place.path() / "machine").string());
    over = true;
    counter.join();
    check_exit(result, 0);
    BOOST_TEST(contains(read_file(run_folder(place.path()) / "log.txt"), "energy: RAPL (package-0), 1 node\n"));
    double sum = 0, tokens = 0;
    std::istringstream metrics(read_file(run_folder(place.path()) / "metrics.jsonl"));
    for (std::string line; std::getline(metrics, line);) {
        const Json json = Json::parse(line);
        if (!json.contains("joules")) continue;
        sum += json["joules"].get<double>();
        tokens += json["tokens"].get<double>();
        BOOST_TEST(json["joules_per_token"] == json["joules"].get<double>() / json["tokens"].get<double>());
    }
    BOOST_TEST(sum > 2);
    BOOST_TEST(sum <= joules);
    const Json totals =
        Json::parse(Process(analyze_program + " summary runs/small --format json", place.path()).wait().out)["totals"];
    BOOST_TEST(std::abs(totals["joules"].get<double>() - sum) < 1e-6);
    BOOST_TEST(std::abs(totals["joules_per_token"].get<double>() - sum / tokens) < 1e-9);
    const Result text = Process(analyze_program + " summary runs/small", place.path()).wait();
    BOOST_TEST(contains(text.out, "Energy: "), text);

    const Result without = run("train run.toml --set run.self_test=false --set run.name=without --device cpu",
                               place.path(), 2, "LOCKSTEP_FAULT=energy_root:*:*:/nowhere");
    check_exit(without, 0);
    BOOST_TEST(contains(read_file(place.path() / "runs/without/log.txt"), "energy is not measured: no counters found"));
    BOOST_TEST(!contains(read_file(place.path() / "runs/without/metrics.jsonl"), "joules"));
}

#ifdef LOCKSTEP_STAND_IN_PAPI
// By the stand-in's clock: 1.5 instructions a cycle at 2 GHz.
BOOST_AUTO_TEST_CASE(instructions_and_cycles_are_in_metrics_trace_and_summary) {
    const Workplace place;
    const std::string train = "train run.toml --set run.self_test=false --device cpu --set run.name=";
    const Result result =
        run(train + "counted", place.path(), 2, "LD_PRELOAD=" + build_path("tests/unit/device/libstand_in_papi.so"));
    check_exit(result, 0);
    BOOST_TEST(contains(read_file(place.path() / "runs/counted/log.txt"),
                        "processor counters: instructions and cycles, by PAPI\n"));
    double sum = 0;
    int lines = 0;
    std::istringstream metrics(read_file(place.path() / "runs/counted/metrics.jsonl"));
    for (std::string line; std::getline(metrics, line);) {
        const Json json = Json::parse(line);
        if (!json.contains("seconds")) continue;
        ++lines;
        BOOST_TEST_REQUIRE(json.contains("instructions"), line);
        sum += json["instructions"].get<double>();
        BOOST_TEST(std::abs(json["instructions_per_cycle"].get<double>() - 1.5) < 1e-3);
        BOOST_TEST(std::abs(json["cycles_per_second"].get<double>() / 2e9 - 1) < 0.2);
    }
    BOOST_TEST(lines > 0);
    const Json totals = Json::parse(
        Process(analyze_program + " summary runs/counted --format json", place.path()).wait().out)["totals"];
    BOOST_TEST(std::abs(totals["instructions"].get<double>() / sum - 1) < 1e-9);
    BOOST_TEST(std::abs(totals["instructions_per_cycle"].get<double>() - 1.5) < 1e-3);
    const Result text = Process(analyze_program + " summary runs/counted", place.path()).wait();
    BOOST_TEST(contains(text.out, " instructions, 1.5 per cycle; "), text);

    const Result lost =
        run(train + "lost", place.path(), 2,
            "LOCKSTEP_PAPI_FAILS=later LD_PRELOAD=" + build_path("tests/unit/device/libstand_in_papi.so"));
    check_exit(lost, 0);
    BOOST_TEST(contains(lost.error, "processors are no longer counted (PAPI: the stand-in's error)"), lost);
    BOOST_TEST(!contains(read_file(place.path() / "runs/lost/metrics.jsonl"), "instructions"));

    const Result without =
        run(train + "without", place.path(), 2,
            "LOCKSTEP_PAPI_FAILS=query_event LD_PRELOAD=" + build_path("tests/unit/device/libstand_in_papi.so"));
    check_exit(without, 0);
    BOOST_TEST(contains(read_file(place.path() / "runs/without/log.txt"),
                        "processor counters are not read: no hardware counters (PAPI: the stand-in's error)\n"));
    BOOST_TEST(!contains(read_file(place.path() / "runs/without/metrics.jsonl"), "instructions"));

    const Result off = run(train + "off --set trace.counters=false", place.path(), 2,
                           "LD_PRELOAD=" + build_path("tests/unit/device/libstand_in_papi.so"));
    check_exit(off, 0);
    BOOST_TEST(!contains(read_file(place.path() / "runs/off/log.txt"), "processor counters"));
    BOOST_TEST(!contains(read_file(place.path() / "runs/off/log.txt"), "energy"));
    BOOST_TEST(!contains(read_file(place.path() / "runs/off/metrics.jsonl"), "instructions"));
}
#endif

BOOST_AUTO_TEST_SUITE_END()
