// lockstep-analyze sweep: rows, the best of them and why they differ, on runs made by hand and on traces.
#define BOOST_TEST_MODULE sweep
#include "analysis/sweep/sweep.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <fstream>

#include "base/error.hpp"
#include "unit/analysis/program.hpp"

using namespace lockstep;
using namespace lockstep::analysis;
using test::analyze;
using test::Output;
using test::said;
using trace::test::make_header;
using trace::test::TemporaryFolder;

namespace {

const std::vector<std::string> usual = {"batch", "accumulation"};

// An imported run, of which only a total and perhaps a rate are known.
Measurement imported(const std::string& batch, const std::string& accumulation, double total, double rate = unknown) {
    Measurement run;
    run.name = "b" + batch + "a" + accumulation;
    run.imported = true;
    run.ranks = 4;
    run.settings = {{"batch.global", batch}, {"accumulation", accumulation}, {"ranks", "4"}, {"run.name", run.name}};
    run.total_seconds = total;
    run.imported_tokens_per_second = rate;
    return run;
}

// 20 steps of `seconds`, 1 s of initialization, one call of forward a step that takes half of it.
Measurement measured(const std::string& batch, const std::string& accumulation, double seconds, double tokens = 1000) {
    Measurement run = imported(batch, accumulation, 1 + 20 * seconds);
    run.imported = false;
    for (int i = 0; i < 20; ++i) {
        StepSample step;
        step.step = i + 1;
        step.slowest = seconds * (1 + 0.001 * i);
        step.tokens = tokens;
        run.steps.push_back(step);
    }
    run.timed_steps = 20;
    run.all_tokens = 20 * tokens;
    run.all_step_seconds = 20 * seconds;
    run.whole_run.seconds[static_cast<std::size_t>(Phase::forward)] = 10 * seconds;
    run.whole_run.calls[static_cast<std::size_t>(Phase::forward)] = 40;
    run.whole_run.seconds[static_cast<std::size_t>(Phase::other)] = 10 * seconds;
    run.whole_run.seconds[static_cast<std::size_t>(Phase::initialization)] = 1;
    run.whole_run.calls[static_cast<std::size_t>(Phase::initialization)] = 1;
    return run;
}

std::string names_of(const Sweep& sweep) {
    std::string names;
    for (const SweepRow& row : sweep.rows) names += (names.empty() ? "" : ", ") + name_of(row);
    return names;
}

void check(double value, double expected) {
    BOOST_TEST(std::abs(value - expected) <= 1e-9 * std::abs(expected), value << " is not " << expected);
}

std::string refusal(const std::vector<Measurement>& runs, const std::vector<std::string>& keys) {
    try {
        sweep_of(runs, keys);
    } catch (const Error& error) {
        BOOST_TEST((error.code() == ExitCode::usage));
        return error.what();
    }
    BOOST_FAIL("not refused");
    return "";
}

// Total seconds on 4 GPUs for batches 16 to 1024; rates are known at both ends only.
std::vector<Measurement> published() {
    return {imported("1024", "1", 102.82, 16150), imported("16", "64", 314.00, 2090), imported("32", "32", 184.91),
            imported("64", "16", 118.89),         imported("128", "8", 95.20),        imported("256", "4", 89.86),
            imported("512", "2", 86.43)};
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_published_table_has_two_best) {
    const Sweep sweep = sweep_of(published(), usual);
    BOOST_TEST(names_of(sweep) == "16 × 64, 32 × 32, 64 × 16, 128 × 8, 256 × 4, 512 × 2, 1024 × 1");
    BOOST_REQUIRE((sweep.best_by_time && sweep.best_by_throughput));
    BOOST_TEST(name_of(sweep.rows[*sweep.best_by_time]) == "512 × 2");
    BOOST_TEST(name_of(sweep.rows[*sweep.best_by_throughput]) == "1024 × 1");
    BOOST_TEST(!sweep.by_equal_work);
    BOOST_TEST(said(sweep.sentences, "Best by time: 512 × 2, 86.43 s."));
    BOOST_TEST(
        said(sweep.sentences, "Best by throughput: 1024 × 1, 16,150 tokens/s; the rate of 5 settings is unknown."));
    BOOST_TEST(said(sweep.sentences, "The rate of 512 × 2 is unknown"));
    // 314.00 · 2,090 = 656,260 and 102.82 · 16,150 = 1,660,543, which is 2.53 times as many.
    BOOST_TEST(said(sweep.remarks, "Time × rate differs by 153 %"));
    BOOST_TEST(said(sweep.remarks, "656,260 tokens"));
    BOOST_TEST(said(sweep.remarks, "1,660,543 tokens"));
    const auto json = json_of(sweep);
    BOOST_TEST(json["keys"][1] == "accumulation");
    BOOST_TEST(json["rows"].size() == 7u);
    BOOST_TEST(json["rows"][5]["batch"] == 512);
    BOOST_TEST(json["rows"][5]["total_seconds"] == 86.43);
    BOOST_TEST(json["rows"][5]["tokens_per_second"].is_null());
    BOOST_TEST(json["rows"][5]["step_seconds"].is_null());
    BOOST_TEST(json["rows"][5]["forward_seconds"].is_null());
    BOOST_TEST(json["best_by_time"]["batch"] == 512);
    BOOST_TEST(json["best_by_time"]["accumulation"] == 2);
    BOOST_TEST(json["best_by_throughput"]["batch"] == 1024);
    BOOST_TEST(json["best_by_throughput"]["tokens_per_second"] == 16150.0);
}

BOOST_AUTO_TEST_CASE(a_row_has_the_figures_of_its_run) {
    const Sweep sweep = sweep_of({measured("8", "2", 0.5), measured("16", "1", 0.25)}, usual);
    const SweepRow& row = sweep.rows[0];
    check(row.total, 11);
    check(row.train, 10);
    check(row.epoch, 10);
    check(row.forward.sum, 5);
    check(row.forward.mean_per_call, 0.125);
    BOOST_TEST(std::isnan(row.backward.sum));
    check(row.step_seconds, 0.5 * 1.0095);
    check(row.step_interval.low, 0.5 * 1.005);  // the 6th of 20
    check(row.step_interval.high, 0.5 * 1.014);
    check(row.tokens_per_second, 20000 / (0.5 * 20 * 1.0095));
    BOOST_TEST(*sweep.best_by_time == 1u);
    BOOST_TEST(*sweep.best_by_throughput == 1u);
    BOOST_TEST(sweep.sentences.size() == 2u);
    BOOST_TEST(sweep.remarks.empty());
}

BOOST_AUTO_TEST_CASE(several_runs_of_a_pair_are_medians) {
    std::vector<Measurement> runs;
    for (const double seconds : {0.5, 0.7, 0.6}) runs.push_back(measured("8", "2", seconds));
    runs.push_back(measured("8", "4", 0.65));
    const Sweep three = sweep_of(runs, usual);
    BOOST_REQUIRE(three.rows.size() == 2u);
    BOOST_TEST(three.rows[0].runs.size() == 3u);
    check(three.rows[0].total, 13);
    check(three.rows[0].step_seconds, 0.6 * 1.0095);
    BOOST_TEST(!three.rows[0].step_interval.known());
    BOOST_TEST(three.rows[1].step_interval.known());
    BOOST_TEST(said(three.remarks, "the median over their runs"));
    BOOST_TEST(*three.best_by_time == 0u);
    for (const double seconds : {0.4, 0.9, 0.6}) runs.push_back(measured("8", "2", seconds));
    const Sweep six = sweep_of(runs, usual);
    check(six.rows[0].step_interval.low, 0.4 * 1.0095);
    check(six.rows[0].step_interval.high, 0.9 * 1.0095);
}

BOOST_AUTO_TEST_CASE(unequal_work_is_compared_by_equal_work) {
    // 10 s in steps and 1 s beside them for 20,000 tokens: 2 · 10 + 1 s for 40,000.
    const Sweep sweep = sweep_of({measured("8", "2", 0.5), measured("16", "2", 0.55, 2000)}, usual);
    BOOST_TEST(sweep.by_equal_work);
    check(sweep.rows[0].equal_work, 21);
    check(sweep.rows[1].equal_work, 12);
    BOOST_TEST(*sweep.best_by_time == 1u);
    BOOST_TEST(said(sweep.sentences, "Best by time: 16 × 2, 12.00 s for equal work."));
    BOOST_TEST(said(sweep.remarks, "did not do the same work (20,000 to 40,000 tokens)"));
    // Within 1 % the totals are compared as they are.
    BOOST_TEST(!sweep_of({measured("8", "2", 0.5), measured("16", "2", 0.55, 1009)}, usual).by_equal_work);
}

BOOST_AUTO_TEST_CASE(what_is_done_once_is_not_scaled) {
    // 6.95 s of which 5.75 s in steps, a quarter of the work: 4 · 5.75 + 1.20 = 24.2 s, less than 25 s. 4 · 6.95 = 27.8
    // s.
    Measurement quarter = measured("8", "2", 0.2875);
    quarter.total_seconds = 6.95;
    const Sweep sweep = sweep_of({quarter, measured("32", "2", 1.2, 4000)}, usual);
    check(sweep.rows[0].equal_work, 24.2);
    check(sweep.rows[1].equal_work, 25);
    BOOST_TEST(*sweep.best_by_time == 0u);
    BOOST_TEST(said(sweep.sentences, "Best by time: 8 × 2, 24.20 s for equal work."));
    BOOST_TEST(said(sweep.remarks,
                    "for 80,000 tokens; each run's seconds in steps are scaled by its tokens, the rest "
                    "of its total counts once."));
    // Of imported runs nothing but the total can be scaled.
    Measurement table = imported("8", "2", 10);
    table.all_tokens = 20000;
    const Sweep mixed = sweep_of({table, measured("32", "2", 1.2, 4000)}, usual);
    check(mixed.rows[0].equal_work, 40);
    BOOST_TEST(said(mixed.remarks, "counts once; where the seconds in steps are not known, the total is scaled."));
    Measurement other = imported("16", "2", 12);
    other.all_tokens = 40000;
    const Sweep tables = sweep_of({table, other}, usual);
    check(tables.rows[0].equal_work, 20);
    BOOST_TEST(said(tables.remarks, "for 40,000 tokens; each run's total is scaled by its tokens."));
    // Steps that a damaged trace says to be longer than all of it are all of it.
    quarter.all_step_seconds = 8;
    check(sweep_of({quarter, measured("32", "2", 1.2, 4000)}, usual).rows[0].equal_work, 27.8);
}

BOOST_AUTO_TEST_CASE(phases_timed_in_some_steps_have_no_sum) {
    // 2 of 20 steps, each with 2 calls of 0.25 s.
    Measurement partly = measured("8", "2", 1), whole = measured("16", "2", 1);
    const auto forward = static_cast<std::size_t>(Phase::forward),
               validation = static_cast<std::size_t>(Phase::validation);
    partly.timed_steps = 2;
    partly.whole_run.seconds[forward] = 1;
    partly.whole_run.calls[forward] = 4;
    partly.whole_run.seconds[validation] = 3;
    partly.whole_run.calls[validation] = 2;
    const Sweep sweep = sweep_of({partly, whole}, usual);
    BOOST_TEST(std::isnan(sweep.rows[0].forward.sum));
    check(sweep.rows[0].forward.mean_per_call, 0.25);
    check(sweep.rows[0].validation.sum, 3);
    check(sweep.rows[1].forward.sum, 10);
    BOOST_TEST(said(sweep.remarks, "b8a2: 2 of 20 measured steps were timed phase by phase"));
    BOOST_TEST(sweep.remarks.size() == 1u);
    BOOST_TEST(json_of(sweep)["rows"][0]["forward_seconds"].is_null());
    BOOST_TEST(sweep_phases(sweep).columns()[4].title == "forward, s");
    BOOST_TEST(sweep_phases(sweep).columns()[5].title == "ms/call");
    // Without any sum the mean says itself of what it is.
    BOOST_TEST(sweep_phases(sweep_of({partly}, usual)).columns()[4].title == "forward, ms/call");
}

BOOST_AUTO_TEST_CASE(huge_numbers_are_short) {
    Measurement huge = imported("99999999999999999999", "2", 1e200, 1e30), other = imported("8", "2", 2e200, 1e20);
    const Sweep sweep = sweep_of({huge, other}, usual);
    BOOST_TEST(said(sweep.sentences, "Best by time: 99999999999999999999 × 2, 1e+200 s."));
    BOOST_TEST(said(sweep.sentences, "1e+30 tokens/s."));
    // 1e200 s · 1e30 tokens/s against 2e200 s · 1e20 tokens/s: 5e9 times as much.
    BOOST_TEST(said(sweep.remarks, "Time × rate differs by 499999999900 %"));
    BOOST_TEST(said(sweep.remarks, "1e+30 tokens/s = 1e+230 tokens"));
    check(json_of(sweep)["rows"][1]["batch"], 1e20);
    BOOST_TEST(sweep_times(sweep).print(TableFormat::text).find("2e+200") != std::string::npos);
    huge = measured("16", "2", 1, 1e30);
    const Sweep tokens = sweep_of({huge, measured("8", "2", 1)}, usual);
    BOOST_TEST(said(tokens.remarks, "(20,000 to 2e+31 tokens)"));
    for (const Sweep& one : {sweep, tokens}) {
        const std::string text = json_of(one).dump() + sweep_times(one).print(TableFormat::text);
        BOOST_TEST(text.find("9,223,372") == std::string::npos);
        BOOST_TEST(text.find("9223372") == std::string::npos);
        BOOST_TEST(text.find("00000000000000000000") == std::string::npos);
    }
}

BOOST_AUTO_TEST_CASE(what_lies_outside_the_steps_explains_two_best) {
    Measurement slow_start = measured("8", "2", 0.5);
    slow_start.total_seconds += 9;
    const Sweep sweep = sweep_of({slow_start, measured("16", "1", 0.6)}, usual);
    BOOST_TEST(name_of(sweep.rows[*sweep.best_by_time]) == "16 × 1");
    BOOST_TEST(name_of(sweep.rows[*sweep.best_by_throughput]) == "8 × 2");
    BOOST_TEST(said(sweep.sentences, "16 × 1 spent 1.00 s outside its steps, 8 × 2 10.00 s"));
    BOOST_TEST(!said(sweep.remarks, "Time × rate"));
}

BOOST_AUTO_TEST_CASE(values_are_sorted_as_numbers_and_words_after_them) {
    std::vector<Measurement> runs;
    for (const char* value : {"1e3", "9", "word", "100", "0.5", ""}) {
        runs.push_back(measured("8", "2", 0.5));
        runs.back().settings["model.width"] = value;
    }
    const Sweep sweep = sweep_of(runs, {"batch", "width"});
    BOOST_TEST(names_of(sweep) == "8 × 0.5, 8 × 9, 8 × 100, 8 × 1e3, 8 × word, 8 × -");
    runs.back().settings["model.width"] = "3e-4";
    const Sweep small = sweep_of(runs, {"batch", "width"});
    BOOST_TEST(sweep_times(small).print(TableFormat::text).find("3e-4") != std::string::npos);
    BOOST_TEST(json_of(small)["rows"][0]["width"] == 3e-4);
}

BOOST_AUTO_TEST_CASE(keys_are_found_by_their_names) {
    std::vector<Measurement> runs = {measured("8", "2", 0.5), measured("16", "2", 0.5)};
    for (Measurement& run : runs) {
        run.settings["batch.length"] = "64";
        run.settings["model.context"] = "64";
        run.settings["parallel.context"] = "1";
        run.settings["schedule.warmup"] = "3";
        run.settings["model.ttt.base_lr_warmup"] = "3";
    }
    for (const std::vector<std::string>& keys : std::vector<std::vector<std::string>>{
             {"batch.global", "accumulation"}, {"batch", "length"}, {"ranks", "batch.length"}, {"context", "batch"}})
        BOOST_TEST(sweep_of(runs, keys).rows.size() >= 1u);
    BOOST_TEST(name_of(sweep_of(runs, {"context", "batch"}).rows[0]) == "1 × 8");
    BOOST_TEST(refusal(runs, {"batch", "acumulation"}).find("did you mean accumulation?") != std::string::npos);
    BOOST_TEST(refusal(runs, {"bacth", "ranks"}).find("did you mean batch?") != std::string::npos);
    BOOST_TEST(refusal(runs, {"batch", "qqqqqqqqq"}).find("no run has this setting") != std::string::npos);
    BOOST_TEST(refusal(runs, {"batch", "micro_batch"}).find("none of these runs has this setting") !=
               std::string::npos);
    BOOST_TEST(refusal(runs, {"batch", "batch.global"}).find("both are") != std::string::npos);
    BOOST_TEST(refusal(runs, {"batch"}).find("two settings, 1 given") != std::string::npos);
    runs[0].settings["model.length"] = "3";
    BOOST_TEST(refusal(runs, {"batch", "length"}).find("batch.length, model.length") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(other_settings_that_differ_are_marked) {
    Measurement one = measured("8", "2", 0.5), other = measured("16", "1", 0.5);
    one.settings["batch.micro"] = "2";  // follows from batch and accumulation
    other.settings["batch.micro"] = "8";
    one.settings["micro_batch"] = "2";
    other.settings["micro_batch"] = "8";
    BOOST_TEST(sweep_of({one, other}, usual).remarks.empty());
    other.settings["model.width"] = "128";
    other.ranks = 8;
    other.settings["ranks"] = "8";
    other.remarks = {"It was killed."};
    const Sweep sweep = sweep_of({one, other}, usual);
    BOOST_TEST(said(sweep.remarks, "The runs also differ in model.width (not given, 128)."));
    BOOST_TEST(said(sweep.remarks, "The runs also differ in ranks (4, 8)."));
    BOOST_TEST(said(sweep.remarks, "b16a1: It was killed."));
    BOOST_TEST(sweep.remarks.size() == 3u);
}

BOOST_AUTO_TEST_CASE(runs_without_times_or_rates) {
    const Sweep sweep = sweep_of({imported("8", "2", unknown), imported("16", "2", unknown)}, usual);
    BOOST_TEST((!sweep.best_by_time && !sweep.best_by_throughput));
    BOOST_TEST(said(sweep.sentences, "Best by time: unknown"));
    BOOST_TEST(json_of(sweep)["best_by_time"].is_null());
    BOOST_TEST(!sweep_times(sweep).print(TableFormat::text).empty());
}

BOOST_AUTO_TEST_CASE(the_command_reads_traces) {
    const TemporaryFolder folder("sweep");
    const std::vector<std::string> regions = {"epoch", "epoch/step", "epoch/step/forward", "epoch/step/backward"};
    for (const std::int64_t batch : {16, 8}) {
        trace::Header header = make_header(2, regions);
        header.run_name = "b" + std::to_string(batch);
        header.description = "[batch]\nglobal = " + std::to_string(batch) + "\nlength = 32\n";
        trace::TraceWriter writer(folder / ("runs/" + header.run_name), header, 20);
        trace::RowBatch block;
        for (std::int64_t step = 1; step <= 20; ++step) {
            trace::StepRow row;
            row.step = step;
            row.tokens = batch * 32;
            row.seconds = static_cast<double>(batch) / 8;
            block.steps.push_back(row);
            for (int rank = 0; rank < 2; ++rank) {
                block.rank_loss.push_back(1);
                block.overhead.push_back(0);
                block.memory.insert(block.memory.end(), 3, 1000);
                for (const double share : {1.0, 1.0, 0.25, 0.5}) block.times.push_back(share * row.seconds);
                for (const std::uint32_t calls : {0u, 1u, 2u, 2u}) block.calls.push_back(calls);
            }
        }
        writer.append(block);
        writer.finish();
    }
    const Output json = analyze(folder, "sweep --format json " + (folder / "runs"));
    BOOST_REQUIRE(json.code == 0);
    const auto rows = json.json()["rows"];
    BOOST_REQUIRE(rows.size() == 2u);
    BOOST_TEST(rows[0]["batch"] == 8);
    BOOST_TEST(rows[0]["accumulation"] == 2);
    BOOST_TEST(rows[0]["runs"] == 1);
    check(rows[0]["total_seconds"], 20);
    check(rows[0]["train_seconds"], 20);
    check(rows[0]["epoch_seconds"], 20);
    check(rows[0]["forward_seconds"], 5);
    check(rows[0]["forward_mean_seconds"], 0.125);
    check(rows[0]["backward_mean_seconds"], 0.25);
    check(rows[0]["step_seconds"], 1);
    check(rows[0]["step_seconds_high"], 1);
    check(rows[0]["tokens"], 20 * 256);
    check(rows[1]["tokens_per_second"], 256);
    const Output text = analyze(folder, "sweep " + (folder / "runs"));
    BOOST_TEST(text.text.find("batch × accumulation") != std::string::npos);
    for (const char* words : {"for equal", "work, s"}) BOOST_TEST(text.text.find(words) != std::string::npos, words);
    const Output csv = analyze(folder, "sweep --by ranks,batch --format csv " + (folder / "runs"));
    BOOST_TEST(csv.text.find("ranks,batch,runs,total_seconds,") == 0u);
    BOOST_TEST(csv.text.find("\n2,8,1,20") != std::string::npos);
    const Output wrong = analyze(folder, "sweep --by batch,acumulation " + (folder / "runs"));
    BOOST_TEST(wrong.code == 2);
    BOOST_TEST(wrong.text.empty());
    BOOST_TEST(wrong.errors.find("did you mean accumulation?") != std::string::npos);
    BOOST_TEST(analyze(folder, "sweep").code == 2);
    BOOST_TEST(analyze(folder, "sweep " + (folder / "nothing")).code == 2);
}

BOOST_AUTO_TEST_CASE(the_command_reads_a_trace_of_which_few_steps_were_timed) {
    const TemporaryFolder folder("sweep-sampled");
    trace::Header header = make_header(1, {"epoch", "epoch/step", "epoch/step/forward", "epoch/step/backward"});
    header.description = "[batch]\nglobal = 8\nlength = 32\n";
    trace::TraceWriter writer(folder / "run", header, 20);
    trace::RowBatch block;
    for (std::int64_t step = 1; step <= 20; ++step) {
        const bool timed = step % 10 == 0;
        trace::StepRow row;
        row.step = step;
        row.tokens = 256;
        row.seconds = 1;
        block.steps.push_back(row);
        block.rank_loss.push_back(1);
        block.overhead.push_back(0);
        block.memory.insert(block.memory.end(), 3, 1000);
        for (const double seconds : {1.0, 1.0, timed ? 0.25 : 0.0, timed ? 0.5 : 0.0}) block.times.push_back(seconds);
        for (const std::uint32_t calls : {0u, 1u, timed ? 2u : 0u, timed ? 2u : 0u}) block.calls.push_back(calls);
    }
    writer.append(block);
    writer.finish();
    const Output output = analyze(folder, "sweep --format json " + (folder / "run"));
    BOOST_REQUIRE(output.code == 0);
    const auto row = output.json()["rows"][0];
    check(row["epoch_seconds"], 20);
    BOOST_TEST(row["forward_seconds"].is_null());
    BOOST_TEST(row["backward_seconds"].is_null());
    check(row["forward_mean_seconds"], 0.125);
    check(row["backward_mean_seconds"], 0.25);
    // Of 20 steps 4 are the warm-up.
    BOOST_TEST(output.json()["remarks"].dump().find("2 of 16 measured steps were timed phase by phase") !=
               std::string::npos);
    const Output text = analyze(folder, "sweep " + (folder / "run"));
    BOOST_TEST(text.text.find("forward, ms/call") != std::string::npos);
    BOOST_TEST(text.text.find("forward, s") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(the_published_table_through_import) {
    const TemporaryFolder folder("sweep-import");
    std::ofstream(folder / "table.csv") << "run,ranks,batch,accumulation,total,tokens_per_second\n"
                                           "a,4,16,64,314.00,2090\nb,4,32,32,184.91,\nc,4,64,16,118.89,\n"
                                           "d,4,128,8,95.20,\ne,4,256,4,89.86,\nf,4,512,2,86.43,\n"
                                           "g,4,1024,1,102.82,16150\n";
    BOOST_REQUIRE(analyze(folder, "import " + (folder / "table.csv") + " --out " + (folder / "runs")).code == 0);
    const Output output = analyze(folder, "sweep --format json " + (folder / "runs"));
    BOOST_REQUIRE(output.code == 0);
    const auto json = output.json();
    BOOST_TEST(json["rows"].size() == 7u);
    BOOST_TEST(json["best_by_time"]["batch"] == 512);
    BOOST_TEST(json["best_by_time"]["accumulation"] == 2);
    check(json["best_by_time"]["total_seconds"], 86.43);
    BOOST_TEST(json["best_by_throughput"]["batch"] == 1024);
    BOOST_TEST(json["best_by_throughput"]["accumulation"] == 1);
    BOOST_TEST(json["remarks"].dump().find("1,660,543") != std::string::npos);
    const Output text = analyze(folder, "sweep " + (folder / "runs"));
    BOOST_TEST(text.text.find("Best by time: 512 × 2, 86.43 s.") != std::string::npos);
    BOOST_TEST(text.text.find("Phases") == std::string::npos);
    // One value of each, so by the two numbers alone: 102.82 ÷ 86.43 = 1.19.
    const std::string best = (folder / "runs/f") + " " + (folder / "runs/g");
    BOOST_TEST(analyze(folder, "compare --slower-than 10% " + best).code == 6);
    BOOST_TEST(analyze(folder, "compare --slower-than 20% " + best).code == 0);
}
