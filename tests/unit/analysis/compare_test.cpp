// lockstep-analyze compare: medians, intervals, findings and the exit code, on runs made by hand and on traces.
#define BOOST_TEST_MODULE compare
#include "analysis/compare/compare.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>

#include "base/error.hpp"
#include "base/random.hpp"
#include "unit/analysis/program.hpp"

using namespace lockstep;
using namespace lockstep::analysis;
using test::analyze;
using test::Output;
using test::said;
using trace::test::make_header;
using trace::test::TemporaryFolder;

namespace {

constexpr auto forward = static_cast<std::size_t>(Phase::forward);
constexpr auto backward = static_cast<std::size_t>(Phase::backward);
constexpr auto checkpoint = static_cast<std::size_t>(Phase::checkpoint);
const std::optional<double> five_percent = 0.05;

// Steps of about 1 s times `factor`, with noise of a share; forward takes 0.4 of a step, backward the rest.
Measurement run_of(double factor, double noise, std::int64_t steps = 60, std::uint64_t seed = 1) {
    const RandomStream stream(seed, "compare test");
    Measurement run;
    run.name = run.path = "run";
    run.ranks = 1;
    run.settings = {{"ranks", "1"}, {"batch.global", "8"}};
    run.rank.resize(2);
    run.rank[0].peak = 1000;
    run.rank[1].peak = 3000;
    for (std::int64_t i = 0; i < steps; ++i) {
        StepSample step;
        step.step = i + 1;
        step.slowest = factor * (1 + noise * stream.normal(static_cast<std::uint64_t>(i)));
        step.tokens = 100;
        step.loss = 1.0 / static_cast<double>(i + 1);
        step.phases.fill(0);
        step.phases[forward] = 0.4 * step.slowest;
        step.phases[backward] = 0.6 * step.slowest;
        run.losses.emplace_back(step.step, step.loss);
        run.steps.push_back(step);
    }
    run.timed_steps = steps;
    run.total_seconds = factor * static_cast<double>(steps);
    return run;
}

Measurement imported(double total, double rate = unknown) {
    Measurement run;
    run.name = run.path = "imported";
    run.imported = true;
    run.settings = {{"ranks", "4"}};
    run.total_seconds = total;
    run.imported_tokens_per_second = rate;
    run.steps.resize(1);
    run.steps[0].slowest = total;
    return run;
}

const CompareRow& phase(const Comparison& comparison, const std::string& name) {
    for (const CompareRow& row : comparison.phases)
        if (row.name == name) return row;
    throw std::runtime_error(name + " is not there");
}

void check(double value, double expected) {
    BOOST_TEST(std::abs(value - expected) <= 1e-9 * std::abs(expected), value << " is not " << expected);
}

std::string refusal(const std::function<void()>& action) {
    try {
        action();
    } catch (const Error& error) {
        BOOST_TEST((error.code() == ExitCode::usage));
        return error.what();
    }
    BOOST_FAIL("not refused");
    return "";
}

}  // namespace

// A phase of microseconds that doubles is no difference in a step of a second, however clear the doubling is.
BOOST_AUTO_TEST_CASE(what_the_step_cannot_show_is_negligible) {
    constexpr auto loading = static_cast<std::size_t>(Phase::data_loading);
    const auto with_loading = [](double noise, double seconds, std::uint64_t number) {
        Measurement run = run_of(1, noise, 60, number);
        for (StepSample& step : run.steps) step.phases[loading] = seconds;
        return run;
    };
    const Comparison quiet = compare(with_loading(0, 3e-6, 1), with_loading(0, 6e-6, 2), {});
    check(quiet.least_difference, 0.001);  // of a step of a second without noise
    BOOST_TEST((phase(quiet, "data_loading").finding == Finding::negligible));
    check(phase(quiet, "data_loading").ratio, 2);
    BOOST_TEST(quiet.remarks.back() ==
               "A phase counts as slower or faster only if it differs by at least 1.0 ms per step: half the width of "
               "the steps' 95 % interval, and at least 0.1 % of a step. Smaller differences are not counted.");
    BOOST_TEST(compare_table(quiet).print(TableFormat::text).find("too small to count") != std::string::npos);
    BOOST_TEST(json_of(quiet)["least_difference_seconds"] == quiet.least_difference);
    BOOST_TEST((phase(compare(with_loading(0, 3e-3, 1), with_loading(0, 6e-3, 2), {}), "data_loading").finding ==
                Finding::slower));
    // Where steps vary by a tenth, 3 ms more of a second are lost in it, 200 ms are not.
    const Comparison noisy = compare(with_loading(0.1, 3e-3, 1), with_loading(0.1, 6e-3, 2), {});
    BOOST_TEST(noisy.least_difference > 0.01);
    BOOST_TEST((phase(noisy, "data_loading").finding == Finding::negligible));
    BOOST_TEST((phase(compare(with_loading(0.1, 3e-3, 1), with_loading(0.1, 0.203, 2), {}), "data_loading").finding ==
                Finding::slower));
    BOOST_TEST((compare(run_of(1, 0), run_of(1.0005, 0), {}).whole.finding == Finding::negligible));
}

BOOST_AUTO_TEST_CASE(runs_without_noise_give_exact_ratios) {
    const Comparison comparison = compare(run_of(1, 0), run_of(1.1, 0), five_percent);
    BOOST_TEST(comparison.whole.name == "step");
    check(comparison.whole.a.seconds, 1);
    check(comparison.whole.a.interval.high, 1);
    check(comparison.whole.difference, 0.1);
    check(comparison.whole.ratio, 1.1);
    check(comparison.whole.ratio_interval.low, 1.1);
    BOOST_TEST((comparison.whole.finding == Finding::slower));
    BOOST_TEST(comparison.phases.size() == 2u);
    check(phase(comparison, "forward").b.seconds, 0.44);
    check(phase(comparison, "backward").ratio, 1.1);
    check(comparison.a.tokens_per_second, 100);
    BOOST_TEST(comparison.b.peak == 3000u);
    BOOST_TEST(comparison.last_common_step.value() == 60);
    check(comparison.a.loss, 1.0 / 60);
    BOOST_TEST(comparison.settings.empty());
    BOOST_TEST(comparison.remarks.empty());
    BOOST_TEST(comparison.verdict->slower);
    BOOST_TEST(comparison.verdict->sentence.find("B is 10.0 % slower than A by the median step") == 0u);
    BOOST_TEST(!compare(run_of(1, 0), run_of(1.1, 0), 0.11).verdict->slower);
    BOOST_TEST(!compare(run_of(1.1, 0), run_of(1, 0), 0.0).verdict->slower);
    BOOST_TEST((compare(run_of(1.1, 0), run_of(1, 0), {}).whole.finding == Finding::faster));
    BOOST_TEST(!compare(run_of(1, 0), run_of(2, 0), {}).verdict.has_value());
}

BOOST_AUTO_TEST_CASE(what_is_noise_does_not_fail) {
    // Noise of 30 % and 8 steps: a difference of 8 % may be anything.
    const Comparison noisy = compare(run_of(1, 0.3, 8, 2), run_of(1, 0.3, 8, 4), 0.0);
    BOOST_TEST((noisy.whole.finding == Finding::within_noise));
    BOOST_TEST((noisy.whole.ratio_interval.low < 1 && noisy.whole.ratio_interval.high > 1));
    BOOST_TEST(!noisy.verdict->slower);
    // The same runs the other way round: one of the two is slower by the medians, and it is noise.
    const Comparison other = compare(run_of(1, 0.3, 8, 4), run_of(1, 0.3, 8, 2), 0.0);
    BOOST_TEST(!other.verdict->slower);
    const std::string& sentence = noisy.whole.ratio > 1 ? noisy.verdict->sentence : other.verdict->sentence;
    BOOST_TEST(sentence.find("within the noise and does not count") != std::string::npos);
    // 60 steps with noise of 2 % tell 10 %.
    const Comparison clear = compare(run_of(1, 0.02), run_of(1.1, 0.02, 60, 9), five_percent);
    BOOST_TEST(clear.verdict->slower);
    BOOST_TEST((clear.whole.ratio_interval.low < 1.1 && 1.1 < clear.whole.ratio_interval.high));
    BOOST_TEST(clear.verdict->sentence.find("clearly slower") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(few_samples_are_compared_by_their_medians) {
    const Comparison comparison = compare(run_of(1, 0, 5), run_of(1.1, 0, 60), five_percent);
    BOOST_TEST(!comparison.whole.ratio_interval.known());
    BOOST_TEST((comparison.whole.finding == Finding::no_interval));
    BOOST_TEST(comparison.verdict->slower);
    BOOST_TEST(comparison.verdict->sentence.find("no interval (5 and 60 samples; each run needs 6)") !=
               std::string::npos);
    BOOST_TEST(comparison.last_common_step.value() == 5);
    check(comparison.b.loss, 0.2);
    BOOST_TEST(!compare(run_of(1, 0, 5), run_of(1.04, 0, 5), five_percent).verdict->slower);
}

BOOST_AUTO_TEST_CASE(phases_that_were_not_timed_or_are_only_in_one_run) {
    Measurement a = run_of(1, 0), b = run_of(1, 0);
    for (std::size_t i = 0; i < b.steps.size(); ++i)
        if (i % 10 != 0) b.steps[i].phases.fill(unknown);
    b.timed_steps = 6;
    for (StepSample& step : a.steps) step.phases[static_cast<std::size_t>(Phase::communication)] = 0.1;
    b.whole_run.seconds[checkpoint] = 3;
    b.whole_run.calls[checkpoint] = 2;
    const Comparison comparison = compare(a, b, {});
    BOOST_TEST(phase(comparison, "forward").a.samples == 60u);
    BOOST_TEST(phase(comparison, "forward").b.samples == 6u);
    BOOST_TEST(phase(comparison, "forward").ratio_interval.known());
    BOOST_TEST(said(comparison.remarks, "B: phase times come from the 6 of 60 steps"));
    BOOST_TEST(!said(comparison.remarks, "A: phase"));
    BOOST_TEST((phase(comparison, "communication").finding == Finding::only_a));
    const CompareRow& saved = phase(comparison, "checkpoint");
    BOOST_TEST((saved.finding == Finding::only_b));
    BOOST_TEST(saved.of == "run");
    check(saved.b.seconds, 3);
    BOOST_TEST(json_of(comparison)["phases"].size() == 4u);
    BOOST_TEST(compare_table(comparison).print(TableFormat::text).find("only in B") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(imported_runs_have_a_single_value) {
    const Comparison both = compare(imported(100), imported(120), five_percent);
    BOOST_TEST(both.whole.name == "run");
    check(both.whole.ratio, 1.2);
    BOOST_TEST(!both.whole.ratio_interval.known());
    BOOST_TEST(both.verdict->slower);
    BOOST_TEST(both.verdict->sentence.find("by the time of the whole run") != std::string::npos);
    BOOST_TEST(said(both.remarks, "Both are imported"));
    const Comparison mixed = compare(imported(60), run_of(1, 0), five_percent);
    check(mixed.whole.ratio, 1);
    BOOST_TEST(said(mixed.remarks, "A is imported"));
    const Comparison rates = compare(imported(unknown, 1100), imported(unknown, 1000), five_percent);
    BOOST_TEST(rates.verdict->slower);
    BOOST_TEST(rates.verdict->sentence.find("B is 10.0 % slower than A by tokens/s") == 0u);
    BOOST_TEST(refusal([] { compare(imported(unknown), imported(10), five_percent); }).find("--slower-than") == 0u);
    BOOST_TEST(compare(imported(unknown), imported(10), {}).phases.empty());
}

BOOST_AUTO_TEST_CASE(differences_of_settings_and_of_work_are_said) {
    Measurement a = run_of(1, 0), b = run_of(1, 0);
    b.settings["batch.global"] = "16";
    b.settings["run.name"] = "other";
    a.settings["model.width"] = "64";
    for (StepSample& step : b.steps) step.tokens = 200;
    b.remarks = {"It was killed."};
    const Comparison comparison = compare(a, b, {});
    BOOST_REQUIRE(comparison.settings.size() == 2u);
    BOOST_TEST(comparison.settings[0].key == "batch.global");
    BOOST_TEST(comparison.settings[0].values[1] == "16");
    BOOST_TEST(comparison.settings[1].values[1] == "");
    BOOST_TEST(said(comparison.remarks, "A step has 100 tokens in A and 200 in B"));
    BOOST_TEST(said(comparison.remarks, "B: It was killed."));
}

BOOST_AUTO_TEST_CASE(steps_of_different_tokens_are_compared_by_the_token) {
    // 1 s ÷ 100 tokens against 1.1 s ÷ 200: 10 ms and 5.5 ms a token, though the step takes longer.
    Measurement a = run_of(1, 0), b = run_of(1.1, 0);
    for (StepSample& step : b.steps) step.tokens = 200;
    const Comparison faster = compare(a, b, 0.0);
    BOOST_TEST(faster.whole.of == "token");
    check(faster.whole.a.seconds, 0.01);
    check(faster.whole.b.seconds, 0.0055);
    check(faster.whole.difference, -0.0045);
    check(faster.whole.ratio, 0.55);
    check(faster.whole.ratio_interval.low, 0.55);
    check(faster.whole.ratio_interval.high, 0.55);
    BOOST_TEST((faster.whole.finding == Finding::faster));
    check(faster.undivided.value().ratio, 1.1);
    check(phase(faster, "forward").ratio, 1.1);
    BOOST_TEST(!faster.verdict->slower);
    BOOST_TEST(faster.verdict->sentence.find("B is 45.0 % faster than A by the median step's seconds per token") == 0u);
    const auto json = json_of(faster);
    BOOST_TEST(json["per"] == "token");
    BOOST_TEST(json["verdict"]["per"] == "token");
    check(json["undivided"]["ratio"], 1.1);
    const std::string text = compare_table(faster).print(TableFormat::text);
    BOOST_TEST(text.find("µs/token") != std::string::npos);
    BOOST_TEST(text.find("5500 [5500, 5500]") != std::string::npos);
    BOOST_TEST(compare_rows(faster).print(TableFormat::csv).find("\nstep,step,1,") != std::string::npos);
    // 2.2 s ÷ 200 tokens are 11 ms a token, 10 % more than 1 s ÷ 100.
    b = run_of(2.2, 0);
    for (StepSample& step : b.steps) step.tokens = 200;
    const Comparison slower = compare(a, b, five_percent);
    check(slower.whole.ratio, 1.1);
    BOOST_TEST(slower.verdict->slower);
    BOOST_TEST(!compare(a, b, 0.2).verdict->slower);
    // As many tokens: a step is a step.
    const Comparison same = compare(a, run_of(2.2, 0), five_percent);
    BOOST_TEST(json_of(same)["per"] == "step");
    BOOST_TEST(json_of(same)["verdict"]["per"] == "step");
    BOOST_TEST(json_of(same)["undivided"].is_null());
    // Whole runs: 100 s ÷ 1,000 tokens against 120 s ÷ 1,500 is 0.1 to 0.08 s a token.
    Measurement first = imported(100), second = imported(120);
    first.all_tokens = 1000;
    second.all_tokens = 1500;
    const Comparison runs = compare(first, second, five_percent);
    check(runs.whole.ratio, 0.8);
    BOOST_TEST(runs.verdict->per == "token");
    BOOST_TEST(!runs.verdict->slower);
    BOOST_TEST(runs.verdict->sentence.find("B is 20.0 % faster than A by seconds per token over the whole run") == 0u);
    BOOST_TEST(said(runs.remarks, "A run has 1,000 tokens in A and 1,500 in B"));
    BOOST_TEST(compare(imported(100), second, {}).whole.of == "run");
}

BOOST_AUTO_TEST_CASE(slower_is_what_the_whole_interval_says) {
    // 31 steps of B take 1.10 s and 29 take 1.02 s, A's all 1 s: the median is 1.10, that of a resample one of the two.
    const Measurement a = run_of(1, 0);
    Measurement b = run_of(1, 0);
    for (std::size_t i = 0; i < 60; ++i) b.steps[i].slowest = i % 2 == 0 || i == 1 ? 1.10 : 1.02;
    const Comparison between = compare(a, b, five_percent);
    check(between.whole.ratio, 1.10);
    check(between.whole.ratio_interval.low, 1.02);
    check(between.whole.ratio_interval.high, 1.10);
    BOOST_TEST((between.whole.finding == Finding::slower));
    BOOST_TEST(!between.verdict->slower);
    BOOST_TEST(between.verdict->sentence.find(
                   "the median is slower by more than 5 %, but the interval does not rule out less") !=
               std::string::npos);
    BOOST_TEST(compare(a, b, 0.01).verdict->slower);
    BOOST_TEST(!compare(a, b, 0.2).verdict->slower);
    // 5 steps of each: no interval, the medians alone.
    Measurement few = a, few_slow = b;
    few.steps.resize(5);
    few_slow.steps.resize(5);
    BOOST_TEST(compare(few, few_slow, five_percent).verdict->slower);
}

BOOST_AUTO_TEST_CASE(huge_numbers_are_short) {
    Measurement a = run_of(1, 0), b = run_of(1e40, 0);
    const Comparison times = compare(a, b, five_percent);
    BOOST_TEST(times.verdict->sentence.find("B is 1e+42 % slower than A") == 0u);
    BOOST_TEST(times.verdict->sentence.find("ratio 1e+40, 95 % interval 1e+40 to 1e+40") != std::string::npos);
    BOOST_TEST(compare_table(times).print(TableFormat::text).find("1e+43 [1e+43, 1e+43]") != std::string::npos);
    for (StepSample& step : b.steps) step.tokens = 1e30;
    BOOST_TEST(said(compare(a, b, {}).remarks, "A step has 100 tokens in A and 1e+30 in B"));
}

BOOST_AUTO_TEST_CASE(validation_losses_are_compared_at_the_last_common_step) {
    Measurement a = run_of(1, 0), b = run_of(1, 0);
    BOOST_TEST(!compare(a, b, {}).a.last_validation.has_value());
    a.validations = {{10, 512, 3, 2}, {20, 512, 2.5, 1.9}, {40, 512, 2.25, 1.8}, {50, 512, 2.375, 1.85}};
    b.validations = {
        {15, 512, 2.9, 2}, {20, 512, 2.75, 1.95}, {30, 512, 2.7, 1.9}, {40, 512, 2.5, 1.7}, {45, 512, 2, 1.6}};
    Comparison comparison = compare(a, b, {});
    BOOST_TEST(comparison.a.common_validation->step == 40);
    BOOST_TEST(comparison.a.common_validation->loss == 2.25);
    BOOST_TEST(comparison.b.common_validation->loss == 2.5);
    BOOST_TEST(comparison.a.last_validation->step == 50);
    BOOST_TEST(comparison.b.last_validation->loss == 2.0);
    BOOST_TEST(comparison.a.best_validation->step == 40);
    BOOST_TEST(comparison.remarks.empty());
    const auto json = json_of(comparison);
    BOOST_TEST(json["a"]["validation"]["common"]["bits_per_byte"] == 1.8);
    BOOST_TEST(json["b"]["validation"]["last"]["step"] == 45);
    BOOST_TEST(json["b"]["validation"]["best"]["loss"] == 2.0);
    b.validations[3].tokens = 1024;
    comparison = compare(a, b, {});
    BOOST_TEST(said(comparison.remarks, "A was validated on 512 tokens, B on 1,024"));
    b.validations = {{7, 512, 2, unknown}};
    comparison = compare(a, b, {});
    BOOST_TEST(!comparison.a.common_validation.has_value());
    BOOST_TEST(comparison.b.last_validation->step == 7);
    b.validations.clear();
    BOOST_TEST(json_of(compare(a, b, {}))["b"]["validation"]["last"].is_null());
}

BOOST_AUTO_TEST_CASE(shares_are_read_as_percent_or_fraction) {
    check(share_of_words("5%"), 0.05);
    check(share_of_words("0.05"), 0.05);
    check(share_of_words("150%"), 1.5);
    BOOST_TEST(share_of_words("0") == 0.0);
    for (const char* words : {"", "%", "five", "-5%", "nan", "inf", "5%%", "5 %x"})
        BOOST_TEST(refusal([&] { share_of_words(words); }).find("it takes a share") != std::string::npos, words);
    BOOST_TEST(refusal([] { share_of_words("5"); }) == "--slower-than 5 would be 500 %; write 5% or 0.05");
}

BOOST_AUTO_TEST_CASE(the_command_ends_with_6_where_the_second_run_is_slower) {
    const TemporaryFolder folder("compare");
    const std::vector<std::string> regions = {"epoch", "epoch/step", "epoch/step/forward", "epoch/step/backward"};
    bool validated = false;
    const auto write = [&](const std::string& name, double seconds, std::int64_t steps) {
        trace::Header header = make_header(2, regions);
        header.run_name = name;
        trace::TraceWriter writer(folder / name, header, static_cast<std::uint64_t>(steps));
        trace::RowBatch block;
        for (std::int64_t step = 1; step <= steps; ++step) {
            trace::StepRow row;
            row.step = step;
            row.loss = 2.0 / static_cast<double>(step);
            row.tokens = 256;
            row.seconds = seconds * (1 + 0.01 * static_cast<double>(step % 7));
            if (validated && step % 20 == 0) row.validation = {seconds, 1.5 * seconds, 512};
            block.steps.push_back(row);
            for (int rank = 0; rank < 2; ++rank) {
                block.rank_loss.push_back(row.loss);
                block.overhead.push_back(0);
                block.memory.insert(block.memory.end(), 3, 5000);
                for (const double share : {1.0, 1.0, 0.25, 0.5}) block.times.push_back(share * row.seconds);
                for (const std::uint32_t calls : {0u, 1u, 2u, 2u}) block.calls.push_back(calls);
            }
        }
        writer.append(block);
        writer.finish();
    };
    write("before", 1, 50);
    write("after", 1.2, 40);
    const std::string both = (folder / "before") + " " + (folder / "after");
    BOOST_TEST(analyze(folder, "compare " + both).code == 0);
    const Output slower = analyze(folder, "compare --slower-than 5% " + both);
    BOOST_TEST(slower.code == 6);
    BOOST_TEST(slower.text.find("more than the 5 % allowed, and so is the whole interval") != std::string::npos);
    BOOST_TEST(analyze(folder, "compare --slower-than 0.25 " + both).code == 0);
    BOOST_TEST(analyze(folder, "compare --slower-than 5% " + (folder / "after") + " " + (folder / "before")).code == 0);
    const Output output = analyze(folder, "compare --slower-than 5% --format json " + both);
    BOOST_TEST(output.code == 6);
    const auto json = output.json();
    check(json["whole"]["ratio"], 1.2);
    BOOST_TEST(json["whole"]["finding"] == "slower");
    BOOST_TEST(json["whole"]["ratio_interval"].size() == 2u);
    BOOST_TEST(json["a"]["steps"] == 41);  // without the warm-up of 10
    BOOST_TEST(json["b"]["warm_up_steps"] == 8);
    BOOST_TEST(json["b"]["peak_memory_bytes"] == 5000);
    BOOST_TEST(json["last_common_step"] == 40);
    check(json["a"]["loss"], 0.05);
    BOOST_TEST(json["verdict"]["slower"] == true);
    BOOST_TEST(json["settings"].empty());
    const Output csv = analyze(folder, "compare --format csv " + both);
    BOOST_TEST(csv.text.find("name,of,a_seconds,") == 0u);
    BOOST_TEST(csv.text.find("\nforward,step,") != std::string::npos);
    BOOST_TEST(analyze(folder, "compare --format markdown " + both).text.find("\n| forward ") != std::string::npos);
    BOOST_TEST(analyze(folder, "compare " + (folder / "before")).code == 2);
    BOOST_TEST(analyze(folder, "compare " + (folder / "before") + " " + (folder / "before")).code == 2);
    // A run's own file is no second run; its files, here of two launches, are two.
    for (const std::string& paths : {(folder / "before") + " " + (folder / "before/trace-001.h5"),
                                     (folder / "before/../before/trace-001.h5") + " " + (folder / "before")}) {
        const Output own = analyze(folder, "compare " + paths);
        BOOST_TEST(own.code == 2);
        BOOST_TEST(own.errors.find("is already part of another given run") != std::string::npos);
    }
    BOOST_TEST(analyze(folder, "compare " + (folder / "before") + " " + (folder / "after/trace-001.h5")).code == 0);
    write("before", 1.2, 50);
    const Output launches =
        analyze(folder, "compare --slower-than 5% --format json " + (folder / "before/trace-001.h5") + " " +
                            (folder / "before/trace-002.h5"));
    BOOST_TEST(launches.code == 6);
    check(launches.json()["whole"]["ratio"], 1.2);
    // The training loss is always shown, validation losses where there are any.
    const Output plain = analyze(folder, "compare " + both);
    BOOST_TEST(plain.text.find("   loss at step 40\n") != std::string::npos);
    BOOST_TEST(plain.text.find("validation loss") == std::string::npos);
    BOOST_TEST(plain.text.find("bits per byte") == std::string::npos);
    validated = true;
    write("validated-before", 1, 50);
    write("validated-after", 1.25, 70);
    const Output losses =
        analyze(folder, "compare " + (folder / "validated-before") + " " + (folder / "validated-after"));
    for (const char* words : {"\n            validation  bits per        last                 best\n",
                              "\n   loss at     loss at   byte at  validation           validation\n",
                              "\n   step 50     step 40   step 40        loss  at step        loss  at step\n",
                              "\nA   0.0400      1.0000    1.5000      1.0000       40",
                              "\nB   0.0400      1.2500    1.8750      1.2500       60"})
        BOOST_TEST(losses.text.find(words) != std::string::npos, losses.text);
    const Output wrong = analyze(folder, "compare --slower-than 5 " + both);
    BOOST_TEST(wrong.code == 2);
    BOOST_TEST(wrong.text.empty());
    BOOST_TEST(wrong.errors.find("write 5% or 0.05") != std::string::npos);
}
