#include "watch/witness.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "watch/flight_reader.hpp"
#include "watch/node_folder.hpp"
#include "watch/run_folder.hpp"
#include "watch/stop_request.hpp"
#include "watch/watch_folder.hpp"
#include "watch/watch_report.hpp"

extern char** environ;

namespace lockstep::watch {
namespace {

// A rank of the node, recorded while alive: its page is removed when it exits.
struct Watched {
    NodeMember member;
    std::int64_t process = 0;
};

// The signal that killed a process, read before its parent reaps it; 0: none, or too late.
int ending_signal(std::int64_t process) {
    constexpr int last_field = 52, name_field = 2;
    std::ifstream file("/proc/" + std::to_string(process) + "/stat");
    std::string line;
    if (!std::getline(file, line)) return 0;
    const auto name_end = line.rfind(") ");
    if (name_end == std::string::npos) return 0;
    std::size_t at = name_end + 2;
    for (int field = name_field + 1; field < last_field && at != std::string::npos; ++field) {
        at = line.find(' ', at);
        if (at != std::string::npos) ++at;
    }
    const int status = at == std::string::npos ? 0 : std::atoi(line.c_str() + at);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

std::string how_it_ended(int signal) {
    if (signal == 0) return "died";
    return fmt::format("was killed by signal {} ({})", signal,
                       signal == SIGKILL ? "by hand, by the batch system, or by the kernel's out-of-memory killer"
                                         : ::strsignal(signal));
}

// A run that ended with an error is explained by that error.
bool any_failed(const std::vector<Watched>& ranks) {
    for (const Watched& rank : ranks) {
        const auto state = read_flight(rank.member.recorder, 0);
        if (state && state->stage == cluster::FlightStage::failed) return true;
    }
    return false;
}

std::string name_of(const FlightState& state, int signal) {
    return fmt::format("rank {} of {} (process {} on {}) {} in step {}{}{}", state.rank, state.ranks, state.process,
                       state.host, how_it_ended(signal), state.step, state.region.empty() ? "" : ", ", state.region);
}

struct Death {
    FlightState state;
    int signal = 0;
};

bool is_crash(int signal) {
    return signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE;
}

// Of several found dead at once, those that may have died first: the others were killed because of them.
std::vector<Death> first_of(std::vector<Death> dead, const std::vector<Watched>& ranks) {
    const auto keep = [&](const auto& wanted) {
        std::vector<Death> kept;
        std::copy_if(dead.begin(), dead.end(), std::back_inserter(kept), wanted);
        if (!kept.empty()) dead = std::move(kept);
    };
    keep([](const Death& death) { return is_crash(death.signal); });
    if (dead.size() < 2) return dead;
    // The first was waited for and did not wait itself.
    std::vector<RankReport> reports;
    for (const Watched& rank : ranks)
        if (auto state = read_flight(rank.member.recorder, 0)) reports.push_back({std::move(*state), true, false});
    const auto laggards = find_laggards(reports, reports.empty() ? 0 : reports.front().flight.ranks);
    keep([&](const Death& death) {
        return std::any_of(laggards.begin(), laggards.end(),
                           [&](const Laggard& laggard) { return laggard.rank == death.state.rank; });
    });
    return dead;
}

void tell(const std::vector<Death>& first, const std::string& run_path) {
    const FlightState& state = first.front().state;
    if (state.stage == cluster::FlightStage::signalled) {
        RunFolder::write_status(
            run_path, "stopped", state.step, 128 + state.signal,
            fmt::format("a second signal {} ended it at once, in step {}", signal_word(state.signal), state.step));
        return;
    }
    std::string sentence = name_of(state, first.front().signal);
    for (std::size_t i = 1; i < first.size(); ++i)
        sentence += "; or first " + name_of(first[i].state, first[i].signal) + " (found at the same moment)";
    NodeBlame blame;
    for (const Death& death : first) blame.suspected.push_back(death.state.host);
    std::sort(blame.suspected.begin(), blame.suspected.end());
    blame.suspected.erase(std::unique(blame.suspected.begin(), blame.suspected.end()), blame.suspected.end());
    RunFolder::write_status(run_path, "lost", state.step, static_cast<int>(ExitCode::fault), sentence, blame);
    try {
        log::add_file(run_path + "/log.txt");
    } catch (const Error&) {
        log::debug("{}/log.txt cannot be written", run_path);
    }
    log::error("{}; continue with --resume auto", sentence);
}

}  // namespace

void start_witness(const std::string& program, const std::string& node_folder, const std::string& run_path,
                   const std::string& key) {
    const std::vector<std::string> words = {"lockstep", "witness", node_folder, run_path, key};
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    pid_t process = 0;
    const int problem = ::posix_spawn(&process, program.c_str(), nullptr, nullptr, arguments.data(), environ);
    if (problem != 0) log::debug("no witness on this node: {}", std::strerror(problem));
}

void run_witness(const std::string& node_folder, const std::string& run_path, const std::string& key) {
    // Signals to the ranks must not end it, and it must not hold their files open, except stderr.
    ::setsid();
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE}) std::signal(signal, SIG_IGN);
    const int nowhere = ::open("/dev/null", O_RDWR);
    if (nowhere >= 0) {
        ::dup2(nowhere, STDIN_FILENO);
        ::dup2(nowhere, STDOUT_FILENO);
    }
    constexpr int most_files = 1 << 16;
    if (::syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0) != 0)
        for (int file = STDERR_FILENO + 1; file < most_files; ++file) ::close(file);

    // Any core: the dying rank's is free at once, while the others still run on theirs.
    cpu_set_t all_cores;
    std::memset(&all_cores, 0xff, sizeof all_cores);
    static_cast<void>(::sched_setaffinity(0, sizeof all_cores, &all_cores));
    std::vector<Watched> ranks;
    std::vector<pollfd> pipes;
    for (const auto& member : node_members(node_folder)) {
        const auto state = read_flight(member.recorder, 0);
        const int pipe = ::open(member.life.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        if (!state || pipe < 0) continue;
        ranks.push_back({member, state->process});
        pipes.push_back({pipe, POLLIN, 0});
    }
    bool told = false, first_poll = true;
    for (std::size_t left = ranks.size(); left > 0;) {
        // A rank that died before its pipe was opened here never shows up on it: poll all now and then.
        constexpr int poll_milliseconds = 5000;
        if (::poll(pipes.data(), pipes.size(), first_poll ? 0 : poll_milliseconds) < 0 && errno != EINTR) break;
        first_poll = false;
        std::vector<Death> dead;
        for (std::size_t i = 0; i < pipes.size(); ++i) {
            if (pipes[i].fd < 0 || (pipes[i].revents == 0 && flight_alive(ranks[i].member.recorder))) continue;
            ::close(pipes[i].fd);
            pipes[i].fd = -1;
            --left;
            const int signal = ending_signal(ranks[i].process);
            // A rank that exits normally removes its recorder first.
            auto state = read_flight(ranks[i].member.recorder, 0);
            if (state && state->stage != cluster::FlightStage::leaving) dead.push_back({std::move(*state), signal});
        }
        if (told || dead.empty()) continue;
        told = true;
        if (any_failed(ranks)) continue;
        const std::vector<Death> first = first_of(std::move(dead), ranks);
        // A waiting rank was probably killed because of another one, which another node's witness may know about.
        const bool may_be_first = std::any_of(first.begin(), first.end(), [](const Death& death) {
            return is_crash(death.signal) || !death.state.waiting;
        });
        if (!may_be_first) std::this_thread::sleep_for(std::chrono::milliseconds(500));
        if (claim_final_status(run_path, key)) tell(first, run_path);
    }
    std::error_code ignored;
    std::filesystem::remove_all(node_folder, ignored);
}

}  // namespace lockstep::watch
