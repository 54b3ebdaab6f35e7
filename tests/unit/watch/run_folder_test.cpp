// The files of a run's folder that rank 0 writes while it trains.
#define BOOST_TEST_MODULE run_folder
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "unit/data/temporary_folder.hpp"
#include "watch/run_folder.hpp"
#include "watch/watch_folder.hpp"
#include "watch/watchdog.hpp"

using namespace lockstep;
using Json = nlohmann::json;

namespace {

trace::StepNumbers numbers_of(std::int64_t step) {
    trace::StepNumbers numbers;
    numbers.step = step;
    numbers.loss = 2.5;
    numbers.learning_rate = 1e-3;
    numbers.gradient_norm = 0.5;
    numbers.tokens = 1000;
    numbers.batch = 10;
    numbers.loss_scale = 1024;
    numbers.seconds = 0.25;
    numbers.model_flop = 3e6;
    numbers.zero_gradients = 7;
    return numbers;
}

std::vector<Json> lines_of(const std::string& path) {
    std::vector<Json> lines;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
    return lines;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_step_is_one_line_of_metrics) {
    const TemporaryFolder place;
    watch::RunFolder folder(place.path("run"));
    folder.open_metrics(0);
    folder.write_step(numbers_of(1));
    trace::StepNumbers skipped = numbers_of(2);
    skipped.skipped = 1;
    skipped.loss = std::nan("");
    folder.write_step(skipped);
    const std::vector<Json> lines = lines_of(folder.path() + "/metrics.jsonl");
    BOOST_REQUIRE(lines.size() == 2u);
    const Json expected = {
        {"step", 1},      {"loss", 2.5},          {"learning_rate", 1e-3},       {"gradient_norm", 0.5},
        {"tokens", 1000}, {"seconds", 0.25},      {"tokens_per_second", 4000.0}, {"flop_per_second", 12e6},
        {"batch", 10},    {"loss_scale", 1024.0}, {"zero_gradients", 7}};
    BOOST_TEST(lines[0] == expected);
    BOOST_TEST(lines[1]["skipped"] == true);
    BOOST_TEST(lines[1]["loss"].is_null());  // JSON has no NaN
}

BOOST_AUTO_TEST_CASE(a_resumed_run_writes_later_lines_again) {
    const TemporaryFolder place;
    const std::string path = place.path("run");
    {
        watch::RunFolder folder(path);
        folder.open_metrics(0);
        for (const std::int64_t step : {1, 2, 3}) folder.write_step(numbers_of(step));
        folder.write_validation(3, 2.25, 0);
    }
    std::ofstream(path + "/metrics.jsonl", std::ios::app) << "{\"step\": 4, \"lo";  // cut off by a crash
    watch::RunFolder folder(path);
    folder.open_metrics(2);
    folder.write_step(numbers_of(3));
    const std::vector<Json> lines = lines_of(path + "/metrics.jsonl");
    BOOST_REQUIRE(lines.size() == 3u);
    for (std::size_t i = 0; i < lines.size(); ++i) BOOST_TEST(lines[i]["step"] == i + 1);
}

BOOST_AUTO_TEST_CASE(the_status_names_the_nodes_that_are_lost) {
    const TemporaryFolder place;
    watch::RunFolder::write_status(place.path("."), "failed", 7, 5, "no progress", {{"n2"}, {"n3", "n4"}});
    std::ifstream file(place.path("status.json"));
    const Json status = Json::parse(file);
    BOOST_TEST(status["lost_nodes"] == Json({"n2"}));
    BOOST_TEST(status["suspects"] == (Json{"n3", "n4"}));
    watch::RunFolder::write_status(place.path("."), "running", 8, 0, "");
    std::ifstream again(place.path("status.json"));
    BOOST_TEST(Json::parse(again)["lost_nodes"] == Json::array());
}

BOOST_AUTO_TEST_CASE(one_launch_has_one_last_word) {
    const TemporaryFolder place;
    const std::string run = place.path(".");
    BOOST_TEST(watch::make_watch_folder(run, "key"));
    BOOST_TEST(!watch::make_watch_folder(run + "/none", "key"));
    BOOST_TEST(!watch::final_status_is_claimed(run, "key"));
    BOOST_TEST(watch::claim_final_status(run, "key"));
    BOOST_TEST(!watch::claim_final_status(run, "key"));
    BOOST_TEST(watch::final_status_is_claimed(run, "key"));
    BOOST_TEST(!watch::close_watch_folder(run, "key"));
    // One that ends by itself.
    BOOST_TEST(watch::make_watch_folder(run, "done"));
    BOOST_TEST(watch::close_watch_folder(run, "done"));
    BOOST_TEST(!watch::claim_final_status(run, "done"));
    BOOST_TEST(!watch::close_watch_folder(run, "done"));
    // The next launch of the run removes it.
    BOOST_TEST(watch::make_watch_folder(run, "late"));
    watch::remove_watch_folders(run);
    BOOST_TEST(watch::final_status_is_claimed(run, "late"));
    BOOST_TEST(std::filesystem::is_empty(run));
}

BOOST_AUTO_TEST_CASE(the_lock_shows_that_the_run_lives) {
    namespace fs = std::filesystem;
    const TemporaryFolder place;
    const watch::RunFolder run(place.path("run"));
    const std::string lock = place.path("run/lock");
    const auto long_ago = fs::last_write_time(lock) - std::chrono::hours(1);
    fs::last_write_time(lock, long_ago);
    watch::WatchOptions options;
    options.run_path = run.path();
    const watch::Watchdog watchdog(options);
    for (int tries = 0; tries < 100 && fs::last_write_time(lock) == long_ago; ++tries)
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    BOOST_TEST((fs::last_write_time(lock) > long_ago));
}

BOOST_AUTO_TEST_CASE(lines_that_are_no_metrics_are_kept_beside_earlier_ones) {
    const TemporaryFolder place;
    watch::RunFolder folder(place.path("run"));
    const std::string metrics = folder.path() + "/metrics.jsonl";
    std::string broken;
    for (const char* garbage : {"half a li", "{\"step\": 18446744073709551615}", "{\"step\": 1.5}"}) {
        folder.open_metrics(1);
        folder.write_step(numbers_of(1));
        std::ofstream(metrics, std::ios::app) << garbage << '\n';
        folder.open_metrics(1);
        broken += garbage + std::string("\n");
        std::ifstream kept(metrics + ".broken");
        BOOST_TEST((std::string(std::istreambuf_iterator<char>(kept), {}) == broken), garbage);
        BOOST_TEST(!lines_of(metrics).empty());
    }
}

BOOST_AUTO_TEST_CASE(a_status_is_written_whatever_bytes_its_reason_has) {
    const TemporaryFolder place;
    const watch::RunFolder folder(place.path("run"));
    watch::RunFolder::write_status(folder.path(), "failed", 3, 1, "caf\xe9 cannot be written");
    std::ifstream file(folder.path() + "/status.json");
    const Json status = Json::parse(file);
    BOOST_TEST(status["state"] == "failed");
    BOOST_TEST(status["reason"].get<std::string>().find("cannot be written") != std::string::npos);
}
