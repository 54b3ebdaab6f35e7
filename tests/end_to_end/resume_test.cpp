// A run that is stopped, killed or moved to other ranks and goes on is the run that was never stopped.
#define BOOST_TEST_MODULE resume
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <sstream>

#include "end_to_end/command.hpp"
#include "tensorboard_events.hpp"

using namespace lockstep::tests;
namespace data = boost::unit_test::data;

namespace {

constexpr const char* validating = " --set validation.every=5";
constexpr int last_step = 12;

// Validation losses by step, from the traces of all launches.
std::map<int, double> traced_validations(const fs::path& folder) {
    const Result summary = Process(analyze_program + " summary runs/small --format json", folder).wait();
    check_exit(summary, 0);
    std::map<int, double> losses;
    const Json json = Json::parse(summary.out);
    for (const Json& step : json["steps"])
        if (!step["validation"].is_null()) losses[step["step"]] = step["validation"]["last"]["loss"];
    return losses;
}

// The end of a run in `resumed` is that of the run in `whole`: tensors, state and course, bit for bit.
void check_same_end(const fs::path& whole, const fs::path& resumed) {
    check_same_checkpoint(checkpoint_file(whole, last_step), checkpoint_file(resumed, last_step));
    for (const std::string key : {"loss", "gradient_norm", "learning_rate", "validation_loss"})
        BOOST_TEST((numbers_of(whole, key) == numbers_of(resumed, key)), key << " differs");
    BOOST_TEST(numbers_of(resumed, "loss").size() == last_step);
    BOOST_TEST((traced_validations(resumed) == numbers_of(resumed, "validation_loss")));
    BOOST_TEST(status_of(resumed)["state"] == "finished");
    BOOST_TEST(status_of(resumed)["step"] == last_step);
}

struct Twins {
    Workplace place;
    fs::path whole = place.twin("whole"), resumed = place.twin("resumed");
};

}  // namespace

BOOST_AUTO_TEST_SUITE(resume)

BOOST_AUTO_TEST_CASE(stopped_at_any_step_with_gradient_accumulation) {
    const Twins twins;
    const std::string train = std::string("train run.toml") + validating;
    check_exit(run(train, twins.whole), 0);
    for (const int stop :
         {1, 3, 4, 5, 11}) {  // in the warm-up, at its end and at a checkpoint, between, before the end
        fs::remove_all(twins.resumed / "runs");
        fs::remove_all(twins.resumed / "checkpoints");
        check_exit(run(train + " --stop-at " + std::to_string(stop), twins.resumed), 4);
        BOOST_TEST(status_of(twins.resumed)["state"] == "stopped");
        BOOST_TEST(status_of(twins.resumed)["exit_code"] == 4);
        BOOST_TEST(fs::exists(checkpoint_file(twins.resumed, stop)));
        const Result second = run(train + " --resume auto", twins.resumed);
        check_exit(second, 0);
        BOOST_TEST(contains(second.error, "at step " + std::to_string(stop)));
        BOOST_TEST(!contains(second.error, "bit-identical"), second);  // nothing differs, so no warning
        check_same_end(twins.whole, twins.resumed);
    }
}

BOOST_AUTO_TEST_CASE(what_is_recomputed_changes_no_bit) {
    const Twins twins;
    const std::string train = "train run.toml --set model.mixer=attention --set model.mlp=gelu ";
    check_exit(run(train, twins.whole), 0);
    check_exit(run(train + "--stop-at 5", twins.resumed), 4);
    for (const std::string recompute : {"cheap --stop-at 7", "selective --stop-at 9", "full"}) {
        const Result next = run(train + "--resume auto --set parallel.recompute=" + recompute, twins.resumed);
        check_exit(next, recompute == "full" ? 0 : 4);
        BOOST_TEST(!contains(next.error, "bit-identical"), next);
    }
    check_same_end(twins.whole, twins.resumed);
}

BOOST_DATA_TEST_CASE(stopped_twice_on_two_ranks, data::make({"attention", "ttt-mlp"}), mixer) {
    const Twins twins;
    const std::string train = "train run.toml --set model.mixer=" + std::string(mixer) + validating;
    check_exit(run(train, twins.whole, 2), 0);
    check_exit(run(train + " --stop-at 2", twins.resumed, 2), 4);
    check_exit(run(train + " --resume auto --stop-at 7", twins.resumed, 2), 4);
    check_exit(run(train + " --resume checkpoints/small/step-00000007.h5", twins.resumed, 2), 0);
    check_same_end(twins.whole, twins.resumed);
}

// Whoever goes back to an earlier checkpoint leaves the later ones behind: "auto" must then not take one of those.
BOOST_AUTO_TEST_CASE(going_back_sets_the_later_checkpoints_aside) {
    const Twins twins;
    check_exit(run("train run.toml", twins.resumed), 0);
    const auto all = checkpoints_in(twins.resumed);
    BOOST_TEST_REQUIRE(all.size() == 2u);
    const std::string earlier = "checkpoints/small/" + all[0];
    const Result back = run("train run.toml --stop-at 9 --resume " + earlier, twins.resumed);
    check_exit(back, 4);
    BOOST_TEST(contains(back.error, all[1] + ".set-aside"), back);
    BOOST_TEST(fs::exists(twins.resumed / "checkpoints" / "small" / (all[1] + ".set-aside")));
    const Result on = run("train run.toml --resume auto", twins.resumed);
    check_exit(on, 0);
    BOOST_TEST(contains(on.error, "at step 9"), on);
    check_exit(run("train run.toml", twins.whole), 0);
    check_same_end(twins.whole, twins.resumed);
}

BOOST_AUTO_TEST_CASE(changed_settings_and_data_are_said) {
    const Twins twins;
    check_exit(run("train run.toml --stop-at 6", twins.resumed), 4);
    write_file(twins.resumed / "text" / "more.txt", std::string(5000, 'x') + "\n");
    const Result second = run("train run.toml --resume auto --set schedule.peak_lr=1e-3", twins.resumed);
    check_exit(second, 0);
    BOOST_TEST(contains(second.error, "schedule.peak_lr is 0.001, was 0.002"), second);
    BOOST_TEST(contains(second.error, "the training data, data.documents, batch.length or run.seed differs"), second);
}

BOOST_AUTO_TEST_CASE(stopping_where_the_run_is_makes_no_step) {
    const Twins twins;
    check_exit(run("train run.toml --stop-at 6", twins.resumed), 4);
    check_exit(run("train run.toml --resume auto --stop-at 5", twins.resumed), 4);
    BOOST_TEST(metrics_of(twins.resumed).size() == 6u);
    BOOST_TEST(status_of(twins.resumed)["step"] == 6);
}

// What TensorBoard shows is what metrics.jsonl has, whatever was stopped, killed and gone back to.
BOOST_AUTO_TEST_CASE(tensorboard_shows_every_step_once) {
    const Workplace place;
    const std::string train = std::string("train run.toml --set log.tensorboard=true") + validating;
    check_exit(run(train + " --stop-at 6", place.path(), 2), 4);
    const Result killed = run(train + " --resume auto", place.path(), 2, "LOCKSTEP_FAULT=step_end:0:11:kill");
    BOOST_TEST(killed.exit_code != 0, killed);  // which one is the launcher's choice
    check_exit(run(train + " --set schedule.peak_lr=1e-3 --resume auto", place.path()), 0);
    const fs::path folder = run_folder(place.path()) / "tensorboard";
    const auto names = names_in(folder);
    BOOST_TEST_REQUIRE(names.size() == 3u);
    const auto as_floats = [](const std::map<int, double>& numbers) {
        std::map<std::int64_t, float> floats;
        for (const auto& [step, number] : numbers) floats[step] = static_cast<float>(number);
        return floats;
    };
    Board board;
    for (const std::string& name : names) {
        BOOST_TEST(name.starts_with("events.out.tfevents."));
        const auto events = events_of(read_file(folder / name));
        for (const BoardEvent& event : events) BOOST_TEST(event.wall_time > 1.6e9);
        board.add(events);
    }
    BOOST_TEST(board.scalars.at("train/loss").size() == last_step);
    const std::map<std::string, std::string> keys = {{"train/loss", "loss"},
                                                     {"train/gradient_norm", "gradient_norm"},
                                                     {"train/learning_rate", "learning_rate"},
                                                     {"speed/tokens_per_second", "tokens_per_second"},
                                                     {"speed/flop_per_second", "flop_per_second"},
                                                     {"speed/seconds_per_step", "seconds"},
                                                     {"validation/loss", "validation_loss"},
                                                     {"validation/bits_per_byte", "validation_bits_per_byte"}};
    for (const auto& [tag, key] : keys)
        BOOST_TEST((board.scalars.at(tag) == as_floats(numbers_of(place.path(), key))), tag << " differs");
    BOOST_TEST(board.scalars.at("memory/peak_bytes").size() == last_step);
    BOOST_TEST_REQUIRE(board.descriptions.size() >= 2u);
    BOOST_TEST(board.descriptions.begin()->first == 1);
    BOOST_TEST(contains(board.descriptions.begin()->second, "    peak_lr = 0.002"));
    BOOST_TEST(contains(board.descriptions.rbegin()->second, "    peak_lr = 0.001"));

    // The same from the traces; that of the launch that was killed ends at its last flush.
    const auto to = [&](const std::string& out) {
        return Process(analyze_program + " export runs --to tensorboard --out " + out, place.path()).wait();
    };
    check_exit(to("board"), 0);
    check_exit(to("board"), 0);  // once more: in place of the file
    const auto files = names_in(place.path() / "board" / "small");
    BOOST_TEST_REQUIRE(files.size() == 1u);
    Board exported;
    exported.add(events_of(read_file(place.path() / "board" / "small" / files.front())));
    for (const auto& [tag, values] : board.scalars) {
        const auto& in_export = exported.scalars.at(tag);
        BOOST_TEST(in_export.count(last_step) == values.count(last_step), tag);
        BOOST_TEST(in_export.size() > values.size() / 2, tag);
        for (const auto& [step, value] : in_export)
            BOOST_TEST((values.count(step) == 1 && values.at(step) == value), tag << " differs at step " << step);
    }
    BOOST_TEST((exported.descriptions.rbegin()->second == board.descriptions.rbegin()->second));
}

BOOST_AUTO_TEST_CASE(killed_and_resumed_from_the_periodic_checkpoint) {
    const Twins twins;
    check_exit(run("train run.toml", twins.whole), 0);
    // A checkpoint is begun only when the one before has its name: at step 11 that of step 4 has.
    const Result killed = run("train run.toml", twins.resumed, 0, "LOCKSTEP_FAULT=step_end:0:11:kill");
    check_exit(killed, 128 + SIGKILL);
    BOOST_TEST_REQUIRE(!checkpoints_in(twins.resumed).empty());
    BOOST_TEST(metrics_of(twins.resumed).size() == 10u);
    check_exit(run("train run.toml --resume auto", twins.resumed), 0);
    check_same_end(twins.whole, twins.resumed);
    BOOST_TEST((checkpoints_in(twins.resumed) == checkpoints_in(twins.whole)));  // nothing unfinished is left
}

BOOST_AUTO_TEST_CASE(all_processes_killed_and_resumed) {
    const Twins twins;
    {
        // Rank 1 stands still at the end of step 11, so that the kill comes in the middle of a run.
        const Process process(command_line("train run.toml", 2, "LOCKSTEP_FAULT=step_end:1:11:stop"), twins.resumed);
        const auto standing = [&] {
            return metrics_of(twins.resumed).size() == 10 && !checkpoints_in(twins.resumed).empty();
        };
        BOOST_TEST_REQUIRE(wait_until(standing), process.error_so_far());
        process.kill_group();
    }
    check_exit(run("train run.toml", twins.whole, 2), 0);
    // The lock is free when the last process is gone.
    Result resumed;
    BOOST_TEST(wait_until([&] {
        resumed = run("train run.toml --resume auto", twins.resumed, 2);
        return resumed.exit_code != 2;
    }));
    check_exit(resumed, 0);
    check_same_end(twins.whole, twins.resumed);
}

BOOST_AUTO_TEST_CASE(another_number_of_ranks_goes_on) {
    const Twins twins;
    check_exit(run("train run.toml", twins.whole), 0);
    for (const int ranks : {2, 3}) {
        fs::remove_all(twins.resumed / "runs");
        fs::remove_all(twins.resumed / "checkpoints");
        check_exit(run("train run.toml --stop-at 6", twins.resumed), 4);
        const Result second = run("train run.toml --resume auto", twins.resumed, ranks);
        check_exit(second, 0);
        BOOST_TEST(count_of(second.error, "to an uninterrupted run: ranks " + std::to_string(ranks) + " (was 1)") == 1u,
                   second);
        BOOST_TEST(count_of(second.error, "warning: ") == 1u, second);
        const auto losses = numbers_of(twins.whole, "loss"), others = numbers_of(twins.resumed, "loss");
        BOOST_TEST(largest_difference(losses, others) < 1e-5);
    }
}

// A checkpoint is written from the tensors themselves: an update that comes before it is written changes nothing in it.
BOOST_AUTO_TEST_CASE(updates_do_not_reach_a_checkpoint_that_is_still_written) {
    const Twins twins;
    const std::string train = "train run.toml --set checkpoint.keep=3";
    for (const int ranks : {1, 2})
        for (const std::string settings : {"", " --set parallel.zero=1"}) {
            for (const fs::path& folder : {twins.whole, twins.resumed}) {
                fs::remove_all(folder / "runs");
                fs::remove_all(folder / "checkpoints");
            }
            check_exit(run(train + settings, twins.whole, ranks), 0);
            check_exit(run(train + settings + " --set checkpoint.verify=written", twins.resumed, ranks,
                           "LOCKSTEP_FAULT=checkpoint_gather:*:*:slow"),
                       0);
            for (const int step : {4, 8, 12})
                check_same_checkpoint(checkpoint_file(twins.whole, step), checkpoint_file(twins.resumed, step));
        }
}

// On one node there are no copies; what a kill leaves of the parts is never taken for more than it is.
BOOST_AUTO_TEST_CASE(killed_while_local_parts_are_written) {
    const Twins twins;
    const std::string train =
        "train run.toml --set checkpoint.every=0 --set checkpoint.local=local --set checkpoint.local_every=2";
    const Result undisturbed = run(train, twins.whole, 2);
    check_exit(undisturbed, 0);
    BOOST_TEST(contains(undisturbed.error, "have no copies on another"), undisturbed);
    // A folder that cannot be is said at the start, not when it is first written to.
    const Result nowhere = run(train + " --set run.name=nowhere --set checkpoint.local=run.toml", twins.whole, 2);
    check_exit(nowhere, 2);
    BOOST_TEST(count_of(nowhere.error, "checkpoint.local = \"run.toml\": ") == 1u, nowhere);
    BOOST_TEST(names_in(twins.whole / "local" / "small").empty());
    for (const std::string fault : {"step_end:0:9:kill", "local_reserve:1:*:kill", "local_write:0:*:kill",
                                    "local_before_rename:0:*:kill", "local_before_rename:1:*:kill"}) {
        for (const char* folder : {"runs", "checkpoints", "local"}) fs::remove_all(twins.resumed / folder);
        const Result killed = run(train, twins.resumed, 2, "LOCKSTEP_FAULT=" + fault);
        BOOST_TEST(killed.exit_code != 0, killed);
        if (fault.starts_with("step_end")) {
            const Result forgotten = run(train, twins.resumed, 2);
            check_exit(forgotten, 2);
            BOOST_TEST(contains(forgotten.error, "--resume auto"), forgotten);
        }
        const Result again = run(train + " --resume auto", twins.resumed, 2);
        check_exit(again, 0);
        // In step 8 that of step 6 was committed before the next began. The others die with the first.
        const bool local = contains(again.error, "resumed from local parts of step ");
        if (fault.starts_with("step_end")) BOOST_TEST(local, again);
        if (!fault.starts_with("step_end")) BOOST_TEST(!local, again);
        check_same_checkpoint(checkpoint_file(twins.whole, last_step), checkpoint_file(twins.resumed, last_step));
        BOOST_TEST((numbers_of(twins.whole, "loss") == numbers_of(twins.resumed, "loss")), fault);
    }
}

// What no other node has a copy of: an older one instead of the damaged one, and the shared one instead of none.
BOOST_AUTO_TEST_CASE(damaged_local_parts_are_passed_over) {
    const Twins twins;
    const std::string train =
        "train run.toml --set checkpoint.every=4 --set checkpoint.local=local --set checkpoint.local_every=3";
    check_exit(run(train, twins.whole, 2), 0);
    const Result killed = run(train, twins.resumed, 2, "LOCKSTEP_FAULT=step_end:0:10:kill");
    BOOST_TEST(killed.exit_code != 0, killed);
    const fs::path local = twins.resumed / "local" / "small";
    const auto damage = [&](const std::string& step) {
        int damaged = 0;
        for (const std::string& name : names_in(local))
            if (contains(name, step)) {
                fs::resize_file(local / name, fs::file_size(local / name) - 1000);
                ++damaged;
            }
        return damaged;
    };
    damage("step-00000009");  // it may not have been committed
    BOOST_TEST(damage("step-00000006") == 2);
    const Result again = run(train + " --resume auto", twins.resumed, 2);
    check_exit(again, 0);
    BOOST_TEST(contains(again.error, "skipped:"), again);
    BOOST_TEST(!contains(again.error, "resumed from local parts"), again);
    BOOST_TEST(contains(again.error, "resumed from checkpoints/small/step-"), again);
    check_same_checkpoint(checkpoint_file(twins.whole, last_step), checkpoint_file(twins.resumed, last_step));
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(launch)

BOOST_AUTO_TEST_CASE(auto_without_checkpoints_begins_and_a_finished_run_is_left_alone) {
    const Workplace place;
    const Result fresh = run("train run.toml --resume auto", place.path());
    check_exit(fresh, 0);
    BOOST_TEST(contains(fresh.error, "nothing to resume"));
    const auto metrics = read_file(run_folder(place.path()) / "metrics.jsonl");
    for (const int ranks : {0, 2}) {
        const Result again = run("train run.toml --resume auto", place.path(), ranks);
        check_exit(again, 0);
        BOOST_TEST(count_of(again.error, "is finished") == 1u, again);
    }
    BOOST_TEST(read_file(run_folder(place.path()) / "metrics.jsonl") == metrics);
    BOOST_TEST(status_of(place.path())["state"] == "finished");

    const Result refused = run("train run.toml", place.path());
    check_exit(refused, 2);
    BOOST_TEST(contains(refused.error, "--resume auto"));
    BOOST_TEST(contains(refused.error, "run.name"));
    BOOST_TEST(read_file(run_folder(place.path()) / "metrics.jsonl") == metrics);
}

BOOST_AUTO_TEST_CASE(a_second_launch_of_a_run_is_refused) {
    const Workplace place;
    Process first(command_line("train run.toml --set schedule.steps=1000000"), place.path());
    BOOST_TEST_REQUIRE(wait_until([&] { return !read_file(run_folder(place.path()) / "metrics.jsonl").empty(); }));
    for (const int ranks : {0, 2}) {
        const Result second = run("train run.toml --resume auto", place.path(), ranks);
        check_exit(second, 2);
        BOOST_TEST(count_of(second.error, "is in use by another launch of this run") == 1u, second);
    }
    // Nor may one with another run folder write to the same checkpoints.
    const Result elsewhere = run("train run.toml --resume auto --set run.folder=other", place.path());
    check_exit(elsewhere, 2);
    BOOST_TEST(contains(elsewhere.error, "checkpoints/small is in use by another launch"), elsewhere);
    first.signal(SIGUSR1);  // the first is unharmed: it stops when asked to
    check_exit(first.wait(), 4);
    BOOST_TEST(status_of(place.path())["state"] == "stopped");
}

BOOST_AUTO_TEST_CASE(the_log_fits_a_terminal) {
    const Workplace place;
    // "14:21:07 step 3/12  loss …"
    const auto steps = [](const Result& result) {
        std::vector<std::string> lines;
        std::istringstream text(result.error);
        for (std::string line; std::getline(text, line);) {
            const std::string rest = line.size() > 9 ? line.substr(9) : "";
            if (rest.starts_with("step ") && contains(rest, "/12  ")) lines.push_back(rest);
        }
        for (const std::string& line : lines) BOOST_TEST(line.size() <= 91u, line);
        return lines;
    };
    const Result automatic = run("train run.toml", place.path());
    check_exit(automatic, 0);
    const auto some = steps(automatic);
    BOOST_TEST_REQUIRE(some.size() >= 2u, automatic);
    BOOST_TEST(some.front().starts_with("step 1/12  loss "), some.front());
    BOOST_TEST(some.back().starts_with("step 12/12  loss "), some.back());
    for (const char* part : {"  norm ", "  lr ", " ms  ", " tok/s  MFU ", "s left"})
        BOOST_TEST(contains(some.front(), part), some.front());
    BOOST_TEST(!contains(some.back(), "left"), some.back());
    BOOST_TEST(!contains(automatic.error, "rank 0 on "));
    BOOST_TEST(contains(read_file(run_folder(place.path()) / "log.txt"), "rank 0 on "));
    BOOST_TEST(numbers_of(place.path(), "loss").size() == 12u);

    const Result all = run("train run.toml --set run.name=all --set log.every=1 --verbose", place.path(), 2);
    check_exit(all, 0);
    BOOST_TEST(steps(all).size() == 12u, all);
    BOOST_TEST(contains(all.error, "rank 0 on "), all);

    // Stopped between two lines: the last step has one all the same.
    const Result stopped = run("train run.toml --set run.name=some --set log.every=4 --stop-at 6", place.path());
    check_exit(stopped, 4);
    const auto few = steps(stopped);
    BOOST_TEST_REQUIRE(few.size() == 3u, stopped);
    BOOST_TEST(few[1].starts_with("step 4/12"));
    BOOST_TEST(few[2].starts_with("step 6/12"));

    const Result quiet = run("train run.toml --set run.name=quiet --quiet", place.path());
    check_exit(quiet, 0);
    BOOST_TEST(quiet.error == "", quiet);
    BOOST_TEST(contains(read_file(run_folder(place.path(), "quiet") / "log.txt"), "finished: step 12"));
}

// As users start it: the program starts once more with a shorter spin, and nothing else changes.
BOOST_AUTO_TEST_CASE(threads_that_spin_shortly_compute_the_same) {
    const Twins twins;
    check_exit(run("train run.toml", twins.whole, 2), 0);
    const Result restarted =
        Process("env -u OMP_WAIT_POLICY " + command_line("train run.toml", 2), twins.resumed).wait();
    check_exit(restarted, 0);
    check_same_checkpoint(checkpoint_file(twins.whole, last_step), checkpoint_file(twins.resumed, last_step));
}

BOOST_AUTO_TEST_CASE(changes_of_the_batch_are_logged) {
    const Workplace place;
    const Result result = run("train run.toml --set 'batch.ramp={start=4, increment=4, samples=24}'", place.path());
    check_exit(result, 0);
    BOOST_TEST(contains(result.error, ": the batch is now 8 sequences"), result);
    BOOST_TEST(contains(result.error, ": the batch is now 12 sequences"), result);
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(signals)

namespace {

// A run without an end is asked to stop by `ask`; it leaves a checkpoint of the step it says, and goes on from there.
void stop_by(const std::function<void(const Process&, const fs::path&)>& ask, int ranks,
             const std::vector<int>& exit_codes, const std::string& reason) {
    const Workplace place;
    const std::string train = "train run.toml --set schedule.steps=1000000 --set checkpoint.every=100000";
    // Open MPI's mpirun kills ranks 1 s after it has passed a signal on: too soon for a checkpoint on a busy machine.
    const std::string patience = "OMPI_MCA_odls_base_sigkill_timeout=5 PRTE_MCA_odls_base_sigkill_timeout=5";
    Process process(command_line(train, ranks, patience), place.path());
    BOOST_TEST_REQUIRE(wait_until([&] { return !read_file(run_folder(place.path()) / "metrics.jsonl").empty(); }));
    ask(process, place.path());
    const Result result = process.wait();
    BOOST_TEST((std::find(exit_codes.begin(), exit_codes.end(), result.exit_code) != exit_codes.end()), result);
    // mpirun may leave before its ranks do.
    BOOST_TEST_REQUIRE(wait_until([&] { return status_of(place.path())["state"] == "stopped"; }, 10), result);
    const Json status = status_of(place.path());
    BOOST_TEST(status["exit_code"] == 4);
    BOOST_TEST(contains(status["reason"].get<std::string>(), reason), status["reason"]);
    const int step = status["step"].get<int>();
    const fs::path checkpoint = checkpoint_file(place.path(), step);
    BOOST_TEST_REQUIRE(fs::exists(checkpoint));
    check_exit(run("verify " + checkpoint.string(), place.path()), 0);
    BOOST_TEST(static_cast<int>(metrics_of(place.path()).size()) == step);
    check_exit(run(train + " --resume auto --stop-at " + std::to_string(step + 2), place.path(), ranks), 4);
    BOOST_TEST(status_of(place.path())["step"] == step + 2);
}

void send(int signal, int ranks, const std::vector<int>& exit_codes, const std::string& word) {
    stop_by([&](const Process& process, const fs::path&) { process.signal(signal); }, ranks, exit_codes, word);
}

}  // namespace

BOOST_AUTO_TEST_CASE(usr1_alone) {
    send(SIGUSR1, 0, {4}, "USR1");
}
BOOST_AUTO_TEST_CASE(term_alone) {
    send(SIGTERM, 0, {4}, "TERM");
}
BOOST_AUTO_TEST_CASE(int_alone) {
    send(SIGINT, 0, {4}, "INT");
}
BOOST_AUTO_TEST_CASE(usr1_to_mpirun) {
    send(SIGUSR1, 2, {0, 4}, "USR1");  // MPICH's mpirun now and then loses the ranks' code
}
BOOST_AUTO_TEST_CASE(term_to_mpirun) {
    send(SIGTERM, 2, {0, 1, 4, 128 + SIGTERM}, "TERM");  // some mpiruns return their own code
}
BOOST_AUTO_TEST_CASE(int_to_mpirun) {
    send(SIGINT, 2, {0, 1, 4, 128 + SIGINT}, launcher_is_open_mpi() ? "TERM" : "INT");  // what it passes on
}
// Batch systems signal a rank and its launcher, which passes it on; the ranks of a job that is told to stop may be told
// again.
BOOST_AUTO_TEST_CASE(signals_in_quick_succession) {
    const auto ask = [](const Process& process, const fs::path&) {
        for (const int signal : {SIGUSR1, SIGTERM, SIGTERM, SIGUSR1, SIGINT}) process.signal(signal);
    };
    stop_by(ask, 0, {4}, "signal ");
}
BOOST_AUTO_TEST_CASE(stop_file) {
    const auto ask = [](const Process&, const fs::path& folder) { write_file(run_folder(folder) / "stop", ""); };
    stop_by(ask, 2, {4}, "\"stop\"");
}

BOOST_AUTO_TEST_SUITE_END()
