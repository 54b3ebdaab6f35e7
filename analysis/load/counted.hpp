// What the machines counted over a run's steps (docs/trace.md): energy, instructions, cycles.
#pragma once

#include <cmath>
#include <limits>

#include "trace/reader.hpp"

namespace lockstep::analysis {

struct Counted {
    double joules = 0, tokens = 0;  // of the steps whose energy was measured
    double instructions = 0, cycles = 0, processor_seconds = 0;

    void add(const trace::StepRow& row) {
        if (row.joules > 0 && std::isfinite(row.joules)) {
            joules += row.joules;
            tokens += static_cast<double>(row.tokens);
        }
        if (row.cycles > 0 && row.processor_seconds > 0 &&
            std::isfinite(row.instructions + row.cycles + row.processor_seconds)) {
            instructions += row.instructions;
            cycles += row.cycles;
            processor_seconds += row.processor_seconds;
        }
    }
    // NaN where nothing was counted.
    double joules_per_token() const { return tokens > 0 ? joules / tokens : none; }
    double instructions_per_cycle() const { return cycles > 0 ? instructions / cycles : none; }
    double cycles_per_second() const { return processor_seconds > 0 ? cycles / processor_seconds : none; }

  private:
    static constexpr double none = std::numeric_limits<double>::quiet_NaN();
};

}  // namespace lockstep::analysis
