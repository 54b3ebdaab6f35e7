#include "analysis/load/guard.hpp"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/log.hpp"
#include "trace/layout.hpp"

namespace lockstep::analysis {
namespace {

// What the working process is at, where the other one can read it after its death.
struct Note {
    static_assert(std::atomic<int>::is_always_lock_free);
    std::atomic<int> depth = 0;  // > 0: reading
    std::array<char, 4096> path{};
    static_assert(std::atomic<bool>::is_always_lock_free);
    std::atomic<bool> has_unfinished = false;  // only while all of it is written
    std::array<char, 4096> unfinished{};
};

// Shared with the other process where there is one.
Note own_note;
Note* note = &own_note;

pid_t worker = 0;  // for the handler, which can be given nothing

constexpr std::array passed_on = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

extern "C" void pass_on(int signal) {
    const int before = errno;
    ::kill(worker, signal);  // one that is gone already needs no signal
    errno = before;
}

void check(bool done, const char* what) {
    if (!done) throw fault_error("{}: {}", what, system_error_text());
}

// Signals of a process's own making; what else ends one came from outside.
constexpr std::array crashes = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGTRAP, SIGSYS};

bool is_crash(int signal) {
    return std::find(crashes.begin(), crashes.end(), signal) != crashes.end();
}

int end_by(int signal) {
    std::signal(signal, SIG_DFL);
    ::raise(signal);
    return 128 + signal;  // where the signal is ignored or blocked
}

int code_of_death(int signal) {
    std::error_code ignored;  // it may be gone, or not be made yet
    if (note->has_unfinished) std::filesystem::remove_all(note->unfinished.data(), ignored);
    const bool was_reading = note->depth > 0;
    const char* path = note->path.data();
    const std::string how = fmt::format("signal {} ({})", signal, ::strsignal(signal));
    if (was_reading && signal == SIGPROF) {
        log::error("{} is damaged: its structure could not be read within {} s of CPU time", path, structure_seconds);
        return static_cast<int>(ExitCode::damaged);
    }
    if (was_reading && is_crash(signal)) {
        log::error("{} is damaged: reading it ended with {}", path, how);
        return static_cast<int>(ExitCode::damaged);
    }
    if (is_crash(signal) || signal == SIGPROF) {
        log::error("internal error in lockstep-analyze: it ended with {}", how);
        return static_cast<int>(ExitCode::fault);
    }
    if (signal == SIGKILL) {
        log::error("lockstep-analyze was killed{}{}; out of memory?", was_reading ? " while it read " : "",
                   was_reading ? path : "");
        return static_cast<int>(ExitCode::fault);
    }
    return end_by(signal);
}

int wait_for_worker() {
    int status = 0;
    while (::waitpid(worker, &status, 0) < 0) check(errno == EINTR, "lockstep-analyze cannot wait for its own process");
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    return code_of_death(WTERMSIG(status));
}

void limit_processor_time(int seconds) {
    itimerval limit{};
    limit.it_value.tv_sec = seconds;
    check(::setitimer(ITIMER_PROF, &limit, nullptr) == 0, "cannot limit the time for reading");
}

// A crash in a folder is of the one trace that is in it, where there is one.
std::string trace_at(const std::string& path) {
    const auto files = trace::trace_files(path);
    return files.size() == 1 ? files.front().path : path;
}

}  // namespace

int guarded(const std::function<int()>& work) {
    if (std::getenv("LOCKSTEP_NO_GUARD")) return work();
    void* shared = ::mmap(nullptr, sizeof(Note), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(shared != MAP_FAILED, "cannot allocate shared memory");
    note = new (shared) Note;
    // Held back until there is somebody to pass them on to.
    sigset_t held, before;
    sigemptyset(&held);
    for (const int signal : passed_on) sigaddset(&held, signal);
    check(::sigprocmask(SIG_BLOCK, &held, &before) == 0, "cannot block signals");
    const pid_t parent = ::getpid();
    worker = ::fork();
    check(worker >= 0, "cannot start a process");
    if (worker == 0) {
        check(::prctl(PR_SET_PDEATHSIG, SIGTERM) == 0, "cannot watch the parent process");
        if (::getppid() != parent) return end_by(SIGTERM);  // it ended before it was watched
        check(::sigprocmask(SIG_SETMASK, &before, nullptr) == 0, "cannot unblock signals");
        // A library below MPI prints pages of stack where it meets one of these; the first process says it in a
        // sentence.
        for (const int signal : crashes) std::signal(signal, SIG_DFL);
        std::exit(work());
    }
    struct sigaction action {};
    action.sa_handler = pass_on;
    std::array<struct sigaction, passed_on.size()> old{};
    for (std::size_t i = 0; i < passed_on.size(); ++i) {
        check(::sigaction(passed_on[i], nullptr, &old[i]) == 0, "cannot read a signal handler");
        // What was ignored from the start (nohup) stays ignored here as there.
        if (old[i].sa_handler != SIG_IGN)
            check(::sigaction(passed_on[i], &action, nullptr) == 0, "cannot set a signal handler");
    }
    check(::sigprocmask(SIG_SETMASK, &before, nullptr) == 0, "cannot unblock signals");
    const int code = wait_for_worker();
    for (std::size_t i = 0; i < passed_on.size(); ++i)
        check(::sigaction(passed_on[i], &old[i], nullptr) == 0, "cannot set a signal handler");
    note = &own_note;
    ::munmap(shared, sizeof(Note));
    return code;
}

void note_unfinished(const std::string& path) {
    if (path.size() >= note->unfinished.size()) return;  // longer than the system takes
    note->has_unfinished = false;
    std::copy(path.c_str(), path.c_str() + path.size() + 1, note->unfinished.begin());
    note->has_unfinished = true;
}

void forget_unfinished() {
    note->has_unfinished = false;
}

ReadingScope::ReadingScope(const std::string& path, Reading reading) : reading_(reading) {
    if (note->depth == 0) {
        const std::string file = trace_at(path).substr(0, note->path.size() - 1);
        std::copy(file.c_str(), file.c_str() + file.size() + 1, note->path.begin());
    }
    ++note->depth;
    if (reading_ == Reading::structure) limit_processor_time(structure_seconds);
}

ReadingScope::~ReadingScope() {
    if (reading_ == Reading::structure) {
        // Cannot fail: it succeeded with the same timer before.
        itimerval none{};
        ::setitimer(ITIMER_PROF, &none, nullptr);
    }
    --note->depth;
}

}  // namespace lockstep::analysis
