// What the command lines of both programs share: the command `help`, and errors for one that cannot be parsed. A
// library of its own, lockstep::command_line, for whoever has a main().
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace lockstep {

// For an option's value; what they say is shorter than what CLI11's own do.
CLI::Validator above_zero();
CLI::Validator zero_or_more();

// "help" prints the program's help, "help COMMAND" that of a command; --completion SHELL and --man what follows.
void add_help_command(CLI::App& program, std::function<int()>& action);

// A ParseError for an option or an argument with an empty value, as an unset variable of a shell gives it. Of
// `may_be_empty`, names such as "--prompt", it is taken.
void refuse_empty_values(const CLI::App& program, const std::vector<std::string>& may_be_empty = {});

// What is wrong, with the command or the option that was probably meant; one sentence that ends with where to read
// more.
std::string command_line_problem(const CLI::App& program, const CLI::ParseError& problem, int argc,
                                 const char* const* argv);

// What a shell ("bash", "zsh", "fish"; another: usage error) sources to complete the program's commands and options.
std::string completion_script(const CLI::App& program, const std::string& shell);
// The program's page for man(1), section 1, in troff.
std::string man_page(const CLI::App& program);

}  // namespace lockstep
