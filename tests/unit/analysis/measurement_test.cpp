// What a run measured, on traces whose every figure can be computed by hand, and what is said of traces that are odd.
#define BOOST_TEST_MODULE measurement
#include "analysis/load/measurement.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <functional>

#include "analysis/load/load.hpp"
#include "analysis/scaling/scaling.hpp"
#include "base/error.hpp"
#include "unit/analysis/text.hpp"
#include "unit/trace/synthetic_trace.hpp"

using namespace lockstep;
using namespace lockstep::analysis;
using test::said;
using trace::test::make_header;
using trace::test::TemporaryFolder;

namespace {

const std::vector<std::string> regions = {"initialization",
                                          "epoch",
                                          "epoch/step",
                                          "epoch/step/forward",
                                          "epoch/step/backward",
                                          "epoch/step/communication",
                                          "epoch/step/communication/data",
                                          "checkpoint"};

// A step of `seconds` on every rank, of which rank r waits for the others as long as it is faster than rank 0.
struct Run {
    std::size_t ranks = 2;
    std::int64_t threads = 1;
    std::int64_t first = 1, steps = 30, batch = 8;
    std::function<double(std::int64_t step)> seconds = [](std::int64_t) { return 1.0; };
    std::function<double(std::size_t rank)> waits = [](std::size_t rank) { return 0.1 * static_cast<double>(rank); };
    std::function<void(trace::StepRow&)> row = [](trace::StepRow&) {};
    std::function<void(std::int64_t step, std::size_t rank, double* times)> times = [](auto, auto, auto) {};
    std::function<bool(std::int64_t step)> timed = [](std::int64_t) { return true; };  // phase by phase
    std::function<bool(std::int64_t step)> checkpoints = [](std::int64_t) { return false; };
    std::string extra{};  // of the description
    std::vector<trace::EventRow> events{};
    bool closed = true;

    void write(const std::string& folder) const {
        trace::Header header = make_header(ranks, regions);
        header.run_name = std::filesystem::path(folder).filename().string();
        header.description =
            fmt::format("[run]\nname = 'x'\n[model]\nwidth = 64\n[batch]\nglobal = {}\nlength = 32\n{}", batch, extra);
        for (std::size_t r = 0; r < ranks; ++r)
            header.ranks[r].cores = fmt::format("{}", r), header.ranks[r].threads = threads;
        trace::TraceWriter writer(folder, header, static_cast<std::uint64_t>(steps));
        trace::RowBatch block;
        for (std::int64_t step = first; step < first + steps; ++step) {
            trace::StepRow one;
            one.step = step;
            one.tokens = batch * 32;
            one.loss = 1.0 / static_cast<double>(step);
            one.seconds = seconds(step);
            row(one);
            block.steps.push_back(one);
            for (std::size_t r = 0; r < ranks; ++r) {
                block.rank_loss.push_back(one.loss);
                block.overhead.push_back(0);
                for (int kind = 1; kind <= 3; ++kind)
                    block.memory.push_back(static_cast<std::uint64_t>(1000 * kind) + r);
                const double all = seconds(step), wait = waits(r);
                double own[] = {step == first ? 5.0 : 0.0, all,  all,  0.4 * (all - wait),
                                0.6 * (all - wait),        wait, wait, 0.0};
                times(step, r, own);
                block.times.insert(block.times.end(), std::begin(own), std::end(own));
                const std::uint32_t passes = timed(step) ? 2 : 0;
                for (const std::uint32_t calls : {0u, 0u, 1u, passes, passes, 1u, 1u}) block.calls.push_back(calls);
                block.calls.push_back(checkpoints(step) ? 1 : 0);
            }
        }
        block.events = events;
        writer.append(block);
        if (closed) writer.finish();
    }
};

Measurement measured(const Run& run, const std::string& name, const MeasureOptions& options = {}) {
    const TemporaryFolder folder("measurement");
    run.write(folder / name);
    return measure(trace::open_run(folder / name), options);
}

void check(double value, double expected) {
    BOOST_TEST(std::abs(value - expected) <= 1e-9 * std::abs(expected), value << " is not " << expected);
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_figures_of_a_run_without_its_warm_up) {
    Run run;
    run.seconds = [](std::int64_t step) { return step <= 6 ? 9.0 : 1.0 + 0.01 * static_cast<double>(step); };
    const Measurement one = measured(run, "a");
    BOOST_TEST(one.warm_up == 6);  // a fifth of 30
    BOOST_TEST(one.steps.size() == 24);
    BOOST_TEST(one.steps.front().step == 7);
    check(one.step_seconds(), 1.185);  // steps 7 to 30: the middle is 18.5
    check(one.average_step_seconds(), 1.185);
    check(one.step_interval().low, 1.13);  // the 7th and the 18th of 24 hold the median with 97.7 %
    check(one.step_interval().high, 1.24);
    check(one.tokens_per_second(), 256 / 1.185);
    check(one.rank[0].compute, 1.185);
    check(one.rank[1].compute, 1.085);
    check(one.rank[1].communication, 0.1);
    check(one.compute_seconds(), 1.135);
    check(one.communication_seconds(), 0.05);
    check(one.communication_kinds.at("data"), 0.05);
    check(one.total_seconds, 5 + 6 * 9 + 24 * 1.185);
    BOOST_TEST(one.losses.size() == 30);
    BOOST_TEST(one.accumulation == 2);
    BOOST_TEST(one.settings.at("micro_batch") == "2");
    BOOST_TEST(one.settings.at("model.width") == "64");
    BOOST_TEST(one.rank[1].peak == 3001);
    BOOST_TEST(one.heat.first_step.size() == 24);
    check(one.heat.seconds[24], 0.97);  // rank 1, step 7
    BOOST_TEST(one.remarks.empty());
    const Measurement all = measured(run, "a", {0, {}});
    BOOST_TEST(all.warm_up == 0);
    BOOST_TEST(all.steps.size() == 30);
    const Measurement none = measured(run, "a", {100, {}});
    BOOST_TEST(none.steps.empty());
    BOOST_TEST(said(none.remarks, "The warm-up covers all steps."));
}

BOOST_AUTO_TEST_CASE(a_crashed_run_counts_up_to_its_last_flush) {
    Run run;
    run.closed = false;
    const Measurement one = measured(run, "a");
    BOOST_TEST(one.steps.size() == 24);
    BOOST_TEST(said(one.remarks, "up to the last flush, step 30"));
}

BOOST_AUTO_TEST_CASE(a_rank_of_which_there_is_nothing) {
    Run run;
    run.ranks = 3;
    run.times = [](std::int64_t, std::size_t rank, double* times) {
        if (rank == 1) std::fill(times, times + regions.size(), std::nan(""));
    };
    const Measurement one = measured(run, "a");
    BOOST_TEST(!one.rank[1].present);
    BOOST_TEST(said(one.remarks, "The trace has no data for rank 1 of 3"));
    check(one.compute_seconds(), 0.9);  // of ranks 0 and 2: 1.0 and 0.8
}

BOOST_AUTO_TEST_CASE(regions_that_overlap_are_said) {
    Run run;
    run.times = [](std::int64_t step, std::size_t rank, double* times) {
        if (step == 12 && rank == 1) times[3] = 1.5;  // forward longer than its step
    };
    BOOST_TEST(said(measured(run, "a").remarks, "Regions overlap"));
    BOOST_TEST(said(measured(run, "a").remarks, "first at step 12: rank 1, below epoch/step"));
}

BOOST_AUTO_TEST_CASE(clocks_that_jump_are_said) {
    Run run;
    run.row = [](trace::StepRow& row) {
        row.wall_time = 1e9 + static_cast<double>(row.step) + (row.step > 15 ? 3600.0 : 0.0);
    };
    BOOST_TEST(said(measured(run, "a").remarks, "Rank 0's clock jumped ahead"));
    run.row = [](trace::StepRow& row) {
        row.wall_time = 1e9 + static_cast<double>(row.step) - (row.step > 15 ? 3600.0 : 0.0);
    };
    BOOST_TEST(said(measured(run, "a").remarks, "Rank 0's clock ran backwards"));
    run.row = [](trace::StepRow& row) { row.wall_time = 1e9 + static_cast<double>(row.step); };
    BOOST_TEST(measured(run, "a").remarks.empty());
}

BOOST_AUTO_TEST_CASE(stretches_that_cross_or_never_end_are_said) {
    Run run;
    run.events = {{1, 0, 2, 0.0, 1.0}, {1, 0, 3, 0.1, 0.5}, {1, 0, 4, 0.5, 0.9}, {1, 1, 3, 0.5, 0.2}};
    const Measurement inverted = measured(run, "a");
    BOOST_TEST(said(inverted.remarks, "have no end, or end before they begin in 1 place (first at step 1: rank 1)"));
    BOOST_TEST(!said(inverted.remarks, "without nesting"));
    run.events = {{1, 0, 3, 0.1, 0.6}, {1, 0, 4, 0.5, 0.9}};
    BOOST_TEST(said(measured(run, "a").remarks, "overlap without nesting"));
}

BOOST_AUTO_TEST_CASE(a_resumed_run_drops_the_warm_up_of_each_launch) {
    const TemporaryFolder folder("measurement-launches");
    Run run;
    run.write(folder / "a");
    run.first = 31;
    run.write(folder / "a");
    const Measurement one = measure(trace::open_run(folder / "a"), {});
    BOOST_TEST(one.warm_up == 12);
    BOOST_TEST(one.steps.size() == 48);
    run.ranks = 4;
    run.first = 61;
    run.steps = 20;
    run.write(folder / "a");
    const Measurement mixed = measure(trace::open_run(folder / "a"), {});
    BOOST_TEST(mixed.ranks == 2);
    BOOST_TEST(mixed.steps.size() == 48);
    BOOST_TEST(said(mixed.remarks, "only the 60 of 80 steps on 2 ranks are used"));
}

BOOST_AUTO_TEST_CASE(validations_of_all_steps_are_kept_and_repeated_ones_count_once) {
    const TemporaryFolder folder("measurement-validations");
    Run run;
    run.row = [](trace::StepRow& row) {
        if (row.step % 10 == 0) row.validation = {3 - 0.01 * static_cast<double>(row.step), 2, 512};
        if (row.step == 20) row.validation = {std::nan(""), 2, 512};  // diverged
    };
    run.write(folder / "a");
    Measurement one = measure(trace::open_run(folder / "a"), {});
    BOOST_REQUIRE(one.validations.size() == 2u);
    BOOST_TEST(one.validations[0].step == 10);
    check(one.validations[1].loss, 2.7);
    BOOST_TEST(one.validations[1].tokens == 512);
    BOOST_TEST(one.remarks.empty());
    // A launch on other ranks, which goes on after step 20: its validation at step 30 replaces the first one's.
    run.ranks = 3;
    run.first = 21;
    run.steps = 20;
    run.row = [](trace::StepRow& row) {
        if (row.step % 10 == 0) row.validation = {row.step == 30 ? 1.5 : 1.75, 0, 1024};
    };
    run.write(folder / "a");
    one = measure(trace::open_run(folder / "a"), {});
    BOOST_REQUIRE(one.validations.size() == 3u);
    BOOST_TEST(one.validations[1].step == 30);
    BOOST_TEST(one.validations[1].loss == 1.5);
    BOOST_TEST(std::isnan(one.validations[1].bits_per_byte));  // of data without bytes
    BOOST_TEST(one.validations[2].step == 40);
    BOOST_TEST(best_of(one.validations).step == 30);
    BOOST_TEST(said(one.remarks, "Validations covered 512 to 1,024 tokens"));
}

BOOST_AUTO_TEST_CASE(steps_of_another_batch_do_not_count) {
    Run run;
    run.row = [](trace::StepRow& row) {
        if (row.step <= 10) row.tokens = 128;
    };
    const Measurement one = measured(run, "a");
    BOOST_TEST(one.steps.size() == 20);
    BOOST_TEST(said(one.remarks, "only the 20 of 24 steps of 256 tokens are used"));
}

BOOST_AUTO_TEST_CASE(steps_after_a_checkpoint_do_not_count) {
    Run run;
    run.checkpoints = [](std::int64_t step) { return step % 10 == 0; };
    const Measurement one = measured(run, "a");
    BOOST_TEST(one.disturbed == 2);  // steps 11 and 21
    BOOST_TEST(one.steps.size() == 22);
    // After every step there is one: that is how the run was.
    run.extra = "[checkpoint]\nevery = 1\n";
    BOOST_TEST(measured(run, "a").steps.size() == 24);
    run.ranks = 1;
    run.extra.clear();
    BOOST_TEST(measured(run, "a").disturbed == 0);
}

BOOST_AUTO_TEST_CASE(sampled_phases_are_shares_of_the_median_step) {
    Run run;
    run.steps = 60;
    run.seconds = [](std::int64_t step) { return step % 5 == 0 ? 2.0 : 1.0; };  // timed steps are slower
    run.timed = [](std::int64_t step) { return step % 5 == 0; };
    run.waits = [](std::size_t) { return 0.5; };
    const Measurement one = measured(run, "a");
    BOOST_TEST(one.timed_steps == 11);
    check(one.step_seconds(), 1.0);
    check(one.communication_seconds(), 0.25);
    check(one.compute_seconds(), 0.75);
    BOOST_TEST(one.heat.first_step.size() == 11);
    run.timed = [](std::int64_t step) { return step % 20 == 0; };
    const Measurement few = measured(run, "a");
    BOOST_TEST(few.timed_steps == 3);
    BOOST_TEST(!std::isfinite(few.compute_seconds()));
    BOOST_TEST(said(few.remarks, "The phases of only 3 steps were timed"));
    run.timed = [](std::int64_t) { return false; };
    BOOST_TEST(said(measured(run, "a").remarks, "No measured step was timed phase by phase"));
}

BOOST_AUTO_TEST_CASE(several_runs_of_one_number_of_ranks_are_one_point) {
    const TemporaryFolder folder("measurement-repeated");
    const auto write = [&](const char* name, std::size_t ranks, double seconds, std::int64_t threads_of_header) {
        Run run;
        run.ranks = ranks;
        run.seconds = [=](std::int64_t) { return seconds; };
        run.threads = threads_of_header;
        run.write(folder / name);
    };
    write("a", 1, 1.0, 1);
    write("b", 1, 1.2, 1);
    write("c", 1, 1.1, 1);
    write("d", 1, 9.0, 2);
    write("e", 2, 0.6, 1);
    LoadOptions load;
    load.runs = {folder.string()};
    const Scaling scaling = scaling_of(load_measurements(load), {});
    const ScalingPoint& base = scaling.series[0].points[0];
    BOOST_TEST(base.runs.size() == 3);
    check(base.seconds_slowest, 1.1);
    BOOST_TEST(!base.seconds_interval.known());
    BOOST_TEST(said(base.remarks, "The 3 runs take 1.00 s to 1.20 s."));
    BOOST_TEST(said(scaling.series[0].remarks, "d on 1 rank is left out: it does not repeat a"));
}

BOOST_AUTO_TEST_CASE(factors_of_the_efficiency_multiply) {
    const TemporaryFolder folder("measurement-factors");
    Run one;
    one.ranks = 1;
    one.write(folder / "g1");
    Run two;  // 0.6 s a step: ranks compute 0.55 and 0.45 s
    two.seconds = [](std::int64_t) { return 0.6; };
    two.waits = [](std::size_t rank) { return rank == 0 ? 0.05 : 0.15; };
    two.write(folder / "g2");
    LoadOptions load;
    load.runs = {folder.string()};
    const Scaling scaling = scaling_of(load_measurements(load), {});
    BOOST_REQUIRE(scaling.series.size() == 1);
    BOOST_TEST((scaling.series[0].kind == Kind::strong));
    const ScalingPoint& point = scaling.series[0].points[1];
    check(point.speedup_slowest, 1 / 0.6);
    check(point.efficiency, 0.5 / 0.6);
    check(point.load_balance, 0.50 / 0.55);
    BOOST_TEST(point.load_balance_by == "compute");
    check(point.communication_efficiency, 0.55 / 0.6);
    check(point.parallel_efficiency, 0.50 / 0.6);
    check(point.computation_scaling, 1.0);
    check(point.global_efficiency, 0.50 / 0.6);
    check(point.communication_share, 0.1 / 0.6);
    check(point.communication_ratio, 0.1 / 0.5);
    check(point.karp_flatt, (0.6 - 0.5) / 0.5);
    // Two points are too few for any law.
    for (const Fit& fit : scaling.series[0].fits) BOOST_TEST(!fit.refusal.empty());
}

BOOST_AUTO_TEST_CASE(weak_scaling_is_inferred_and_may_be_given) {
    const TemporaryFolder folder("measurement-weak");
    for (const std::size_t ranks : {1u, 2u, 4u}) {
        Run run;
        run.ranks = ranks;
        run.batch = 8 * static_cast<std::int64_t>(ranks);
        run.seconds = [=](std::int64_t) { return 1 + 0.1 * static_cast<double>(ranks - 1); };
        run.write(folder / fmt::format("g{}", ranks));
    }
    LoadOptions load;
    load.runs = {folder.string()};
    const Scaling scaling = scaling_of(load_measurements(load), {});
    BOOST_REQUIRE(scaling.series.size() == 1);
    const ScalingSeries& series = scaling.series[0];
    BOOST_TEST((series.kind == Kind::weak));
    BOOST_TEST(series.kind_reason == "the batch is 8 sequences per rank in all of them");
    check(series.points[2].efficiency, 1 / 1.3);
    check(series.points[2].speedup_slowest, 4 / 1.3);
    BOOST_TEST(!std::isfinite(series.points[2].karp_flatt));
    ScalingOptions strong;
    strong.kind = "strong";
    BOOST_CHECK_EXCEPTION(scaling_of(load_measurements(load), strong), Error, [](const Error& error) {
        return error.code() == ExitCode::usage &&
               std::string(error.what()).find("batch.global (8, 16)") != std::string::npos;
    });
}

BOOST_AUTO_TEST_CASE(runs_that_differ_in_more_are_kept_apart_or_marked) {
    const TemporaryFolder folder("measurement-differ");
    const auto write = [&](const char* name, std::size_t ranks, const std::string& extra) {
        Run run;
        run.ranks = ranks;
        run.extra = extra;
        run.write(folder / name);
    };
    write("g1", 1, "[precision]\ncompute = 'fp32'\n");
    write("g2", 2, "[precision]\ncompute = 'fp32'\n[schedule]\nsteps = 50\n");
    write("g4", 4, "[precision]\ncompute = 'bf16'\n");
    LoadOptions load;
    load.runs = {folder.string()};
    const Scaling apart = scaling_of(load_measurements(load), {});
    BOOST_REQUIRE(apart.series.size() == 1);
    BOOST_TEST(apart.series[0].points.size() == 2);
    BOOST_TEST(said(apart.series[0].remarks, "schedule.steps"));
    BOOST_TEST(said(apart.remarks, "g4 belongs to no series"));
    BOOST_TEST(said(apart.remarks, "precision.compute (bf16, fp32)"));
    ScalingOptions options;
    options.ignored = {"precision.compute"};
    const Scaling together = scaling_of(load_measurements(load), options);
    BOOST_TEST(together.series[0].points.size() == 3);
    BOOST_TEST(said(together.series[0].remarks, "precision.compute"));
}

BOOST_AUTO_TEST_CASE(more_than_linear_speedup_is_said_with_its_cause) {
    const TemporaryFolder folder("measurement-superlinear");
    Run one;
    one.ranks = 1;
    one.write(folder / "g1");
    Run two;
    two.seconds = [](std::int64_t) { return 0.4; };
    two.waits = [](std::size_t) { return 0.0; };
    two.write(folder / "g2");
    LoadOptions load;
    load.runs = {folder.string()};
    const Scaling scaling = scaling_of(load_measurements(load), {});
    BOOST_TEST(said(scaling.series[0].points[1].remarks, "more than linear: all ranks together computed 20 % less"));
}
