// Instructions and cycles of this process's computing threads, in user mode, by PAPI (icl.utk.edu/papi), if
// the build has it (LOCKSTEP_PAPI).
#pragma once

#include <ctime>
#include <string>
#include <vector>

namespace lockstep {

struct ProcessorCounts {
    double instructions = 0, cycles = 0;
    double seconds = 0;  // processor time of the same threads, user and system
};

class ProcessorCounters {
  public:
    // Counts the threads of the team that parallel_for uses. PAPI is called from the constructing thread only.
    ProcessorCounters();
    ProcessorCounters(const ProcessorCounters&) = delete;
    ProcessorCounters& operator=(const ProcessorCounters&) = delete;
    ~ProcessorCounters();

    static bool built_in();  // PAPI is in this build
    bool works() const { return reason_.empty(); }
    // Why nothing is counted: "no hardware counters (PAPI: …)"; empty if the counters work.
    const std::string& reason() const { return reason_; }
    // Since the last call, or since construction; zeros where nothing is counted. Where counters can no longer be read,
    // they work no more, for the reason() that it sets.
    ProcessorCounts take();

  private:
    struct Thread {
        int events;
        clockid_t clock;
    };
    void start();
    void stop();

    std::vector<Thread> threads_;
    ProcessorCounts last_;
    std::string reason_;
};

}  // namespace lockstep
