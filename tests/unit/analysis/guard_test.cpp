// What lockstep-analyze says of files that are no traces, and of the death of the process that reads.
#define BOOST_TEST_MODULE guard
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "analysis/exchange/output.hpp"
#include "analysis/load/guard.hpp"
#include "analysis/program.hpp"
#include "hdf5/hdf5.hpp"
#include "unit/trace/synthetic_trace.hpp"

using namespace lockstep;
using analysis::Reading;
using analysis::ReadingScope;
using trace::test::TemporaryFolder;

namespace {

struct Outcome {
    int status = 0;
    std::string errors;  // what stood on stderr
    bool exited(int code) const { return WIFEXITED(status) && WEXITSTATUS(status) == code; }
    bool says(const std::string& words) const {
        const bool one_line = std::count(errors.begin(), errors.end(), '\n') == 1;
        BOOST_TEST_MESSAGE(errors);
        return one_line && errors.find(words) != std::string::npos;
    }
};

class Runner {
  public:
    // `main` as a program of its own; `meanwhile` gets its process.
    Outcome run(const std::function<int()>& main, const std::function<void(pid_t)>& meanwhile = {}) {
        BOOST_REQUIRE(std::fflush(stdout) == 0);
        const std::string errors = folder_ / "errors";
        const pid_t child = ::fork();
        BOOST_REQUIRE(child >= 0);
        if (child == 0) {
            ::dup2(::open(errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
            ::dup2(::open("/dev/null", O_WRONLY), 1);
            ::alarm(100);
            // The test's own handlers are none of the program's.
            for (const int signal : {SIGSEGV, SIGABRT, SIGTERM, SIGINT}) std::signal(signal, SIG_DFL);
            ::_exit(main());
        }
        if (meanwhile) meanwhile(child);
        Outcome outcome;
        while (::waitpid(child, &outcome.status, 0) < 0) BOOST_REQUIRE(errno == EINTR);
        std::ifstream stream(errors);
        outcome.errors.assign(std::istreambuf_iterator<char>(stream), {});
        return outcome;
    }
    Outcome program(std::vector<std::string> words) {
        return run([&] {
            std::vector<const char*> arguments = {"lockstep-analyze"};
            for (const std::string& word : words) arguments.push_back(word.c_str());
            return analysis::guarded(
                [&] { return analysis::run_program(static_cast<int>(arguments.size()), arguments.data()); });
        });
    }
    std::string file(const std::string& name, const std::string& bytes) const {
        const std::string path = folder_ / name;
        std::ofstream(path, std::ios::binary) << bytes;
        return path;
    }
    const TemporaryFolder& folder() const { return folder_; }

  private:
    TemporaryFolder folder_{"guard"};
};

// Not a handler's business, and not the sanitizers'.
[[noreturn]] void die(int signal) {
    std::signal(signal, SIG_DFL);
    ::raise(signal);
    ::_exit(99);
}

void wait_for(const std::string& path) {
    for (int i = 0; i < 9000 && !std::filesystem::exists(path); ++i) ::usleep(10000);
    BOOST_REQUIRE(std::filesystem::exists(path));
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_crash_while_reading_is_a_damaged_file) {
    Runner runner;
    for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE}) {
        const Outcome outcome = runner.run([&] {
            return analysis::guarded([&]() -> int {
                const ReadingScope scope("runs/x/trace-001.h5", Reading::rows);
                die(signal);
            });
        });
        BOOST_TEST(outcome.exited(3));
        BOOST_TEST(
            outcome.says(fmt::format("runs/x/trace-001.h5 is damaged: reading it ended with signal {} (", signal)));
    }
}

BOOST_AUTO_TEST_CASE(a_crash_elsewhere_is_a_fault) {
    Runner runner;
    const Outcome outcome = runner.run([] {
        return analysis::guarded([]() -> int {
            { const ReadingScope scope("x", Reading::structure); }
            die(SIGSEGV);
        });
    });
    BOOST_TEST(outcome.exited(1));
    BOOST_TEST(outcome.says("internal error in lockstep-analyze: it ended with signal 11 (Segmentation fault)"));
}

BOOST_AUTO_TEST_CASE(the_trace_of_a_folder_with_one_is_named) {
    Runner runner;
    const trace::Header header = trace::test::make_header(1, {"epoch"});
    trace::TraceWriter(runner.folder() / "run", header, 4).finish();
    const Outcome outcome = runner.run([&] {
        return analysis::guarded([&]() -> int {
            const ReadingScope outer(runner.folder() / "run", Reading::structure);
            const ReadingScope inner("not this one", Reading::rows);
            die(SIGSEGV);
        });
    });
    BOOST_TEST(outcome.says("run/trace-001.h5 is damaged"));
}

BOOST_AUTO_TEST_CASE(exit_codes_pass_through) {
    Runner runner;
    for (const int code : {0, 1, 2, 3, 6}) {
        const Outcome outcome = runner.run([&] { return analysis::guarded([&] { return code; }); });
        BOOST_TEST(outcome.exited(code));
        BOOST_TEST(outcome.errors == "");
    }
}

BOOST_AUTO_TEST_CASE(structure_that_does_not_come_to_an_end_is_a_damaged_file) {
    Runner runner;
    const Outcome outcome = runner.run([] {
        return analysis::guarded([]() -> int {
            const ReadingScope scope("loop.h5", Reading::structure);
            ::kill(::getpid(), SIGPROF);  // what the timer sends
            return 0;
        });
    });
    BOOST_TEST(outcome.exited(3));
    BOOST_TEST(outcome.says("loop.h5 is damaged: its structure could not be read within 60 s of CPU time"));
}

BOOST_AUTO_TEST_CASE(sizes_beyond_the_memory_are_a_damaged_file) {
    const auto says = [](const Error& problem) {
        return problem.code() == ExitCode::damaged && std::string(problem.what()).rfind("t.h5 is damaged", 0) == 0;
    };
    BOOST_CHECK_EXCEPTION(analysis::reading("t.h5", Reading::rows, []() -> int { throw std::bad_alloc(); }), Error,
                          says);
    BOOST_CHECK_EXCEPTION(
        analysis::reading("t.h5", Reading::rows, []() -> int { throw std::length_error("too long"); }), Error, says);
}

BOOST_AUTO_TEST_CASE(a_signal_from_outside_ends_both) {
    Runner runner;
    for (const int signal : {SIGTERM, SIGINT}) {
        const std::string begun = runner.folder() / "begun", ended = runner.folder() / "ended";
        std::filesystem::remove(begun);
        std::filesystem::remove(ended);
        const Outcome outcome = runner.run(
            [&] {
                return analysis::guarded([&] {
                    const ReadingScope scope("x", Reading::rows);
                    runner.file("begun", fmt::format("{}", ::getpid()));
                    for (int i = 0; i < 90; ++i) ::sleep(1);
                    runner.file("ended", "");
                    return 0;
                });
            },
            [&](pid_t process) {
                wait_for(begun);
                ::kill(process, signal);
            });
        BOOST_TEST(WIFSIGNALED(outcome.status));
        BOOST_TEST(WTERMSIG(outcome.status) == signal);
        BOOST_TEST(outcome.errors == "");
        BOOST_TEST(!std::filesystem::exists(ended));
    }
}

BOOST_AUTO_TEST_CASE(what_is_not_whole_is_removed_where_its_writer_dies) {
    Runner runner;
    const std::string target = runner.folder() / "out.csv";
    for (const int signal : {SIGTERM, SIGINT, SIGSEGV, SIGKILL}) {
        bool was_there = false;
        const bool from_outside = signal == SIGTERM || signal == SIGINT;
        const Outcome outcome = runner.run(
            [&] {
                return analysis::guarded([&]() -> int {
                    analysis::Output output(target);
                    output.write("half");
                    runner.file("begun", "");
                    if (!from_outside) die(signal);
                    for (int i = 0; i < 90; ++i) ::sleep(1);
                    return 0;
                });
            },
            [&](pid_t process) {
                wait_for(runner.folder() / "begun");
                was_there = runner.folder().unfinished() == 1;
                if (from_outside) ::kill(process, signal);
            });
        BOOST_TEST(
            (from_outside ? WIFSIGNALED(outcome.status) && WTERMSIG(outcome.status) == signal : outcome.exited(1)));
        if (from_outside) BOOST_TEST(was_there);
        BOOST_TEST(runner.folder().unfinished() == 0);
        BOOST_TEST(!std::filesystem::exists(target));
        std::filesystem::remove(runner.folder() / "begun");
    }
    // So is a folder, with what is in it.
    const std::string folder = runner.folder() / "archive";
    const Outcome killed = runner.run([&] {
        return analysis::guarded([&]() -> int {
            const analysis::OutputFolder output(folder);
            std::ofstream(output.unfinished() + "/half") << "half";
            die(SIGKILL);
        });
    });
    BOOST_TEST(killed.exited(1));
    BOOST_TEST(!std::filesystem::exists(folder));
    BOOST_TEST(!std::filesystem::exists(folder + ".tmp"));
    // What another one left under that name is not touched once the own file is whole.
    const Outcome outcome = runner.run([&] {
        return analysis::guarded([&]() -> int {
            analysis::Output(target).finish();
            runner.file("out.csv.tmp", "of another");
            die(SIGTERM);
        });
    });
    BOOST_TEST(WIFSIGNALED(outcome.status));
    BOOST_TEST(runner.folder().unfinished() == 1);
    BOOST_TEST(std::filesystem::exists(target));
}

BOOST_AUTO_TEST_CASE(without_the_guard_the_work_is_done_right_here) {
    Runner runner;
    const Outcome outcome = runner.run([] {
        ::setenv("LOCKSTEP_NO_GUARD", "1", 1);
        const pid_t here = ::getpid();
        return analysis::guarded([&] { return ::getpid() == here ? 17 : 18; });
    });
    BOOST_TEST(outcome.exited(17));
}

BOOST_AUTO_TEST_CASE(files_that_are_no_traces_give_a_sentence) {
    Runner runner;
    const TemporaryFolder& folder = runner.folder();
    const trace::Header header = trace::test::make_header(2, {"epoch", "epoch/step"});
    trace::TraceWriter writer(folder / "whole", header, 4);
    writer.append(trace::test::make_block(header, 1, 3));
    writer.finish();
    std::ifstream stream(folder / "whole/trace-001.h5", std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
    const std::string cut = runner.file("cut.h5", bytes.substr(0, bytes.size() / 2));
    const std::string empty = runner.file("empty.h5", ""), text = runner.file("notes.txt", "step 1\n"),
                      named = runner.file("named.h5", "this is no HDF5 file\n");
    const std::string checkpoint = folder / "step-00000100.h5";
    {
        hdf5::File file = hdf5::File::create(checkpoint);
        file.write_attribute("/", "format", std::string("lockstep-checkpoint"));
        file.close();
    }
    std::filesystem::create_directories(folder / "nothing");
    struct Case {
        std::string path;
        int code;
        const char* words;
    };
    const std::vector<Case> cases = {
        {empty, 3, "empty.h5 is empty"},
        {text, 2, "notes.txt is not a trace"},
        {named, 3, "named.h5 is damaged: it has no HDF5 signature"},
        {cut, 3, "cut.h5 is damaged"},
        {checkpoint, 2, "step-00000100.h5 is an HDF5 file but not a lockstep trace"},
        {folder / "nothing", 2, "nothing has no trace-NNN.h5"},
        {folder / "missing", 2, "missing does not exist"},
    };
    for (const Case& one : cases)
        for (const std::vector<std::string>& command : {std::vector<std::string>{"summary"},
                                                        {"export", "--to", "csv"},
                                                        {"export", "--to", "chrome"},
                                                        {"export", "--to", "extra-p"}}) {
            std::vector<std::string> words = command;
            words.push_back(one.path);
            const Outcome outcome = runner.program(words);
            BOOST_TEST_CONTEXT(one.path << " with " << command.back()) {
                BOOST_TEST(outcome.exited(one.code));
                BOOST_TEST(outcome.says(one.words));
            }
        }
    if (::geteuid() != 0) {  // nothing is forbidden to root
        std::filesystem::permissions(cut, std::filesystem::perms::none);
        const Outcome outcome = runner.program({"summary", cut});
        BOOST_TEST(outcome.exited(2));
        BOOST_TEST(outcome.says("cut.h5 cannot be read: Permission denied"));
    }
}
