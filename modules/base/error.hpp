// The only exception type. Its sentence says what is wrong, where, and what to do; its code is the exit code.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace lockstep {

enum class ExitCode : int {
    done = 0,
    fault = 1,     // a program or machine fault
    usage = 2,     // wrong input
    damaged = 3,   // a damaged file
    stopped = 4,   // stopped early with a checkpoint: requeue
    watchdog = 5,  // no progress
    slower = 6,    // `lockstep-analyze compare` found a slowdown, `doctor --strict` anything
};

class Error : public std::runtime_error {
  public:
    enum class Kind { other, connection };

    Error(ExitCode code, const std::string& sentence, Kind kind = Kind::other)
        : std::runtime_error(sentence), code_(code), kind_(kind) {}
    ExitCode code() const { return code_; }
    Kind kind() const { return kind_; }
    // Communication failed: another rank or the network may be gone. The run may succeed on other nodes, or later.
    bool is_connection_error() const { return kind_ == Kind::connection; }
    // The same error in other words, such as with the name of the file.
    Error with_sentence(const std::string& sentence) const { return {code_, sentence, kind_}; }

  private:
    ExitCode code_;
    Kind kind_;
};

// throw usage_error("{} does not exist", path);
template <class... Arguments>
Error usage_error(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    return {ExitCode::usage, fmt::format(format, std::forward<Arguments>(arguments)...)};
}
template <class... Arguments>
Error damaged_error(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    return {ExitCode::damaged, fmt::format(format, std::forward<Arguments>(arguments)...)};
}
template <class... Arguments>
Error fault_error(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    return {ExitCode::fault, fmt::format(format, std::forward<Arguments>(arguments)...)};
}
template <class... Arguments>
Error connection_error(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    return {ExitCode::fault, fmt::format(format, std::forward<Arguments>(arguments)...), Error::Kind::connection};
}

// strerror(errno): "No space left on device".
std::string system_error_text();

[[noreturn]] void contract_failed(const char* condition, const char* file, int line);

}  // namespace lockstep

// Fails only through a bug in this program. Checked in every build: never used in inner loops.
#define LOCKSTEP_ASSERT(condition) \
    ((condition) ? static_cast<void>(0) : ::lockstep::contract_failed(#condition, __FILE__, __LINE__))
