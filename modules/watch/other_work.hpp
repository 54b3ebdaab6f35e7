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
    // The same at a time in seconds, with the process's involuntary context switches so far.
    std::optional<std::string> look(double now, long switches);

  private:
    bool due(double now) const;

    int threads_;
    double since_ = -1;  // the last look; -1: none yet
    long switches_ = 0;  // then
    bool said_ = false;
};

}  // namespace lockstep::watch
