// lockstep-analyze summary on traces whose every figure can be computed by hand.
#define BOOST_TEST_MODULE summary
#include <sys/wait.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "analysis/load/measurement.hpp"
#include "base/error.hpp"
#include "unit/analysis/program.hpp"
#include "unit/trace/synthetic_trace.hpp"

using namespace lockstep;
using namespace lockstep::analysis;
using test::analyze;
using test::Output;
using trace::test::make_header;
using trace::test::TemporaryFolder;

namespace {

struct Known {
    const char* path;
    double seconds;  // a step, on rank 0; rank r takes r + 1 times as long
    std::uint32_t calls;
};
// Inclusive times, as the tracer writes them.
const std::vector<Known> every_step = {
    {"initialization", 0, 0},
    {"epoch", 4.1, 0},
    {"epoch/step", 4.0, 1},
    {"epoch/step/data_loading", 0.1, 2},
    {"epoch/step/data_movement", 0.05, 2},
    {"epoch/step/forward", 1.0, 4},
    {"epoch/step/forward/loss", 0.2, 4},
    {"epoch/step/backward", 2.0, 4},
    {"epoch/step/backward/communication", 0.5, 1},
    {"epoch/step/communication", 0.3, 3},
    {"epoch/step/communication/data", 0.2, 2},
    {"epoch/step/communication/control", 0.1, 1},
    {"epoch/step/optimizer", 0.4, 1},
    {"validation", 0, 0},
    {"validation/forward", 0, 0},
    {"checkpoint", 0, 0},
};

trace::RowBatch known_block(std::int64_t first, std::int64_t last, std::size_t ranks) {
    trace::RowBatch block;
    for (std::int64_t step = first; step <= last; ++step) {
        trace::StepRow row;
        row.step = step;
        row.epoch = (step - 1) / 2;
        row.loss = static_cast<double>(step);
        row.tokens = 1000;
        row.seconds = 8;
        row.model_flop = 1e6;
        row.skipped = step == 3 ? 1 : 0;
        block.steps.push_back(row);
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            block.rank_loss.push_back(static_cast<double>(step) + 0.5 * static_cast<double>(rank));
            block.overhead.push_back(0.01);
            for (const std::uint64_t bytes : {100u, 200u, 1000u})
                block.memory.push_back(bytes * static_cast<std::uint64_t>(step) + rank);
            for (Known known : every_step) {
                const std::string path = known.path;
                if (path == "initialization" && step == 1) known = {"", 5.0, 1};
                if (path == "validation" && step == 4) known = {"", 0.7, 1};
                if (path == "validation/forward" && step == 4) known = {"", 0.6, 8};
                if (path == "checkpoint" && step % 2 == 0) known = {"", 0.2, 1};
                block.times.push_back(known.seconds * static_cast<double>(rank + 1));
                block.calls.push_back(known.calls);
            }
        }
    }
    return block;
}

trace::Header known_header(std::size_t ranks) {
    std::vector<std::string> paths;
    for (const Known& known : every_step) paths.emplace_back(known.path);
    return make_header(ranks, paths);
}

void write_known_trace(const std::string& folder, bool closed = true) {
    trace::TraceWriter writer(folder, known_header(2), 10);
    writer.append(known_block(1, 4, 2));
    if (closed) writer.finish();
}

constexpr double tolerance = 1e-9;
void check(double value, double expected) {
    BOOST_TEST(std::abs(value - expected) <= tolerance * std::abs(expected), value << " is not " << expected);
}

struct Expected {
    const char* phase;
    double seconds, calls;
};
// Of rank 0 over the four steps.
const std::vector<Expected> whole_run = {
    {"initialization", 5.0, 1}, {"data_loading", 0.4, 8}, {"data_movement", 0.2, 8},  {"forward", 3.2, 16},
    {"loss", 0.8, 16},          {"backward", 6.0, 16},    {"communication", 3.2, 16}, {"optimizer", 1.6, 4},
    {"validation", 0.7, 1},     {"checkpoint", 0.4, 2},   {"other", 1.0, 0},
};
constexpr double whole_total = 22.5;

}  // namespace

BOOST_AUTO_TEST_CASE(json_holds_the_known_figures) {
    const TemporaryFolder folder("summary-json");
    write_known_trace(folder / "run");
    std::ofstream(folder / "run/status.json") << R"({"outcome": "finished", "exit_code": 0})";
    const Output output = analyze(folder, "summary --format json " + (folder / "run"));
    BOOST_REQUIRE(output.code == 0);
    const auto json = nlohmann::json::parse(output.text);
    for (const char* key : {"configuration", "ranks", "average", "epochs", "steps", "overhead", "notes"})
        BOOST_TEST(json.contains(key), key);
    BOOST_TEST(json["configuration"]["mixer"] == "ttt-linear");
    BOOST_TEST(json["configuration"]["width"] == 64);
    BOOST_TEST(json["configuration"]["ranks"] == 2);
    BOOST_TEST(json["configuration"]["threads"] == 4);
    BOOST_TEST(json["configuration"]["commit"] == "0123456789ab");
    BOOST_TEST(json["status"]["outcome"] == "finished");
    BOOST_REQUIRE(json["ranks"].size() == 2);
    for (std::size_t rank = 0; rank < 2; ++rank) {
        const double factor = static_cast<double>(rank + 1);
        const auto& of_rank = json["ranks"][rank];
        BOOST_TEST(of_rank["rank"] == rank);
        for (const Expected& expected : whole_run) {
            const auto& phase = of_rank["phases"][expected.phase];
            check(phase["seconds"], factor * expected.seconds);
            BOOST_TEST(phase["calls"] == expected.calls);
            check(phase["share"], expected.seconds / whole_total);
            if (expected.calls > 0) check(phase["mean_seconds"], factor * expected.seconds / expected.calls);
        }
        check(of_rank["loss"]["first"], 1 + 0.5 * static_cast<double>(rank));
        check(of_rank["loss"]["last"], 4 + 0.5 * static_cast<double>(rank));
        check(of_rank["loss"]["mean"], 2.5 + 0.5 * static_cast<double>(rank));
        check(of_rank["forward_latency"]["mean_seconds"], 0.2 * factor);
        check(of_rank["forward_latency"]["median_seconds"], 0.2 * factor);
        check(of_rank["tokens_per_second"], 2000 / (16 * factor));
        BOOST_TEST(of_rank["peak_memory_bytes"] == 4000 + rank);
        BOOST_TEST(of_rank["allocated_memory_bytes"] == 400 + rank);
    }
    for (const Expected& expected : whole_run)
        check(json["average"]["phases"][expected.phase]["seconds"], 1.5 * expected.seconds);
    check(json["average"]["forward_latency"]["mean_seconds"], 0.3);
    check(json["average"]["forward_latency"]["median_seconds"], 0.3);
    check(json["totals"]["tokens_per_second"], 125);
    check(json["totals"]["model_flop_per_second"], 125000);
    BOOST_TEST(json["totals"]["skipped_steps"] == 1);
    check(json["overhead"]["share"], 0.08 / (3 * whole_total));
    check(json["overhead"]["seconds"], 0.04);
    check(json["communication"]["data"]["seconds"], 1.5 * 4 * 0.2);
    check(json["communication"]["data"]["least_seconds"], 4 * 0.2);
    check(json["communication"]["control"]["most_seconds"], 2 * 4 * 0.1);
    BOOST_TEST(json["configuration"]["grid"] == "2 x 1 x 1 x 1");

    BOOST_REQUIRE(json["epochs"].size() == 2);
    BOOST_TEST(json["epochs"][1]["epoch"] == 1);
    BOOST_TEST(json["epochs"][1]["steps"] == 2);
    check(json["epochs"][1]["loss"], 3.5);
    check(json["epochs"][1]["phases"]["validation"]["seconds"], 1.5 * 0.7);
    check(json["epochs"][0]["phases"]["initialization"]["slowest_seconds"], 10.0);
    check(json["epochs"][0]["ranks"][1]["phases"]["backward"]["seconds"], 2 * 3.0);
    BOOST_REQUIRE(json["steps"].size() == 4);
    BOOST_TEST(json["steps"][2]["step"] == 3);
    BOOST_TEST(!json["steps"][2].contains("ranks"));
    check(json["steps"][2]["phases"]["forward"]["seconds"], 1.5 * 0.8);
    check(json["steps"][2]["tokens_per_second"], 125);
    const auto by_step =
        nlohmann::json::parse(analyze(folder, "summary --per step --format json " + (folder / "run")).text);
    check(by_step["steps"][2]["ranks"][1]["phases"]["forward"]["seconds"], 2 * 0.8);
}

BOOST_AUTO_TEST_CASE(every_second_belongs_to_one_phase) {
    const trace::Header header = known_header(1);
    const trace::RowBatch block = known_block(4, 4, 1);
    const PhaseSums sums = PhaseMap(header.regions).sums(block.times.data(), block.calls.data());
    check(sums.total(), 4.1 + 0.7 + 0.2);  // the roots: epoch, validation, checkpoint
    // What is inside validation is validation, though it is called forward.
    check(sums.seconds[static_cast<std::size_t>(Phase::validation)], 0.7);
    check(sums.calls[static_cast<std::size_t>(Phase::forward)], 4);
}

BOOST_AUTO_TEST_CASE(csv_has_a_line_per_rank_and_span) {
    const TemporaryFolder folder("summary-csv");
    write_known_trace(folder / "run");
    const auto lines_of = [&](const std::string& arguments) {
        const Output output = analyze(folder, "summary --format csv " + arguments + " " + (folder / "run"));
        BOOST_TEST(output.code == 0);
        std::vector<std::string> lines;
        std::istringstream stream(output.text);
        for (std::string line; std::getline(stream, line);) lines.push_back(line);
        return lines;
    };
    const auto run = lines_of(""), epochs = lines_of("--per epoch"), steps = lines_of("--per step"),
               means = lines_of("--per step --ranks mean");
    BOOST_REQUIRE(run.size() == 1 + 3);
    BOOST_TEST(
        run[0].starts_with("run,rank,steps,initialization_seconds,initialization_calls,initialization_mean_seconds,"));
    BOOST_TEST(run[1].starts_with("synthetic,0,4,5,1,5,"));
    BOOST_TEST(run[3].starts_with("synthetic,mean,4,7.5,1,7.5,"));
    BOOST_TEST(epochs.size() == 1u + 2 * 3);
    BOOST_TEST(steps.size() == 1u + 4 * 3);
    BOOST_TEST(means.size() == 1u + 4);
    BOOST_TEST(means[2].starts_with("synthetic,2,mean,1,"));
}

BOOST_AUTO_TEST_CASE(a_run_of_many_ranks_has_lines_of_each_only_where_asked_for) {
    const TemporaryFolder folder("summary-many");
    constexpr std::size_t ranks = 1025;
    const trace::Header header = known_header(ranks);
    {
        trace::TraceWriter writer(folder / "run", header, 2);
        writer.append(known_block(1, 2, ranks));
        writer.finish();
    }
    const auto text = [&](const std::string& arguments) {
        const Output output = analyze(folder, "summary " + (folder / "run") + " " + arguments);
        BOOST_TEST(output.code == 0, output.errors);
        return output.text;
    };
    const auto lines = [](const std::string& page) { return std::count(page.begin(), page.end(), '\n'); };
    BOOST_TEST(lines(text("")) < 200);
    BOOST_TEST(text("").find("1,025 ranks: --ranks all prints a line for each.") != std::string::npos);
    BOOST_TEST(lines(text("--format csv")) == 2);
    BOOST_TEST(lines(text("--ranks all --format csv")) == 2 + 1025);
    const auto json = analyze(folder, "summary --format json " + (folder / "run")).json();
    BOOST_TEST(json["ranks"].empty());
    const auto all = analyze(folder, "summary --ranks all --format json " + (folder / "run")).json();
    BOOST_TEST(all["ranks"].size() == ranks);
    BOOST_TEST(all["average"] == json["average"]);
}

BOOST_AUTO_TEST_CASE(text_names_all_that_was_asked_for) {
    const TemporaryFolder folder("summary-text");
    write_known_trace(folder / "run");
    for (const std::string format : {"text", "markdown"})
        for (const std::string per : {"run", "epoch", "step"}) {
            const Output output =
                analyze(folder, "summary --format " + format + " --per " + per + " " + (folder / "run"));
            BOOST_TEST(output.code == 0);
            BOOST_TEST(output.errors.empty());
            for (const char* name : phase_names) BOOST_TEST(output.text.find(name) != std::string::npos, name);
            for (const char* words : {"125 tokens/s", "125.0 kFLOP/s", "Skipped steps: 1", "ttt-linear", "mean",
                                      format == "text" ? "memory," : "peak memory"})
                BOOST_TEST(output.text.find(words) != std::string::npos, words);
        }
}

BOOST_AUTO_TEST_CASE(a_crashed_run_is_used_up_to_its_last_flush) {
    const TemporaryFolder folder("summary-crash");
    write_known_trace(folder / "run", false);
    const Output output = analyze(folder, "summary --format json " + (folder / "run"));
    BOOST_REQUIRE(output.code == 0);
    const auto json = nlohmann::json::parse(output.text);
    BOOST_TEST(json["steps"].size() == 4u);
    BOOST_TEST(json["notes"].dump().find("last flush, step 4") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(steps_made_again_count_once) {
    const TemporaryFolder folder("summary-resume");
    write_known_trace(folder / "run", false);
    {
        trace::TraceWriter writer(folder / "run", known_header(2), 10);
        writer.append(known_block(3, 6, 2));
        writer.finish();
    }
    const trace::Run run = trace::open_run(folder / "run");
    MeasureOptions options;
    options.figures.emplace();
    const RunFigures figures = *measure(run, options).figures;
    BOOST_TEST(figures.all.steps == 6);
    BOOST_TEST(figures.all.tokens == 6000);
    BOOST_TEST(figures.steps.back().number == 6);
    check(figures.all.mean.seconds[static_cast<std::size_t>(Phase::forward)], 1.5 * 0.8 * 6);
    BOOST_TEST(run.superseded == 2u);
    BOOST_TEST(figures.epochs.size() == 3u);
}

// Launches of 2, 3, 1 and 2 ranks. A step has 1200 tokens and takes 8 s; rank r spends 4 s × (r + 1) in it.
BOOST_AUTO_TEST_CASE(launches_with_other_numbers_of_ranks) {
    const TemporaryFolder folder("summary-launches");
    const auto launch = [&](std::int64_t first, std::int64_t last, std::size_t ranks, std::int64_t threads, int micro) {
        trace::Header header = known_header(ranks);
        for (auto& rank : header.ranks) rank.threads = threads;
        const auto at = header.description.find("micro = 2");
        header.description.replace(at, 9, "micro = " + std::to_string(micro));
        trace::RowBatch block = known_block(first, last, ranks);
        for (auto& row : block.steps) row.tokens = 1200;
        trace::TraceWriter writer(folder / "run", header, 10);
        writer.append(block);
        writer.finish();
    };
    launch(1, 2, 2, 2, 4);
    launch(3, 3, 3, 1, 2);
    launch(4, 7, 1, 4, 8);
    launch(7, 8, 2, 2, 4);  // step 7 again
    const Output output = analyze(folder, "summary --format json " + (folder / "run"));
    BOOST_REQUIRE(output.code == 0);
    const auto json = nlohmann::json::parse(output.text);
    BOOST_TEST(json["totals"]["tokens"] == 8 * 1200);
    check(json["totals"]["tokens_per_second"], 150);
    BOOST_TEST(json["configuration"]["ranks"] == "2, 3, 1");
    BOOST_TEST(json["configuration"]["threads"] == "2, 1, 4");
    BOOST_TEST(json["configuration"]["micro_batch"] == "4, 2, 8");
    BOOST_TEST(json["configuration"]["hosts"] == "1, 2");
    BOOST_TEST(json["configuration"]["width"] == 64);

    // Rank 0: steps 1, 2, 7, 8 with 600 tokens, 3 with 400, 4 to 6 with 1200. Rank 1: 1, 2, 3, 7, 8. Rank 2: 3.
    struct OfRank {
        std::int64_t steps;
        double tokens, seconds, loss;
    };
    const std::vector<OfRank> of_ranks = {
        {8, 4 * 600 + 400 + 3 * 1200, 8 * 4, 4.5}, {5, 4 * 600 + 400, 5 * 8, 4.7}, {1, 400, 12, 4}};
    BOOST_REQUIRE(json["ranks"].size() == 3u);
    for (std::size_t r = 0; r < 3; ++r) {
        const auto& rank = json["ranks"][r];
        BOOST_TEST(rank["steps"] == of_ranks[r].steps);
        check(rank["tokens"], of_ranks[r].tokens);
        check(rank["tokens_per_second"], of_ranks[r].tokens / of_ranks[r].seconds);
        check(rank["loss"]["mean"], of_ranks[r].loss);
        BOOST_TEST(rank["phases"]["optimizer"]["calls"] == of_ranks[r].steps);
    }
    BOOST_TEST(json["ranks"][0]["threads"] == "2, 1, 4");
    BOOST_TEST(json["ranks"][2]["threads"] == 1);
    // Optimizer: 0.4 s × (r + 1) a step. Means of the steps: 0.6 with two ranks, 0.8 with three, 0.4 with one.
    const auto& optimizer = json["average"]["phases"]["optimizer"];
    check(optimizer["seconds"], 4 * 0.6 + 0.8 + 3 * 0.4);
    BOOST_TEST(optimizer["calls"] == 8);
    // A step's tokens over its ranks: 4 × 600 + 400 + 3 × 1200.
    check(json["average"]["tokens_per_second"], 6400.0 / 64);
    check(json["average"]["loss"]["mean"], (1.25 + 2.25 + 3.5 + 4 + 5 + 6 + 7.25 + 8.25) / 8);
    check(json["overhead"]["seconds"], 8 * 0.01);

    struct OfLaunch {
        std::int64_t first, last, ranks, hosts, threads, micro;
        double mean, slowest;  // optimizer
    };
    const std::vector<OfLaunch> of_launches = {{1, 2, 2, 1, 2, 4, 1.2, 1.6},
                                               {3, 3, 3, 2, 1, 2, 0.8, 1.2},
                                               {4, 6, 1, 1, 4, 8, 1.2, 1.2},
                                               {7, 8, 2, 1, 2, 4, 1.2, 1.6}};
    BOOST_REQUIRE(json["launches"].size() == 4u);
    for (std::size_t i = 0; i < 4; ++i) {
        const auto& found = json["launches"][i];
        const OfLaunch& expected = of_launches[i];
        const std::int64_t steps = expected.last - expected.first + 1;
        BOOST_TEST(found["launch"] == i + 1);
        BOOST_TEST(found["first_step"] == expected.first);
        BOOST_TEST(found["last_step"] == expected.last);
        BOOST_TEST(found["ranks"] == expected.ranks);
        BOOST_TEST(found["hosts"] == expected.hosts);
        BOOST_TEST(found["threads"] == expected.threads);
        BOOST_TEST(found["micro_batch"] == expected.micro);
        check(found["seconds"], 8.0 * static_cast<double>(steps));
        check(found["tokens_per_second"], 150);
        check(found["phases"]["optimizer"]["seconds"], expected.mean);
        check(found["phases"]["optimizer"]["slowest_seconds"], expected.slowest);
    }
    // Epoch 1 holds step 3 of three ranks and step 4 of one.
    const auto& epoch = json["epochs"][1];
    check(epoch["phases"]["optimizer"]["seconds"], 0.8 + 0.4);
    check(epoch["phases"]["optimizer"]["slowest_seconds"], 1.2 + 0.4);
    BOOST_REQUIRE(epoch["ranks"].size() == 3u);
    check(epoch["ranks"][0]["tokens_per_second"], (400.0 + 1200) / 8);
    check(epoch["ranks"][2]["tokens_per_second"], 400.0 / 12);
    BOOST_TEST(json["epochs"][0]["ranks"].size() == 2u);
    BOOST_TEST(json["epochs"][2]["ranks"].size() == 1u);

    const Output page = analyze(folder, "summary --per epoch " + (folder / "run"));
    BOOST_REQUIRE(page.code == 0);
    for (const char* words : {"Launches\n", "from step", "2, 3, 1", "different numbers of ranks", "150 tokens/s"})
        BOOST_TEST(page.text.find(words) != std::string::npos, words);
    const Output lines = analyze(folder, "summary --format csv " + (folder / "run"));
    for (const char* words : {"synthetic,0,8,", "synthetic,1,5,", "synthetic,2,1,", "synthetic,mean,8,"})
        BOOST_TEST(lines.text.find(words) != std::string::npos, words);
}

// A launch that was made again from its first step on has a line and no figures.
BOOST_AUTO_TEST_CASE(a_launch_made_again_as_a_whole) {
    const TemporaryFolder folder("summary-again");
    for (const std::size_t ranks : {3, 2}) {
        trace::TraceWriter writer(folder / "run", known_header(ranks), 10);
        writer.append(known_block(1, 4, ranks));
        writer.finish();
    }
    const auto json = nlohmann::json::parse(analyze(folder, "summary --format json " + (folder / "run")).text);
    BOOST_REQUIRE(json["launches"].size() == 2u);
    BOOST_TEST(json["launches"][0]["steps"] == 0);
    BOOST_TEST(json["launches"][0]["first_step"].is_null());
    BOOST_TEST(json["configuration"]["ranks"] == 2);
    BOOST_TEST(json["ranks"].size() == 2u);
    check(json["ranks"][1]["tokens_per_second"], 2000.0 / 32);
    BOOST_TEST(json["notes"].dump().find("different numbers") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(what_is_empty_is_left_out_and_reserved_memory_is_peak_too) {
    const TemporaryFolder folder("summary-status");
    {
        trace::RowBatch block = known_block(1, 4, 2);
        block.memory[3 * 2 * 3 + 1] = 9000;  // reserved, rank 0, step 4
        trace::TraceWriter writer(folder / "run", known_header(2), 10);
        writer.append(block);
        writer.finish();
    }
    std::ofstream(folder / "run/status.json") << R"({"state": "finished", "step": 4, "reason": "", "time": "now"})";
    const Output page = analyze(folder, "summary " + (folder / "run"));
    BOOST_TEST(page.text.find("Final status (status.json): state finished, step 4, time now.") != std::string::npos);
    BOOST_TEST(page.text.find("Launches\n") == std::string::npos);
    const auto json = nlohmann::json::parse(analyze(folder, "summary --format json " + (folder / "run")).text);
    constexpr std::size_t levels = 300000;
    std::ofstream(folder / "run/status.json")
        << R"({"state": )" << std::string(levels, '[') << std::string(levels, ']') << "}";
    const Output nested = analyze(folder, "summary " + (folder / "run"));
    BOOST_TEST(nested.text.find("status.json cannot be read") != std::string::npos);
    BOOST_TEST(
        nlohmann::json::parse(analyze(folder, "summary --format json " + (folder / "run")).text)["status"].is_null());
    BOOST_TEST(json["ranks"][0]["peak_memory_bytes"] == 9000);
    BOOST_TEST(json["ranks"][1]["peak_memory_bytes"] == 4001);
    BOOST_TEST(json["average"]["largest_peak_memory_bytes"] == 9000);
}

BOOST_AUTO_TEST_CASE(losses_that_are_not_finite_do_not_spoil_the_rest) {
    const TemporaryFolder folder("summary-nan");
    {
        trace::RowBatch block = known_block(1, 4, 2);
        block.rank_loss[4] = block.steps[2].loss = std::numeric_limits<double>::quiet_NaN();
        trace::TraceWriter writer(folder / "run", known_header(2), 10);
        writer.append(block);
        writer.finish();
    }
    const Output output = analyze(folder, "summary --format json " + (folder / "run"));
    BOOST_REQUIRE(output.code == 0);
    const auto json = nlohmann::json::parse(output.text);
    BOOST_TEST(json["steps"][2]["loss"].is_null());
    check(json["ranks"][0]["loss"]["mean"], 7.0 / 3);
}

BOOST_AUTO_TEST_CASE(validations_are_shown_where_there_are_any) {
    const TemporaryFolder folder("summary-validation");
    write_known_trace(folder / "none");
    {
        trace::RowBatch block = known_block(1, 4, 2);
        block.steps[1].validation = {2.5, 3.5, 640};
        block.steps[2].validation = {2.25, 3.25, 640};
        block.steps[3].validation = {2.75, 3.75, 640};
        trace::TraceWriter writer(folder / "run", known_header(2), 10);
        writer.append(block);
        writer.finish();
    }
    const auto json = analyze(folder, "summary --format json " + (folder / "run")).json();
    const auto& totals = json["totals"]["validation"];
    BOOST_TEST(totals["count"] == 3);
    BOOST_TEST(totals["last"]["step"] == 4);
    BOOST_TEST(totals["last"]["loss"] == 2.75);
    BOOST_TEST(totals["last"]["bits_per_byte"] == 3.75);
    BOOST_TEST(totals["last"]["tokens"] == 640);
    BOOST_TEST(totals["best"]["step"] == 3);
    BOOST_TEST(totals["best"]["loss"] == 2.25);
    BOOST_TEST(json["epochs"][0]["validation"]["best"]["loss"] == 2.5);  // steps 1 and 2
    BOOST_TEST(json["steps"][0]["validation"].is_null());
    BOOST_TEST(json["steps"][2]["validation"]["last"]["loss"] == 2.25);

    const auto lines_of = [&](const std::string& arguments, const std::string& run) {
        std::istringstream stream(analyze(folder, "summary " + arguments + " " + (folder / run)).text);
        std::vector<std::string> lines;
        for (std::string line; std::getline(stream, line);) lines.push_back(line);
        return lines;
    };
    const auto run = lines_of("--format csv", "run"), steps = lines_of("--format csv --per step", "run");
    BOOST_TEST(run[0].ends_with(
        ",peak_memory_bytes,validation_step,validation_loss,validation_bits_per_byte,validation_tokens,"
        "best_validation_step,best_validation_loss"));
    BOOST_TEST(run[1].ends_with(",,,,,,"));  // a rank: validations are of the model
    BOOST_TEST(run[3].ends_with(",4,2.75,3.75,640,3,2.25"));
    BOOST_TEST(steps[0].ends_with(
        ",tokens_per_second,validation_step,validation_loss,validation_bits_per_byte,validation_tokens"));
    BOOST_TEST(steps[6].ends_with(",2,2.5,3.5,640"));
    BOOST_TEST(steps[3].ends_with(",,,,"));  // the mean of step 1

    const std::string page = analyze(folder, "summary --per step " + (folder / "run")).text;
    for (const char* words :
         {"Validation loss, 3 validations\n", "bits per byte", "\nlast           4  2.7500         3.7500     640\n",
          "\nbest           3  2.2500         3.2500     640\n", "validation\n", "loss        loss  tokens/s"})
        BOOST_TEST(page.find(words) != std::string::npos, words);
    BOOST_TEST(lines_of("--format csv", "none")[0].ends_with(",peak_memory_bytes"));
    for (const std::string& line : lines_of("--per step", "none"))
        BOOST_TEST(
            (line.find("alidation loss") == std::string::npos && line.find("bits per byte") == std::string::npos),
            line);
}

BOOST_AUTO_TEST_CASE(wrong_input_gets_a_sentence_and_its_code) {
    const TemporaryFolder folder("summary-wrong");
    write_known_trace(folder / "run");
    std::ofstream(folder / "text.txt") << "hello";
    std::ofstream(folder / "empty.h5") << "";
    hdf5::File::create(folder / "other.h5").close();
    std::ifstream whole(folder / "run/trace-001.h5", std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(whole), {});
    std::ofstream(folder / "cut.h5", std::ios::binary) << bytes.substr(0, bytes.size() / 2);
    const auto expect = [&](const std::string& arguments, int code) {
        const Output output = analyze(folder, arguments);
        BOOST_TEST(output.code == code, arguments << " gave " << output.code << ": " << output.errors);
        BOOST_TEST(output.text.empty());
        BOOST_TEST(!output.errors.empty());
        return output.errors;
    };
    const auto lines = [](const std::string& text) { return std::count(text.begin(), text.end(), '\n'); };
    BOOST_TEST(lines(expect("summary " + (folder / "nothing"), 2)) == 1);
    ::setenv("LOCKSTEP_LOG", "loud", 1);
    BOOST_TEST(expect("summary " + (folder / "nothing"), 2).find("does not exist") != std::string::npos);
    ::unsetenv("LOCKSTEP_LOG");
    BOOST_TEST(lines(expect("summary " + (folder / "text.txt"), 2)) == 1);
    BOOST_TEST(lines(expect("summary " + (folder / "other.h5"), 2)) == 1);
    std::filesystem::create_directories(folder / "bare");
    BOOST_TEST(lines(expect("summary " + (folder / "bare"), 2)) == 1);
    BOOST_TEST(lines(expect("summary " + (folder / "empty.h5"), 3)) == 1);
    BOOST_TEST(lines(expect("summary " + (folder / "cut.h5"), 3)) == 1);
    expect("summary", 2);
    expect("summary --format xml " + (folder / "run"), 2);
    expect("sumary", 2);
}
