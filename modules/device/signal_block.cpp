#include "device/signal_block.hpp"

#include <pthread.h>

#include <initializer_list>

namespace lockstep {
namespace {

// All but those that a thread itself causes.
sigset_t signals_from_outside() {
    sigset_t signals;
    sigfillset(&signals);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) sigdelset(&signals, own);
    return signals;
}

const sigset_t& blocked_signals() {
    static const sigset_t signals = signals_from_outside();
    return signals;
}

}  // namespace

SignalBlock::SignalBlock() {
    pthread_sigmask(SIG_BLOCK, &blocked_signals(), &before_);
}

SignalBlock::~SignalBlock() {
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void block_signals() {
    pthread_sigmask(SIG_BLOCK, &blocked_signals(), nullptr);
}

}  // namespace lockstep
