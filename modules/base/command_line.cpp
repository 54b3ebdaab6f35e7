#include "base/command_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"

namespace lockstep {
namespace {

std::string meant(const std::string& near) {
    return near.empty() ? "" : " (did you mean " + near + "?)";
}

std::vector<std::string> commands_of(const CLI::App& program) {
    std::vector<std::string> names;
    for (const auto* command : program.get_subcommands(nullptr)) names.push_back(command->get_name());
    return names;
}

std::string unknown_command(const CLI::App& program, const std::string& word) {
    std::vector<std::string> names = commands_of(program);
    names.emplace_back("--version");
    return fmt::format("'{}' is not a command of {}{}", word, program.get_name(), meant(nearest_name(word, names)));
}

// Of the arguments that nothing took, the first that looks like an option.
std::string unknown_option(const CLI::App& command, const std::vector<std::string>& left) {
    for (const std::string& argument : left) {
        const std::string name = argument.substr(0, argument.find('='));
        if (!name.starts_with("-")) continue;
        std::vector<std::string> names;
        for (const CLI::Option* option : command.get_options(nullptr))
            for (const std::string& known : option->get_lnames()) names.push_back("--" + known);
        return fmt::format("{} is not an option of {} {}{}", name, command.get_parent()->get_name(), command.get_name(),
                           meant(nearest_name(name, names)));
    }
    return "";
}

bool is_number(const std::string& text, double& value) {
    return CLI::detail::lexical_cast(text, value) && std::isfinite(value);
}

}  // namespace

void refuse_empty_values(const CLI::App& program, const std::vector<std::string>& may_be_empty) {
    for (const CLI::App* command : program.get_subcommands())
        for (const CLI::Option* option : command->get_options()) {
            const std::vector<std::string>& values = option->results();
            if (std::find(values.begin(), values.end(), "") == values.end()) continue;
            const std::string name = option->get_name();
            if (std::find(may_be_empty.begin(), may_be_empty.end(), name) != may_be_empty.end()) continue;
            throw CLI::ValidationError(name, "its value is empty: leave it out, or check the variable that it is from");
        }
}

CLI::Validator above_zero() {
    return {[](std::string& text) {
                double value = 0;
                return is_number(text, value) && value > 0 ? "" : fmt::format("'{}' is not a number above 0", text);
            },
            "POSITIVE"};
}

CLI::Validator zero_or_more() {
    return {[](std::string& text) {
                double value = 0;
                return is_number(text, value) && value >= 0 ? "" : fmt::format("'{}' is not a number from 0 on", text);
            },
            "NONNEGATIVE"};
}

void add_help_command(CLI::App& program, std::function<int()>& action) {
    auto* command = program.add_subcommand("help", "Print the help of a command");
    struct Options {
        std::string command, shell;
        bool man = false;
    };
    const auto options = std::make_shared<Options>();
    auto* name = command->add_option("COMMAND", options->command, "The command; without one, the program's help");
    auto* shell = command->add_option("--completion", options->shell, "Print completion for bash, zsh or fish instead");
    command->add_flag("--man", options->man, "Print the program's man page instead")->excludes(name)->excludes(shell);
    shell->excludes(name);
    command->callback([&program, &action, options] {
        action = [&program, given = *options] {
            const std::vector<std::string> known = commands_of(program);
            if (!given.command.empty() && std::find(known.begin(), known.end(), given.command) == known.end())
                throw usage_error("{}", unknown_command(program, given.command));
            program.clear();  // else the help of the program is that of the command `help`
            std::string text;
            if (given.man)
                text = man_page(program);
            else if (!given.shell.empty())
                text = completion_script(program, given.shell);
            else if (given.command.empty())
                text = program.help();
            else
                text = program.get_subcommand(given.command)->help(program.get_name());
            std::fputs(text.c_str(), stdout);
            return 0;
        };
    });
}

std::string command_line_problem(const CLI::App& program, const CLI::ParseError& problem, int argc,
                                 const char* const* argv) {
    const auto chosen = program.get_subcommands();
    const std::string more =
        fmt::format("; see {}{} --help", program.get_name(), chosen.empty() ? "" : " " + chosen.front()->get_name());
    // A first word that is no command is what is wrong, not that a command is missing.
    if (argc > 1 && argv[1][0] != '-' && chosen.empty()) return unknown_command(program, argv[1]) + more;
    if (!chosen.empty())
        if (const std::string sentence = unknown_option(*chosen.front(), chosen.front()->remaining());
            !sentence.empty())
            return sentence + more;
    return problem.what() + more;
}

}  // namespace lockstep
