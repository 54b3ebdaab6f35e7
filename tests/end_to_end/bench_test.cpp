// The benchmarks of training steps as a user calls them, as far as no time is measured.
#define BOOST_TEST_MODULE bench
#include "end_to_end/command.hpp"

using namespace lockstep::tests;

namespace {

Result run_peers(const std::string& arguments, const fs::path& folder) {
    return Process((fs::path(lockstep_program).parent_path() / "bench_peers").string() + " " + arguments, folder)
        .wait();
}

// A program that stands in for lockstep.
fs::path script(const Workplace& place, const std::string& text) {
    const fs::path path = place.path() / "stand-in";
    write_file(path, "#!/bin/sh\n" + text + "\n");
    fs::permissions(path, fs::perms::owner_all);
    return path;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(bench)

BOOST_AUTO_TEST_CASE(cases_are_listed_and_chosen) {
    const Workplace place;
    const Result all = run("--list", place.path());
    BOOST_TEST(all.exit_code == 0, all);
    for (const char* name : {"gpt2-124m 4x64 fp32, 1 rank\n", "ttt-mlp-125m 1x512 bf16, 1 rank\n", "checkpoint of "})
        BOOST_TEST(contains(all.out, name), all);
    const Result some = run("--list --filter 'ttt.*fp32'", place.path());
    BOOST_TEST(some.out == "ttt-linear-125m 1x512 fp32, 1 rank\nttt-mlp-125m 1x512 fp32, 1 rank\n");
}

BOOST_AUTO_TEST_CASE(bad_options_are_refused) {
    const Workplace place;
    for (const auto& [arguments, part] :
         {std::pair{"--filter '('", "not a valid regular expression"}, std::pair{"--filter nothing", "--list"},
          std::pair{"--format html", "markdown"}, std::pair{"--steps 2", "--steps"}, std::pair{"--what", "--what"},
          std::pair{"--lockstep /nowhere/lockstep", "--lockstep"}, std::pair{"--folder /nowhere", "--folder"}}) {
        const Result result = run(arguments, place.path());
        check_exit(result, 2);
        BOOST_TEST(contains(result.error, part), arguments << ": " << result);
    }
    for (const auto& [arguments, part] : {std::pair{"", "--llm-c"}, std::pair{"--llm-c /nowhere", "/nowhere"},
                                          std::pair{"--ttt-lm-pytorch .", "ttt.py"}, std::pair{"--steps 30", "--steps"},
                                          std::pair{"--precision fp16", "--precision"}}) {
        const Result result = run_peers(arguments, place.path());
        check_exit(result, 2);
        BOOST_TEST(contains(result.error, part), arguments << ": " << result);
    }
}

BOOST_AUTO_TEST_CASE(what_lockstep_says_is_passed_on_and_nothing_is_left_behind) {
    const Workplace place;
    fs::create_directories(place.path() / "temporary");
    const std::string arguments = "--filter checkpoint --folder temporary --lockstep ";
    const auto failing = script(place, "echo '2026-01-01 00:00:00 error: the disk is full' >&2; exit 7");
    const Result said = run(arguments + failing.string(), place.path());
    check_exit(said, 1);
    BOOST_TEST(contains(said.error, "exit code 7: the disk is full\n"), said);
    const Result silent = run(arguments + script(place, "exit 1").string(), place.path());
    check_exit(silent, 1);
    BOOST_TEST(contains(silent.error, "it said nothing"), silent);
    BOOST_TEST(names_in(place.path() / "temporary").empty());
}

BOOST_AUTO_TEST_CASE(a_signal_ends_it_and_what_it_runs) {
    const Workplace place;
    fs::create_directories(place.path() / "temporary");
    const auto waiting = script(place, "echo $$ >" + (place.path() / "id").string() + "; exec sleep 60");
    Process process(lockstep_program + " --filter checkpoint --folder temporary --lockstep " + waiting.string(),
                    place.path());
    BOOST_TEST_REQUIRE(wait_until([&] { return !read_file(place.path() / "id").empty(); }));
    process.signal(SIGTERM);
    const Result result = process.wait();
    check_exit(result, 1);
    BOOST_TEST(contains(result.error, "ended by signal 15"), result);
    BOOST_TEST(::kill(std::stoi(read_file(place.path() / "id")), 0) != 0);
    BOOST_TEST(names_in(place.path() / "temporary").empty());
}

BOOST_AUTO_TEST_SUITE_END()
