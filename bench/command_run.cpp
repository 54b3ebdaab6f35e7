#include "command_run.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "base/error.hpp"

namespace lockstep::bench {
namespace {

[[noreturn]] void become(const Command& command, int output) {
    std::vector<char*> arguments;
    for (const std::string& word : command.words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    const int nothing = ::open("/dev/null", O_RDONLY);
    if (nothing < 0 || ::dup2(nothing, STDIN_FILENO) < 0 || ::dup2(output, STDOUT_FILENO) < 0 ||
        ::dup2(output, STDERR_FILENO) < 0 || ::chdir(command.folder.c_str()) != 0)
        ::_exit(126);
    for (const auto& [name, value] : command.environment)
        if (::setenv(name.c_str(), value.c_str(), 1) != 0) ::_exit(126);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
}

volatile std::sig_atomic_t signal_taken = 0;

void take_signal(int number) {
    signal_taken = number;
}

// Shows whole lines; what comes after the first "no" is only kept.
class Lines {
  public:
    explicit Lines(const std::function<bool(const std::string&)>& go_on) : go_on_(go_on) {}
    bool take(const char* text, std::size_t bytes) {
        output_.append(text, bytes);
        for (auto end = output_.find('\n', shown_); end != std::string::npos; end = output_.find('\n', shown_)) {
            const std::string line = output_.substr(shown_, end - shown_);
            shown_ = end + 1;
            if (go_on_ && wanted_ && !go_on_(line)) wanted_ = false;
        }
        return wanted_;
    }
    std::string output() && { return std::move(output_); }

  private:
    const std::function<bool(const std::string&)>& go_on_;
    std::string output_;
    std::size_t shown_ = 0;
    bool wanted_ = true;
};

}  // namespace

CommandResult run_command(const Command& command, const std::function<bool(const std::string& line)>& go_on) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw fault_error("cannot create a pipe: {}", system_error_text());
    const pid_t child = ::fork();
    if (child < 0) throw fault_error("cannot start a process: {}", system_error_text());
    if (child == 0) become(command, ends[1]);
    ::close(ends[1]);

    CommandResult result;
    Lines lines(go_on);
    char text[4096];
    for (;;) {
        if (signal_taken != 0 && !result.stopped) {
            result.stopped = true;
            ::kill(child, SIGTERM);
        }
        const ssize_t bytes = ::read(ends[0], text, sizeof text);
        if (bytes < 0 && errno == EINTR) continue;
        if (bytes <= 0) break;
        if (!lines.take(text, static_cast<std::size_t>(bytes)) && !result.stopped) {
            result.stopped = true;
            ::kill(child, SIGTERM);
        }
    }
    ::close(ends[0]);
    int status = 0;
    rusage usage{};
    while (::wait4(child, &status, 0, &usage) < 0)
        if (errno != EINTR) throw fault_error("waiting for {} failed: {}", command.words[0], system_error_text());
    result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    result.peak_bytes = static_cast<double>(usage.ru_maxrss) * 1024;
    result.output = std::move(lines).output();
    if (signal_taken != 0) throw fault_error("ended by signal {}", static_cast<int>(signal_taken));
    if (result.exit_code == 127 && result.output.empty())
        throw usage_error("{} cannot be started; does it exist and is it executable?", command.words[0]);
    return result;
}

void end_on_signals() {
    struct sigaction action {};
    action.sa_handler = take_signal;
    for (const int number : {SIGINT, SIGTERM, SIGHUP})
        if (::sigaction(number, &action, nullptr) != 0)
            throw fault_error("signals cannot be handled: {}", system_error_text());
}

bool ended_by_signal() {
    return signal_taken != 0;
}

TemporaryFolder::TemporaryFolder(const std::string& parent)
    : path_((std::filesystem::path(parent) / "lockstep-bench-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr)
        throw usage_error("cannot create a folder in {}: {}; name another with --folder", parent, system_error_text());
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

double median(std::vector<double> values) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    const std::size_t half = values.size() / 2;
    return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace lockstep::bench
