#include "base/fault.hpp"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "base/error.hpp"

namespace lockstep::fault {

#ifdef LOCKSTEP_FAULT_INJECTION
namespace {

// Also read by the threads that write checkpoints and traces.
std::atomic<int> own_rank = 0;
std::atomic<long> own_step = 0;

std::string_view take_field(std::string_view& text, char separator) {
    const auto end = text.find(separator);
    const auto field = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    return field;
}

}  // namespace

void set_position(int rank, long step) {
    own_rank = rank;
    own_step = step;
}

std::string at(std::string_view point) {
    const char* variable = std::getenv("LOCKSTEP_FAULT");
    if (!variable) return "";
    std::string_view faults = variable;
    while (!faults.empty()) {
        std::string_view fields = take_field(faults, ',');
        const auto wanted_point = take_field(fields, ':'), rank = take_field(fields, ':'),
                   step = take_field(fields, ':');
        if (wanted_point != point || (rank != "*" && rank != std::to_string(own_rank.load())) ||
            (step != "*" && step != std::to_string(own_step.load())))
            continue;
        if (fields == "kill") std::raise(SIGKILL);
        if (fields == "stop") std::raise(SIGSTOP);
        if (fields == "hang")
            for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
        if (fields == "throw")
            throw fault_error("injected fault at {} on rank {} in step {}", point, own_rank.load(), own_step.load());
        if (fields == "disconnect")
            throw connection_error("injected loss of a connection at {} on rank {} in step {}", point, own_rank.load(),
                                   own_step.load());
        return std::string(fields);
    }
    return "";
}
#else
void set_position(int, long) {}
std::string at(std::string_view) {
    return "";
}
#endif

}  // namespace lockstep::fault
