// A command of the program: adds its options to the command line and, when chosen, sets what runs. One file per
// command.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace lockstep::commands {

// What the parsed command line asks for; returns the exit code, throws Error.
using Action = std::function<int()>;

void add_train(CLI::App& program, Action& action);
void add_eval(CLI::App& program, Action& action);
void add_generate(CLI::App& program, Action& action);
void add_pack(CLI::App& program, Action& action);
void add_inspect(CLI::App& program, Action& action);
void add_plan(CLI::App& program, Action& action);
void add_topo(CLI::App& program, Action& action);
void add_verify(CLI::App& program, Action& action);
void add_bench(CLI::App& program, Action& action);
void add_witness(CLI::App& program, Action& action);

}  // namespace lockstep::commands
