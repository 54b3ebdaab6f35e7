// From the paths on a command line to measurements.
#pragma once

#include <string>
#include <vector>

#include "analysis/load/measurement.hpp"

namespace CLI {
class App;
}

namespace lockstep::analysis {

struct LoadOptions {
    std::vector<std::string> runs;
    MeasureOptions measure;
};
// RUN… and --warm-up N.
void add_load_options(CLI::App& command, LoadOptions& options);

// A folder of run folders becomes those, by name; what is given twice is taken once.
std::vector<std::string> expand_runs(const std::vector<std::string>& paths);

// Each path is a run's folder, a trace file, or a folder of run folders (all of them are taken, by name).
std::vector<Measurement> load_measurements(const LoadOptions& options);

}  // namespace lockstep::analysis
