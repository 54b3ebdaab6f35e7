// One subcommand per file: adds its options to the command line and, if chosen, sets the action to run.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::commands {

// Returns the exit code; throws Error.
using Action = std::function<int()>;

void add_train(CLI::App& program, Action& action);
void add_eval(CLI::App& program, Action& action);
void add_generate(CLI::App& program, Action& action);
void add_pack(CLI::App& program, Action& action);
void add_inspect(CLI::App& program, Action& action);
void add_plan(CLI::App& program, Action& action);
void add_topo(CLI::App& program, Action& action);
void add_doctor(CLI::App& program, Action& action);
void add_verify(CLI::App& program, Action& action);
void add_bench(CLI::App& program, Action& action);
void add_witness(CLI::App& program, Action& action);
void add_convert(CLI::App& program, Action& action);

// Writes to stdout and flushes. Fault error: it cannot be written, as on a full disk.
void print_result(std::string_view text);
template <class First, class... Others>
void print_result(fmt::format_string<First, Others...> format, First&& first, Others&&... others) {
    print_result(fmt::format(format, std::forward<First>(first), std::forward<Others>(others)...));
}

// Usage error for a file that is no HDF5 file and is not named like one, so that it is not called damaged.
void check_written_by_lockstep(const std::string& path);

}  // namespace lockstep::commands
