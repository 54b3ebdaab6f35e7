#include "train/stop_request.hpp"

#include <csignal>
#include <cstdlib>
#include <ctime>
#include <initializer_list>

#include "cluster/flight_recorder.hpp"

namespace lockstep::train {
namespace {

volatile std::sig_atomic_t seen_signal = 0;
// When the first TERM or INT came, in seconds of a clock that only goes forward; -1: none came yet.
volatile std::sig_atomic_t firm_since = -1;

// A batch system signals the ranks themselves and their launcher, which forwards it: what comes within this time is one
// request.
constexpr int one_request_seconds = 2;

extern "C" void note_signal(int signal) {
    if (seen_signal == 0) seen_signal = signal;
    if (signal == SIGUSR1) return;
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    const auto seconds = static_cast<std::sig_atomic_t>(now.tv_sec);
    if (firm_since < 0) {
        firm_since = seconds;
    } else if (seconds - firm_since >= one_request_seconds) {
        cluster::flight_recorder().set_stage(cluster::FlightStage::failed);  // nobody is to wonder why it ended
        std::_Exit(128 + signal);
    }
}

}  // namespace

void watch_signals() {
    static_cast<void>(cluster::flight_recorder());  // made now, not in a handler
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

}  // namespace lockstep::train
