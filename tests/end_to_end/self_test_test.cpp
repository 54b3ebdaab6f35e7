// What a run says of its ranks: measured before the first step, and compared while it trains.
#define BOOST_TEST_MODULE self_test
#include <sched.h>

#include <algorithm>
#include <sstream>

#include "end_to_end/command.hpp"

using namespace lockstep::tests;

namespace {

// Ranks that share a core are not compared.
bool cores_for(int ranks) {
    cpu_set_t allowed;
    BOOST_TEST_REQUIRE(::sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    if (CPU_COUNT(&allowed) >= ranks) return true;
    BOOST_TEST_MESSAGE("skipped: there are fewer cores than ranks");
    return false;
}

std::string line_with(const std::string& text, const std::string& part) {
    const auto at = text.find(part);
    if (at == std::string::npos) return "";
    const auto begin = text.rfind('\n', at) + 1;
    return text.substr(begin, text.find('\n', at) - begin);
}

fs::path rates_file(const fs::path& folder) {
    return run_folder(folder) / "rates.json";
}

}  // namespace

BOOST_AUTO_TEST_SUITE(self_test)

BOOST_AUTO_TEST_CASE(rates_are_said_in_one_line_and_kept) {
    const Workplace place;
    const Result result = run("train run.toml --set run.self_test=true --device cpu", place.path(), 2);
    check_exit(result, 0);
    BOOST_TEST(count_of(result.error, "self-test in ") == 1u, result);
    const std::string line = line_with(result.error, "self-test in ");
    for (const char* part :
         {"matrix products ", "FLOP/s per rank (lowest ", "all-reduce of replicas ", " us; ", "checkpoint folder "})
        BOOST_TEST(contains(line, part), "'" << part << "' is missing: " << line);
    BOOST_TEST(!contains(line, "tensor"), line);
    BOOST_TEST(!contains(line, "messages"), line);
    const Json rates = Json::parse(read_file(rates_file(place.path())));
    BOOST_TEST(rates["ranks"] == 2);
    BOOST_TEST(rates["hosts"].size() == 1u);
    BOOST_TEST(rates["precision"] == "fp32");
    BOOST_TEST(rates["rates"]["matrix products"]["groups"] == 2);
    BOOST_TEST(rates["rates"]["matrix products"]["lowest"].get<double>() > 1e8);
    BOOST_TEST(rates["rates"]["all-reduce of replicas"]["ranks_of_a_group"] == 2);
    BOOST_TEST(rates["rates"]["checkpoint folder"]["median"].get<double>() > 0);
    const auto names = checkpoints_in(place.path());
    BOOST_TEST(std::none_of(names.begin(), names.end(), [](const auto& name) { return contains(name, "probe"); }));
}

BOOST_AUTO_TEST_CASE(it_can_be_left_out) {
    const Workplace place;
    const Result result =
        run("train run.toml --set run.self_test=false", place.path(), 2, "LOCKSTEP_FAULT=self_test_product:*:0:wrong");
    check_exit(result, 0);
    BOOST_TEST(!contains(result.error, "self-test"), result);
    BOOST_TEST(!fs::exists(rates_file(place.path())));
}

BOOST_AUTO_TEST_CASE(a_wrong_product_ends_the_run) {
    const Workplace place;
    const Result result =
        run("train run.toml --set run.self_test=true", place.path(), 3, "LOCKSTEP_FAULT=self_test_product:2:0:wrong");
    check_exit(result, 1);
    BOOST_TEST(count_of(result.error, "error: ") == 1u, result);
    BOOST_TEST(contains(result.error, "error: rank 2 (host "), result);
    BOOST_TEST(contains(result.error, "of a matrix product of 96 x 96 numbers is "), result);
    BOOST_TEST(status_of(place.path())["state"] == "failed");
    BOOST_TEST(checkpoints_in(place.path()).empty());
}

BOOST_AUTO_TEST_CASE(a_wrong_sum_ends_the_run) {
    const Workplace place;
    const Result result = run("train run.toml --set run.self_test=true", place.path(), 3,
                              "LOCKSTEP_FAULT=self_test_all_reduce:1:0:wrong");
    check_exit(result, 1);
    BOOST_TEST(count_of(result.error, "error: ") == 1u, result);
    // 0 + 5, 1 + 5 and 2 + 5.
    BOOST_TEST(contains(result.error, "all-reduce of replicas over ranks 0, 1, 2 gave 19 for element 5 instead of 18"),
               result);
    BOOST_TEST(contains(result.error, "error: rank 1 (host "), result);
}

BOOST_AUTO_TEST_CASE(a_rank_with_slow_products_is_named) {
    if (!cores_for(2)) return;
    const Workplace place;
    const Result result =
        run("train run.toml --set run.self_test=true", place.path(), 2, "LOCKSTEP_FAULT=self_test_product:1:0:slow");
    check_exit(result, 0);
    const std::string line = line_with(result.error, "matrix products at ");
    BOOST_TEST(contains(line, "warning: rank 1 (host "), result);
    BOOST_TEST(contains(line, "of the median of 2 ranks"), result);
}

BOOST_AUTO_TEST_CASE(rates_are_compared_with_the_launch_before) {
    const Workplace place;
    check_exit(run("train run.toml --set run.self_test=true --stop-at 4", place.path()), 4);
    Json rates = Json::parse(read_file(rates_file(place.path())));
    const double median = rates["rates"]["matrix products"]["median"];
    rates["rates"]["matrix products"]["median"] = 10 * median;
    write_file(rates_file(place.path()), rates.dump());
    const Result second = run("train run.toml --set run.self_test=true --resume auto --stop-at 6", place.path());
    check_exit(second, 4);
    BOOST_TEST(count_of(second.error, "warning: matrix products: ") == 1u, second);
    BOOST_TEST(contains(second.error, "at the launch of " + rates["time"].get<std::string>()), second);
    // That launch has left its own rates; a malformed file is ignored.
    BOOST_TEST(Json::parse(read_file(rates_file(place.path())))["rates"]["matrix products"]["median"].get<double>() <
               5 * median);
    write_file(rates_file(place.path()), "{\"rates\": ");
    const Result third =
        run("train run.toml --set run.self_test=true --resume auto --stop-at 8", place.path(), 0, "LOCKSTEP_LOG=debug");
    check_exit(third, 4);
    BOOST_TEST(contains(third.error, "rates.json is malformed"), third);
    BOOST_TEST(Json::parse(read_file(rates_file(place.path())))["ranks"] == 1);
}

BOOST_AUTO_TEST_CASE(a_folder_that_cannot_be_written_is_refused) {
    const Workplace place;
    // Where the probe of rank 0 would go there is a folder: also root cannot write it.
    fs::create_directories(place.path() / "checkpoints" / "small" / "probe-0.tmp" / "in the way");
    const Result result = run("train run.toml --set run.self_test=true", place.path(), 2);
    check_exit(result, 2);
    BOOST_TEST(count_of(result.error, "error: the checkpoint folder checkpoints/small cannot be written: ") == 1u,
               result);
    BOOST_TEST(contains(result.error, "(rank 0, host "), result);
}

BOOST_AUTO_TEST_CASE(all_groups_of_a_grid_are_measured) {
    const Workplace place;
    struct Grid {
        const char* settings;
        int ranks;
        std::vector<std::string> has;
    };
    const std::vector<Grid> grids = {
        {"--set parallel.tensor=2 --set parallel.pipeline=2",
         4,
         {"all-reduce of tensor", "all-reduce of model", "all-reduce of ends", "messages of activations",
          "messages of gradients"}},
        {"--set parallel.context=2 --set parallel.tensor=2",
         4,
         {"all-reduce of tensor", "all-reduce of replicas", "messages of context"}},
        {"--set parallel.pipeline=3 --set model.layers=3", 3, {"all-reduce of ends", "messages of activations"}},
        {"--set parallel.pipeline=2 --set parallel.context=2 --set parallel.data=1",
         4,
         {"all-reduce of replicas", "messages of context", "messages of gradients"}}};
    int number = 0;
    for (const Grid& grid : grids) {
        const std::string name = "grid-" + std::to_string(++number);
        // Reliance on buffered messages hangs at once.
        const Result result =
            run("train run.toml --set run.self_test=true --device cpu --set batch.micro=0 --set schedule.steps=4 --set "
                "run.name=" +
                    name + " " + grid.settings,
                place.path(), grid.ranks, "LOCKSTEP_SYNCHRONOUS_SENDS=1 OMP_NUM_THREADS=1");
        check_exit(result, 0);
        const std::string line = line_with(result.error, "self-test in ");
        for (const auto& part : grid.has) BOOST_TEST(contains(line, part), "'" << part << "' is missing: " << line);
    }
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(slow_ranks)

BOOST_AUTO_TEST_CASE(the_rank_that_works_longer_is_named_once) {
    const Workplace place;
    const Result result =
        run("train run.toml --set run.self_test=true --device cpu --set schedule.steps=90 --set checkpoint.every=0",
            place.path(), 2, "LOCKSTEP_FAULT=step_work:1:*:slow,slow_ranks:1:*:elsewhere");
    check_exit(result, 0);
    BOOST_TEST(count_of(result.error, " slower per step than ") == 1u, result);
    const std::string line = line_with(result.error, " slower per step than ");
    BOOST_TEST(contains(line, "warning: rank 1 (host "), line);
    BOOST_TEST(contains(line, "the median of the 2 ranks with the same part of the model"), line);
}

BOOST_AUTO_TEST_CASE(two_ranks_on_one_machine_are_not_compared) {
    const Workplace place;
    const Result result =
        run("train run.toml --set run.self_test=true --device cpu --set schedule.steps=90 --set checkpoint.every=0",
            place.path(), 2, "LOCKSTEP_FAULT=step_work:1:*:slow");
    check_exit(result, 0);
    BOOST_TEST(!contains(result.error, " slower per step than "), result);
}

BOOST_AUTO_TEST_CASE(stages_of_a_pipeline_are_not_compared) {
    const Workplace place;
    const Result result =
        run("train run.toml --set run.self_test=true --device cpu --set schedule.steps=90 --set checkpoint.every=0 "
            "--set parallel.pipeline=2",
            place.path(), 2, "LOCKSTEP_FAULT=step_work:1:*:slow,slow_ranks:1:*:elsewhere");
    check_exit(result, 0);
    BOOST_TEST(!contains(result.error, " slower per step than "), result);
}

BOOST_AUTO_TEST_SUITE_END()
