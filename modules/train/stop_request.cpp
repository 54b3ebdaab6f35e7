#include "train/stop_request.hpp"

#include <csignal>
#include <cstdlib>
#include <initializer_list>

#include "cluster/flight_recorder.hpp"

namespace lockstep::train {
namespace {

volatile std::sig_atomic_t seen_signal = 0;

extern "C" void note_signal(int signal) {
    // USR1 may come twice by itself: queues send it early, and launchers forward what the process group has got
    // already.
    if (seen_signal != 0 && signal != SIGUSR1) {
        cluster::flight_recorder().set_stage(cluster::FlightStage::failed);
        std::_Exit(128 + signal);
    }
    seen_signal = signal;
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
