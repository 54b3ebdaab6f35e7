// Runs a program as a user would, and reports its output, run time and memory.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::bench {

struct Command {
    std::vector<std::string> words;                                // the program and its arguments
    std::string folder;                                            // where it starts
    std::vector<std::pair<std::string, std::string>> environment;  // added to this process's own
};

struct CommandResult {
    int exit_code = 0;  // 128 + the signal that ended it
    bool stopped = false;
    double peak_bytes = 0;  // largest resident set of the program or of one that it waited for
    std::string output;     // stdout and stderr, as they came
};

// `go_on` is shown every line and ends the program (SIGTERM) by answering false. Faults: the program cannot be started.
CommandResult run_command(const Command& command, const std::function<bool(const std::string& line)>& go_on = {});

// From here on INT, TERM and HUP end the program that runs, and run_command throws a fault that says so: what is
// temporary goes away before this program ends.
void end_on_signals();
bool ended_by_signal();

// A new folder for temporary files, removed with everything in it.
class TemporaryFolder {
  public:
    explicit TemporaryFolder(const std::string& parent);  // usage error where none can be made there
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

double median(std::vector<double> values);  // 0 of none

}  // namespace lockstep::bench
