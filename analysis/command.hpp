// A command of lockstep-analyze: adds its options to the command line and, when chosen, sets what runs. One file per
// command.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace lockstep::analysis {

// What the parsed command line asks for; returns the exit code, throws Error.
using Action = std::function<int()>;

void add_summary(CLI::App& program, Action& action);
void add_scaling(CLI::App& program, Action& action);
void add_sweep(CLI::App& program, Action& action);
void add_compare(CLI::App& program, Action& action);
void add_import(CLI::App& program, Action& action);
void add_export(CLI::App& program, Action& action);
void add_predict(CLI::App& program, Action& action);
void add_artifact(CLI::App& program, Action& action);
void add_report(CLI::App& program, Action& action);

}  // namespace lockstep::analysis
