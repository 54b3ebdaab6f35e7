#include "train/witness.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "cluster/flight_reader.hpp"
#include "cluster/node_folder.hpp"
#include "train/run_folder.hpp"

extern char** environ;

namespace lockstep::train {
namespace {

// A rank of the node, known when it lived: its page is gone from the folder when it ends.
struct Watched {
    cluster::NodeMember member;
    std::int64_t process = 0;
};

// The signal that ended a process, from what is left of it until its parent looks; 0: none, or too late.
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
    return fmt::format(
        "was ended by signal {} ({})", signal,
        signal == SIGKILL ? "by hand, by the batch system, or by the kernel when memory ran out" : ::strsignal(signal));
}

// Of a run that ends with an error of its own, that error tells.
bool any_failed(const std::vector<Watched>& ranks) {
    for (const Watched& rank : ranks) {
        const auto state = cluster::read_flight(rank.member.recorder, 0);
        if (state && state->stage == cluster::FlightStage::failed) return true;
    }
    return false;
}

void tell(const cluster::FlightState& state, int signal, const std::string& run_path) {
    const std::string sentence =
        fmt::format("rank {} of {} (process {} on {}) {} in step {}{}{}", state.rank, state.ranks, state.process,
                    state.host, how_it_ended(signal), state.step, state.region.empty() ? "" : ", ", state.region);
    RunFolder::write_status(run_path, "lost", state.step, static_cast<int>(ExitCode::fault), sentence);
    try {
        log::add_file(run_path + "/log.txt");
    } catch (const Error&) {
        log::debug("{}/log.txt cannot be written", run_path);
    }
    log::error("{}; continue with --resume auto", sentence);
}

}  // namespace

void start_witness(const std::string& program, const std::string& node_folder, const std::string& run_path) {
    const std::vector<std::string> words = {"lockstep", "witness", node_folder, run_path};
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    pid_t process = 0;
    const int problem = ::posix_spawn(&process, program.c_str(), nullptr, nullptr, arguments.data(), environ);
    if (problem != 0) log::debug("no witness of this node's ranks: {}", std::strerror(problem));
}

void be_witness(const std::string& node_folder, const std::string& run_path) {
    // What ends the ranks is not to end it, and nothing of theirs is to stay open through it but stderr.
    ::setsid();
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE}) std::signal(signal, SIG_IGN);
    const int nowhere = ::open("/dev/null", O_RDWR);
    if (nowhere >= 0) {
        ::dup2(nowhere, STDIN_FILENO);
        ::dup2(nowhere, STDOUT_FILENO);
    }
    for (int file = STDERR_FILENO + 1; file < 1024; ++file) ::close(file);

    std::vector<Watched> ranks;
    std::vector<pollfd> pipes;
    for (const auto& member : cluster::node_members(node_folder)) {
        const auto state = cluster::read_flight(member.recorder, 0);
        const int pipe = ::open(member.life.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        if (!state || pipe < 0) continue;
        ranks.push_back({member, state->process});
        pipes.push_back({pipe, POLLIN, 0});
    }
    bool told = false;
    for (std::size_t left = ranks.size(); left > 0;) {
        if (::poll(pipes.data(), pipes.size(), -1) < 0 && errno != EINTR) break;
        for (std::size_t i = 0; i < pipes.size(); ++i) {
            if (pipes[i].fd < 0 || pipes[i].revents == 0) continue;
            ::close(pipes[i].fd);
            pipes[i].fd = -1;
            --left;
            if (told) continue;
            const int signal = ending_signal(ranks[i].process);
            // A rank that ends as it should removes its recorder first.
            const auto state = cluster::read_flight(ranks[i].member.recorder, 0);
            if (!state || state->stage == cluster::FlightStage::leaving) continue;
            told = true;
            if (!any_failed(ranks)) tell(*state, signal, run_path);
        }
    }
    std::error_code ignored;
    std::filesystem::remove_all(node_folder, ignored);
}

}  // namespace lockstep::train
