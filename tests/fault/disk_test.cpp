// Disks fill up, files reach a limit, links lie where files should: training goes on where it can, and what is whole
// stays whole.
#define BOOST_TEST_MODULE disk
#include "end_to_end/command.hpp"
#include "mounted_memory.hpp"

using namespace lockstep::tests;

BOOST_AUTO_TEST_SUITE(full_disk)

BOOST_AUTO_TEST_CASE(training_goes_on_without_a_checkpoint) {
    const Workplace place;
    const Result result = run("train run.toml", place.path(), 2, "LOCKSTEP_FAULT=checkpoint_reserve:*:8:enospc");
    check_exit(result, 0);
    BOOST_TEST(count_of(result.error, "warning: the checkpoint of step 8 was not written") == 1u, result);
    BOOST_TEST((checkpoints_in(place.path()) == std::vector<std::string>{"step-00000004.h5", "step-00000012.h5"}));
    check_whole(checkpoint_file(place.path(), 4));
    check_whole(checkpoint_file(place.path(), 12));
    BOOST_TEST(numbers_of(place.path(), "loss").size() == 12u);
}

BOOST_AUTO_TEST_CASE(one_rank_cannot_write) {
    const Workplace place;
    check_exit(run("train run.toml --stop-at 4", place.path(), 2), 4);
    const Result result =
        run("train run.toml --resume auto", place.path(), 2, "LOCKSTEP_FAULT=checkpoint_write:1:*:enospc");
    check_exit(result, 1);  // the end of the run was not saved
    BOOST_TEST(count_of(result.error, "was not written on rank 1") == 2u, result);
    BOOST_TEST(count_of(result.error, "error: ") == 1u, result);
    BOOST_TEST((checkpoints_in(place.path()) == std::vector<std::string>{"step-00000004.h5"}));
    BOOST_TEST(status_of(place.path())["state"] == "failed");
    BOOST_TEST(numbers_of(place.path(), "loss").size() == 12u);
    check_exit(run("train run.toml --resume auto", place.path(), 2), 0);
}

BOOST_AUTO_TEST_CASE(a_disk_that_is_really_full) {
    const Workplace place;
    const fs::path disk = place.path() / "checkpoints";
    const MountedMemory room(disk, "size=2m");  // for one checkpoint, of about 1.3 MiB, but not for two
    if (!room.mounted()) return;
    const Result result = run("train run.toml", place.path(), 2);
    check_exit(result, 1);
    BOOST_TEST(count_of(result.error, "warning: the checkpoint of step 8 was not written") == 1u, result);
    BOOST_TEST(count_of(result.error, "No space left on device") == 2u, result);
    BOOST_TEST(count_of(result.error, "error: step 12 could not be saved") == 1u, result);
    BOOST_TEST((checkpoints_in(place.path()) == std::vector<std::string>{"step-00000004.h5"}));
    check_whole(checkpoint_file(place.path(), 4));
}

BOOST_AUTO_TEST_CASE(a_full_disk_below_the_run_folder) {
    const Workplace place;
    const fs::path disk = place.path() / "runs";
    const MountedMemory room(disk, "size=2m");
    if (!room.mounted()) return;
    for (const int kilobytes : {4, 16, 32, 64}) {
        BOOST_TEST_CONTEXT(kilobytes << " KiB free") {
            write_file(disk / "fill",
                       std::string((std::size_t{2048} - static_cast<std::size_t>(kilobytes)) << 10, 'x'));
            const std::string name = "with-" + std::to_string(kilobytes);
            const Result result =
                run("train run.toml --set log.tensorboard=true --set run.name=" + name, place.path(), 2);
            // Where not even the lock can be written there is no run; where it can, the run is whole.
            BOOST_TEST((result.exit_code == 0 || result.exit_code == 1), result);
            BOOST_TEST(count_of(result.error, "error: ") == (result.exit_code == 0 ? 0u : 1u), result);
            BOOST_TEST(!contains(result.error, "HDF5-DIAG"), result);
            BOOST_TEST(!contains(result.error, "[*** LOG ERROR"), result);
            if (result.exit_code == 0) {
                BOOST_TEST(contains(result.error, "No space left on device"), result);
                check_whole(checkpoint_file(place.path(), 12, name));
                if (!status_of(place.path(), name).is_null())
                    BOOST_TEST(status_of(place.path(), name)["state"] == "finished");
            }
            for (const std::string& left : names_in(run_folder(place.path(), name)))
                BOOST_TEST(!left.ends_with(".tmp"), left << " is left behind");
            fs::remove_all(run_folder(place.path(), name));
            fs::remove(disk / "fill");
        }
    }
}

// The scalars are lost with one warning; the run is not.
BOOST_AUTO_TEST_CASE(a_full_disk_below_the_tensorboard_folder) {
    const Workplace place;
    const fs::path disk = run_folder(place.path()) / "tensorboard";
    const MountedMemory room(disk, "size=8k");
    if (!room.mounted()) return;
    write_file(disk / "fill", std::string(std::size_t{8} << 10, 'x'));
    const Result result = run("train run.toml --set log.tensorboard=true", place.path(), 2);
    check_exit(result, 0);
    BOOST_TEST(count_of(result.error, "warning: ") == 1u, result);
    BOOST_TEST(contains(result.error, "TensorBoard will not show these steps, training continues"), result);
    check_whole(checkpoint_file(place.path(), 12));
    BOOST_TEST(numbers_of(place.path(), "loss").size() == 12u);
}

// As batch systems set it: a file that reaches its limit is an error of the call, no signal that ends the run.
BOOST_AUTO_TEST_CASE(a_limit_on_the_size_of_files) {
    const Workplace place;
    // 5 MiB, which MPI's own files do not reach; the checkpoint has 15.
    const std::string command = command_line("train run.toml --set model.width=256 --set model.mlp_width=512");
    const Result result = Process("sh -c 'ulimit -f 10240 && exec " + command + "'", place.path()).wait();
    check_exit(result, 1);
    BOOST_TEST(contains(result.error, "File too large"), result);
    BOOST_TEST(count_of(result.error, "error: ") == 1u, result);
    BOOST_TEST(status_of(place.path())["state"] == "failed");
}

// Links that somebody put into the run folder lead nowhere.
BOOST_AUTO_TEST_CASE(links_are_not_followed) {
    const Workplace place;
    const fs::path folder = run_folder(place.path()), target = place.path() / "precious";
    fs::create_directories(folder);
    for (const char* name : {"log.txt", "lock"}) {
        write_file(target, "precious");
        fs::remove(folder / name);
        fs::create_symlink(target, folder / name);
        const Result result = run("train run.toml", place.path());
        check_exit(result, 2);
        BOOST_TEST(contains(result.error, std::string(name) + " is a symbolic link"), result);
        BOOST_TEST(read_file(target) == "precious");
        fs::remove(folder / name);
    }
    for (const char* name : {"status.json", "metrics.jsonl", "run.toml", "trace-001.h5.tmp"})
        fs::create_symlink(target, folder / name);
    check_exit(run("train run.toml", place.path()), 0);
    BOOST_TEST(read_file(target) == "precious");
    BOOST_TEST(!fs::is_symlink(folder / "status.json"));
}

BOOST_AUTO_TEST_SUITE_END()
