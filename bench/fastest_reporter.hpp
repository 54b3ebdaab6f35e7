// Shows the fastest of a kernel's repetitions: the one that other work on the machine disturbed least.
#pragma once

#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace lockstep::bench {

class FastestReporter final : public benchmark::ConsoleReporter {
  public:
    FastestReporter() : ConsoleReporter(isatty(STDOUT_FILENO) ? OO_ColorTabular : OO_Tabular) {}

    void ReportRuns(const std::vector<Run>& runs) override {
        if (runs.empty() || runs.front().run_type == Run::RT_Aggregate) return;
        ConsoleReporter::ReportRuns({*std::min_element(runs.begin(), runs.end(), [](const Run& a, const Run& b) {
            return a.GetAdjustedRealTime() < b.GetAdjustedRealTime();
        })});
    }
};

}  // namespace lockstep::bench
