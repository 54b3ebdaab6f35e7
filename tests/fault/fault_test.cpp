// Files are damaged, losses become NaN and ranks die: what is whole stays whole, and what went wrong is said.
#define BOOST_TEST_MODULE fault
#include <cmath>

#include "end_to_end/command.hpp"

using namespace lockstep::tests;

namespace {

void truncate_file(const fs::path& path) {
    fs::resize_file(path, fs::file_size(path) / 2);
}
void flip_bit(const fs::path& path) {
    std::string bytes = read_file(path);
    bytes[bytes.size() / 3] = static_cast<char>(bytes[bytes.size() / 3] ^ 1);
    write_file(path, bytes);
}

void check_finite(const fs::path& checkpoint) {
    for (const auto& [path, values] : tensors_of(checkpoint)) {
        bool finite = true;
        for (const float value : values) finite = finite && std::isfinite(value);
        BOOST_TEST(finite, path << " holds numbers that are not finite");
    }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(damaged_checkpoint)

BOOST_AUTO_TEST_CASE(the_one_before_is_taken) {
    const Workplace place;
    const fs::path whole = place.twin("whole");
    // By the launcher, as what is resumed below: it may allow a rank fewer cores, and the state says how many threads.
    check_exit(run("train run.toml", whole, 1), 0);
    int number = 0;
    for (const auto damage : {truncate_file, flip_bit}) {
        const fs::path folder = place.twin("damaged-" + std::to_string(++number));
        check_exit(run("train run.toml --stop-at 6", folder), 4);
        const fs::path newest = checkpoint_file(folder, 6), before = checkpoint_file(folder, 4);
        damage(newest);
        check_exit(run("verify " + newest.string(), folder), 3);
        check_exit(run("train run.toml --resume " + newest.string(), folder), 3);
        const Result resumed = run("train run.toml --resume auto", folder, number);
        check_exit(resumed, 0);
        BOOST_TEST(count_of(resumed.error, "skipped: ") == 1u, resumed);
        BOOST_TEST(contains(resumed.error, "step-00000006.h5"));
        BOOST_TEST(contains(resumed.error, "resumed from checkpoints/small/step-00000004.h5 at step 4"), resumed);
        if (number == 1) check_same_checkpoint(checkpoint_file(whole, 12), checkpoint_file(folder, 12));
        BOOST_TEST(numbers_of(folder, "loss").size() == 12u);
    }
}

BOOST_AUTO_TEST_CASE(none_is_whole) {
    const Workplace place;
    check_exit(run("train run.toml --stop-at 6", place.path()), 4);
    const auto names = checkpoints_in(place.path());
    BOOST_TEST(names.size() == 2u);
    for (const auto& name : names) flip_bit(place.path() / "checkpoints" / "small" / name);
    for (const int ranks : {0, 2}) {
        const Result result = run("train run.toml --resume auto", place.path(), ranks);
        check_exit(result, 3);
        BOOST_TEST(count_of(result.error, "skipped: ") == 2u, result);
        BOOST_TEST(count_of(result.error, "error: ") == 1u, result);
    }
    BOOST_TEST((checkpoints_in(place.path()) == names));  // nothing is removed
    BOOST_TEST(status_of(place.path())["state"] == "stopped");
}

BOOST_AUTO_TEST_CASE(as_many_as_asked_for_are_kept) {
    const Workplace place;
    check_exit(run("train run.toml --set checkpoint.every=2", place.path(), 2), 0);
    BOOST_TEST((checkpoints_in(place.path()) == std::vector<std::string>{"step-00000010.h5", "step-00000012.h5"}));
    check_exit(run("train run.toml --set checkpoint.every=2 --set checkpoint.keep=4 --set run.name=more", place.path()),
               0);
    BOOST_TEST(checkpoints_in(place.path(), "more").size() == 4u);
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(not_a_number)

BOOST_AUTO_TEST_CASE(a_step_is_skipped_and_counted) {
    const Workplace place;
    const Result result = run("train run.toml", place.path(), 2, "LOCKSTEP_FAULT=loss:1:5:nan");
    check_exit(result, 0);
    const auto lines = metrics_of(place.path());
    int skipped = 0;
    for (const Json& line : lines)
        if (line.value("skipped", false)) {
            ++skipped;
            BOOST_TEST(line["step"] == 5);
            BOOST_TEST(line["loss"].is_null());
        }
    BOOST_TEST(skipped == 1);
    BOOST_TEST(contains(result.error, "step 5 skipped: loss or gradient not finite; 1 skipped so far"));
    const auto state = state_of(checkpoint_file(place.path(), 12));
    BOOST_TEST(state.at("skipped_steps") == "1");
    BOOST_TEST(state.at("optimizer_steps") == "11");
    check_finite(checkpoint_file(place.path(), 12));
    BOOST_TEST(numbers_of(place.path(), "loss").at(12) < numbers_of(place.path(), "loss").at(1));
}

BOOST_AUTO_TEST_CASE(too_many_in_a_row_end_the_run_with_a_checkpoint) {
    const Workplace place;
    std::string faults;
    for (int step = 4; step <= 12; ++step) faults += "loss:*:" + std::to_string(step) + ":nan,";
    const Result result =
        run("train run.toml --set optimizer.skip_limit=3", place.path(), 2, "LOCKSTEP_FAULT=" + faults);
    check_exit(result, 1);
    BOOST_TEST(count_of(result.error, "error: ") == 1u, result);
    BOOST_TEST(contains(result.error, "3 consecutive steps, up to step 6"), result);
    BOOST_TEST(status_of(place.path())["state"] == "failed");
    BOOST_TEST(status_of(place.path())["step"] == 6);
    const fs::path checkpoint = checkpoint_file(place.path(), 6);
    BOOST_TEST_REQUIRE(fs::exists(checkpoint));
    check_whole(checkpoint);
    check_finite(checkpoint);
    // The parameters are those after step 3, the last good one.
    const fs::path good = place.twin("good");
    check_exit(run("train run.toml --set optimizer.skip_limit=3 --stop-at 3", good, 2), 4);
    BOOST_TEST((tensors_of(checkpoint) == tensors_of(checkpoint_file(good, 3))));
    // The trace tells of them.
    const Result summary = Process(analyze_program + " summary runs/small --format json", place.path()).wait();
    check_exit(summary, 0);
    BOOST_TEST(Json::parse(summary.out)["totals"]["skipped_steps"] == 3, summary);
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(lost_rank)

namespace {

// One of three ranks is lost in step 11: the job is down soon, and the checkpoint of step 4, which has its name by
// then, can be resumed from.
Result lose_a_rank(const fs::path& folder, const std::string& fault, const std::string& state = "failed") {
    Result result = run("train run.toml", folder, 3, "LOCKSTEP_FAULT=" + fault);
    BOOST_TEST(!result.timed_out);
    BOOST_TEST(result.seconds < 15);
    // What it says is written by the witness, which may come after mpirun's end.
    BOOST_TEST(wait_until([&] { return status_of(folder)["state"] != "running"; }, 5), result);
    if (result.exit_code == 1) {  // it could still speak, also for rank 0
        BOOST_TEST(status_of(folder)["state"] == state);
        BOOST_TEST(status_of(folder)["step"] == 11);
        BOOST_TEST(count_of(read_file(run_folder(folder) / "log.txt"), "injected ") == 1u);
    }
    const auto names = checkpoints_in(folder);
    bool any = false;
    for (const auto& name : names)
        if (name.find(".tmp") == std::string::npos) {
            any = true;
            check_whole(folder / "checkpoints" / "small" / name);
        }
    BOOST_TEST(any);
    check_exit(run("train run.toml --resume auto", folder, 3), 0);
    BOOST_TEST(numbers_of(folder, "loss").size() == 12u);
    BOOST_TEST((checkpoints_in(folder) == std::vector<std::string>{"step-00000008.h5", "step-00000012.h5"}));
    return result;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_rank_throws) {
    const Workplace place;
    const Result result = lose_a_rank(place.path(), "step_end:1:11:throw");
    BOOST_TEST(result.exit_code == 1, result);
    BOOST_TEST(count_of(result.error, "injected fault at step_end on rank 1 in step 11") == 1u, result);
}

BOOST_AUTO_TEST_CASE(all_ranks_throw) {
    const Workplace place;
    const Result result = lose_a_rank(place.path(), "step_end:*:11:throw");
    BOOST_TEST(result.exit_code == 1, result);
    BOOST_TEST(count_of(result.error, "error: ") == 1u, result);
}

BOOST_AUTO_TEST_CASE(a_rank_is_killed) {
    const Workplace place;
    const Result result = lose_a_rank(place.path(), "step_end:2:11:kill");
    BOOST_TEST(result.exit_code != 0, result);
    // The launcher kills the others at once; the witness says which one it was.
    BOOST_TEST(count_of(read_file(run_folder(place.path()) / "log.txt"), "rank 2 of 3 (process ") == 1u);
}

BOOST_AUTO_TEST_CASE(a_rank_throws_in_the_middle_of_a_step) {
    const Workplace place;
    const Result result = lose_a_rank(place.path(), "gradient:2:11:throw");
    BOOST_TEST(result.exit_code == 1, result);
    BOOST_TEST(count_of(result.error, "injected fault at gradient on rank 2 in step 11") == 1u, result);
}

// jobs/launch goes on after this, which is no fault of the program.
BOOST_AUTO_TEST_CASE(ranks_lose_their_connections) {
    for (const char* who : {"*", "1"}) {
        const Workplace place;
        const Result result = lose_a_rank(place.path(), "gradient:" + std::string(who) + ":11:disconnect", "lost");
        BOOST_TEST(result.exit_code == 1, result);
        BOOST_TEST(count_of(result.error, "injected loss of a connection") == 1u, result);
    }
}

// The others lose their connections to it, and know less.
BOOST_AUTO_TEST_CASE(a_rank_fails_and_the_others_see_it_go) {
    const Workplace place;
    const Result result =
        lose_a_rank(place.path(), "gradient:0:11:disconnect,gradient:1:11:disconnect,gradient:2:11:throw", "failed");
    BOOST_TEST(result.exit_code == 1, result);
    BOOST_TEST(count_of(result.error, "injected fault at gradient on rank 2 in step 11") == 1u, result);
    BOOST_TEST(count_of(result.error, "error: ") == 1u, result);
}

BOOST_AUTO_TEST_CASE(the_only_rank_is_killed) {
    const Workplace place;
    const Result result = run("train run.toml", place.path(), 0, "LOCKSTEP_FAULT=step_end:0:6:kill");
    BOOST_TEST(result.exit_code == 128 + SIGKILL, result);
    BOOST_TEST_REQUIRE(wait_until([&] { return status_of(place.path())["state"] == "lost"; }, 10));
    BOOST_TEST(status_of(place.path())["step"] == 6);
    check_exit(run("train run.toml --resume auto", place.path()), 0);
    BOOST_TEST(status_of(place.path())["state"] == "finished");
}

BOOST_AUTO_TEST_CASE(the_first_rank_is_killed_before_a_checkpoint_gets_its_name) {
    const Workplace place;
    check_exit(run("train run.toml --stop-at 2", place.path(), 3), 4);
    const Result result = run("train run.toml --resume auto --stop-at 6", place.path(), 3,
                              "LOCKSTEP_FAULT=checkpoint_before_rename:0:6:kill");
    BOOST_TEST(result.exit_code != 0, result);
    BOOST_TEST(!fs::exists(checkpoint_file(place.path(), 6)));
    check_exit(run("train run.toml --resume auto", place.path(), 3), 0);
    BOOST_TEST((checkpoints_in(place.path()) == std::vector<std::string>{"step-00000008.h5", "step-00000012.h5"}));
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(watchdog)

namespace {

std::string report_in(const fs::path& folder, const std::string& beginning) {
    std::string text;
    for (const std::string& name : names_in(run_folder(folder)))
        if (name.rfind(beginning, 0) == 0) text += read_file(run_folder(folder) / name);
    return text;
}

// A rank that does nothing any more ends the run with exit code 5; the report names it and what it misses.
void stand_still(int ranks, const std::string& fault, const std::string& settings, const std::string& named,
                 const std::string& missing) {
    const Workplace place;
    const Result result =
        run("train run.toml --set watchdog.seconds=3 " + settings, place.path(), ranks, "LOCKSTEP_FAULT=" + fault);
    check_exit(result, 5);
    BOOST_TEST(result.seconds < 20);
    BOOST_TEST(count_of(result.error, "no progress for 3.0 s (watchdog): " + named) == 1u, result);
    const Json status = status_of(place.path());
    BOOST_TEST(status["state"] == "failed");
    BOOST_TEST(status["exit_code"] == 5);
    BOOST_TEST(contains(status["reason"].get<std::string>(), named), status["reason"]);
    const std::string report = report_in(place.path(), "watchdog-");
    BOOST_TEST(contains(report, named), report);
    BOOST_TEST(contains(report, missing), report);
    for (int rank = 0; rank < ranks; ++rank)
        BOOST_TEST(contains(report, "The last communications of rank " + std::to_string(rank)), report);
    for (const auto& name : checkpoints_in(place.path()))
        if (name.find(".tmp") == std::string::npos) check_whole(place.path() / "checkpoints" / "small" / name);
    check_exit(run("train run.toml --resume auto", place.path(), ranks), 0);
    for (const std::string& name : names_in(run_folder(place.path()))) BOOST_TEST(name.front() != '.', name);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_rank_is_stopped) {
    stand_still(3, "step_end:1:11:stop", "", "rank 1 (", "stopped");
}

// A rank that goes on while all are being ended changes nothing of what was said; Open MPI's mpirun continues stopped
// ranks before it kills them. After 10 s the next step would renew status.json.
BOOST_AUTO_TEST_CASE(a_stopped_rank_goes_on_too_late) {
    const Workplace place;
    Process process(command_line("train run.toml --set watchdog.seconds=10", 2, "LOCKSTEP_FAULT=step_end:1:5:stop"),
                    place.path());
    BOOST_TEST_REQUIRE(wait_until([&] { return status_of(place.path())["state"] == "failed"; }));
    for (const pid_t rank : processes_in(place.path())) ::kill(rank, SIGCONT);
    check_exit(process.wait(), 5);
    BOOST_TEST(status_of(place.path())["state"] == "failed");
    BOOST_TEST(status_of(place.path())["exit_code"] == 5);
}

BOOST_AUTO_TEST_CASE(the_first_rank_is_stopped) {
    stand_still(2, "gradient:0:6:stop", "", "rank 0 (", "not begun by 0");
}

BOOST_AUTO_TEST_CASE(a_rank_hangs_in_the_middle_of_a_step) {
    stand_still(3, "gradient:2:6:hang", "", "rank 2 (", "not begun by 2");
}

BOOST_AUTO_TEST_CASE(a_stage_of_a_pipeline_hangs) {
    stand_still(2, "gradient:0:6:hang", "--set parallel.pipeline=2", "rank 0 (", "receive from rank 0 in activations");
}

BOOST_AUTO_TEST_CASE(the_only_rank_hangs) {
    stand_still(1, "gradient:0:6:hang", "", "rank 0 (", "works");
}

BOOST_AUTO_TEST_CASE(the_first_step_has_its_own_limit) {
    const Workplace place;
    const Result result = run("train run.toml --set watchdog.seconds=0 --set watchdog.first_step_seconds=2",
                              place.path(), 2, "LOCKSTEP_FAULT=gradient:1:1:hang");
    check_exit(result, 5);
    BOOST_TEST(contains(result.error, "no progress for 2.0 s (watchdog): rank 1 ("), result);
}

// MPI's own way through /dev/shm, by the numbers of processes, leads nowhere between namespaces: MPICH is told to go by
// System V's shared memory, Open MPI (which crashes there) by TCP.
const std::string between_namespaces =
    "env UCX_TLS=sysv,self MPIR_CVAR_NOLOCAL=1 OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,tcp ";

// Every two ranks have a host of their own name, and every rank its own /dev/shm, so that they speak through the run's
// folder alone, as nodes do.
BOOST_AUTO_TEST_CASE(on_several_nodes) {
    if (std::system("unshare --uts --mount true 2>/dev/null") != 0) {
        BOOST_TEST_MESSAGE("skipped: hosts of other names need the rights of root (unshare)");
        return;
    }
    const Workplace place;
    write_file(place.path() / "node", "#!/bin/sh\nexec unshare --uts --mount sh -c 'hostname n$((" + rank_in_shell +
                                          " / 2)) && mount -t tmpfs none /dev/shm && exec \"$@\"' sh \"$@\"\n");
    fs::permissions(place.path() / "node", fs::perms::owner_all);
    const auto on_nodes = [&](const std::string& arguments, const std::string& fault) {
        return between_namespaces + "LOCKSTEP_FAULT=" + fault + " " + mpi_launcher() + " -np 4 ./node " +
               lockstep_program + " train run.toml --set batch.micro=1 " + arguments;
    };
    {
        const Result result = Process(on_nodes("--set watchdog.seconds=3", "step_end:2:11:stop"), place.path()).wait();
        check_exit(result, 5);
        BOOST_TEST(contains(result.error, "rank 2"), result);
        const std::string report = report_in(place.path(), "watchdog-");
        for (const char* part : {"rank 2 (n1) did not report", "No report from rank 2", "communications of rank 0",
                                 "communications of rank 1", "communications of rank 3"})
            BOOST_TEST(contains(report, part), part << " is missing in " << report);
        const auto status = status_of(place.path());
        BOOST_TEST(status["exit_code"] == 5);  // no witness has written over it
        BOOST_TEST(status["suspects"].dump() == "[\"n1\"]");
        BOOST_TEST(status["lost_nodes"].dump() == "[]");  // its other rank has reported
    }
    // A death on the second node is told once, by that node.
    const Result result = Process(on_nodes("--resume auto", "step_end:3:11:kill"), place.path()).wait();
    BOOST_TEST(result.exit_code != 0, result);
    BOOST_TEST(wait_until([&] { return status_of(place.path())["state"] == "lost"; }, 5));
    BOOST_TEST(status_of(place.path())["suspects"].dump() == "[\"n1\"]");
    const std::string log = read_file(run_folder(place.path()) / "log.txt");
    BOOST_TEST(count_of(log, "continue with --resume auto") == 1u, log);
    BOOST_TEST(count_of(log, "rank 3 of 4 (process ") == 1u, log);
    check_exit(Process(on_nodes("--resume auto", ""), place.path()).wait(), 0);
}

// What the launcher starts lives on for a while when the rank has died, so that it takes no notice.
BOOST_AUTO_TEST_CASE(a_launcher_that_does_nothing) {
    const Workplace place;
    write_file(place.path() / "keep", "#!/bin/sh\n\"$@\"\ncode=$?\n[ $code -gt 128 ] && sleep 20\nexit $code\n");
    fs::permissions(place.path() / "keep", fs::perms::owner_all);
    const Result result = Process("env LOCKSTEP_FAULT=step_end:1:11:kill " + mpi_launcher() + " -np 3 ./keep " +
                                      lockstep_program + " train run.toml",
                                  place.path())
                              .wait();
    BOOST_TEST(result.exit_code == 1, result);
    BOOST_TEST(result.seconds < 15);
    BOOST_TEST(status_of(place.path())["state"] == "lost");
    // Told once, by the witness, which knows the signal.
    const std::string log = read_file(run_folder(place.path()) / "log.txt");
    BOOST_TEST(count_of(log, "rank 1 of 3 (process ") == 1u, log);
    BOOST_TEST(count_of(log, "error:") == 1u, log);
    check_exit(run("train run.toml --resume auto", place.path(), 3), 0);
}

// Ranks that cannot see each other's processes, as in containers, do not take each other for dead.
BOOST_AUTO_TEST_CASE(ranks_in_process_namespaces_of_their_own) {
    if (std::system("unshare --pid --fork true 2>/dev/null") != 0) {
        BOOST_TEST_MESSAGE("skipped: namespaces need the rights of root (unshare)");
        return;
    }
    const Workplace place;
    write_file(place.path() / "node", "#!/bin/sh\nexec unshare --pid --fork \"$@\"\n");
    fs::permissions(place.path() / "node", fs::perms::owner_all);
    Process process(between_namespaces + mpi_launcher() + " -np 2 ./node " + lockstep_program +
                        " train run.toml --set schedule.steps=1000000 --set checkpoint.every=0",
                    place.path());
    BOOST_TEST_REQUIRE(wait_until([&] { return !metrics_of(place.path()).empty(); }));
    std::this_thread::sleep_for(std::chrono::seconds(6));
    write_file(run_folder(place.path()) / "stop", "");
    const Result result = process.wait();
    check_exit(result, 4);
    BOOST_TEST(!contains(result.error, "error:"), result);
}

BOOST_AUTO_TEST_CASE(a_job_that_was_suspended_goes_on) {
    const Workplace place;
    Process process(command_line("train run.toml --set schedule.steps=1000000 --set watchdog.seconds=2", 2),
                    place.path());
    BOOST_TEST_REQUIRE(wait_until([&] { return !metrics_of(place.path()).empty(); }));
    const std::vector<pid_t> ranks = processes_in(place.path());
    BOOST_TEST(ranks.size() >= 2u);
    for (const pid_t rank : ranks) ::kill(rank, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::seconds(5));
    const auto before = metrics_of(place.path()).size();
    for (const pid_t rank : ranks) ::kill(rank, SIGCONT);
    BOOST_TEST(wait_until([&] { return metrics_of(place.path()).size() > before + 5; }, 10));
    write_file(run_folder(place.path()) / "stop", "");
    check_exit(process.wait(), 4);
}

BOOST_AUTO_TEST_CASE(where_is_answered) {
    const Workplace place;
    Process process(command_line("train run.toml --set schedule.steps=1000000", 3), place.path());
    BOOST_TEST_REQUIRE(wait_until([&] { return !metrics_of(place.path()).empty(); }));
    for (const int times : {1, 2}) {
        write_file(run_folder(place.path()) / "where", "");
        BOOST_TEST(wait_until([&] { return !fs::exists(run_folder(place.path()) / "where"); }, 10));
        BOOST_TEST(wait_until(
            [&] { return count_of(process.error_so_far(), "where: ") >= static_cast<std::size_t>(times); }, 5));
        const std::string report = report_in(place.path(), "where-");
        for (const char* part : {"Where the ranks are", "of rank 0, oldest first", "of rank 2, oldest first"})
            BOOST_TEST(contains(report, part), report);
    }
    write_file(run_folder(place.path()) / "stop", "");
    check_exit(process.wait(), 4);
}

BOOST_AUTO_TEST_SUITE_END()
