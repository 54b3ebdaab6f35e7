#include "watch/stop_request.hpp"

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <initializer_list>

#include "cluster/flight_recorder.hpp"

namespace lockstep::watch {
namespace {

volatile std::sig_atomic_t seen_signal = 0;
// Time of the first TERM or INT, in milliseconds of a monotonic clock that wraps around after some weeks; -1: none.
volatile std::sig_atomic_t firm_since = -1;
constexpr std::int64_t clock_mask = 0x7fffffff;

// Batch systems signal both the ranks and their launcher, which forwards it: signals within this time are one request.
constexpr std::int64_t one_request_milliseconds = 2000;

extern "C" void note_signal(int signal) {
    if (seen_signal == 0) seen_signal = signal;
    if (signal == SIGUSR1) return;
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    const std::int64_t time = (now.tv_sec * 1000 + now.tv_nsec / 1000000) & clock_mask;
    if (firm_since < 0) {
        firm_since = static_cast<std::sig_atomic_t>(time);
    } else if (((time - firm_since) & clock_mask) >= one_request_milliseconds) {
        cluster::flight_recorder().set_signalled(signal);
        std::_Exit(128 + signal);
    }
}

}  // namespace

void watch_signals() {
    static_cast<void>(cluster::flight_recorder());  // constructed now, not in a handler
    struct sigaction action {};
    action.sa_handler = note_signal;
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;
    for (const int signal : {SIGUSR1, SIGTERM, SIGINT}) sigaction(signal, &action, nullptr);
}

int requested_signal() {
    return seen_signal;
}

const char* signal_word(int signal) {
    switch (signal) {
        case SIGUSR1:
            return "USR1";
        case SIGTERM:
            return "TERM";
        case SIGINT:
            return "INT";
        default:
            return "?";
    }
}

}  // namespace lockstep::watch
