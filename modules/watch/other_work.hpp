// Notices that other work takes this rank's processor time.
#pragma once

#include <optional>
#include <string>

namespace lockstep::watch {

class OtherWork {
  public:
    // `threads` of this process that compute.
    explicit OtherWork(int threads) : threads_(threads) {}
    // Called after each step; a sentence, once, when the threads were taken off their cores more than 100 times a
    // second each over at least 10 s. Cheap: it looks at the clock, and about every 10 s at the process's counters.
    std::optional<std::string> look();

  private:
    int threads_;
    double since_ = -1;  // seconds_now()
    long switches_ = 0;  // involuntary ones of this process, then
    bool said_ = false;
};

}  // namespace lockstep::watch
