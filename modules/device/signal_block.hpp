// Keeps signals from outside the process (stop requests, timers of profilers) off a thread, and off the threads that it
// creates meanwhile. Needed around oneDNN: some of its fp32 products point the stack register into the heap until
// 3.11.2 (uxlfoundation/oneDNN issue 4845), where a handler's frame overwrites what other code keeps there.
#pragma once

#include <csignal>

namespace lockstep {

class SignalBlock {
  public:
    SignalBlock();
    ~SignalBlock();
    SignalBlock(const SignalBlock&) = delete;
    SignalBlock& operator=(const SignalBlock&) = delete;

  private:
    sigset_t before_;
};

// From here on, for the calling thread.
void block_signals();

}  // namespace lockstep
