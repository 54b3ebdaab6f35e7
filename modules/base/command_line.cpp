#include "base/command_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"

namespace lockstep {
namespace {

std::string meant(const std::string& near) {
    return near.empty() ? "" : "; did you mean " + near + "?";
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

}  // namespace

void add_help_command(CLI::App& program, std::function<int()>& action) {
    auto* command = program.add_subcommand("help", "Print the help of a command");
    const auto name = std::make_shared<std::string>();
    command->add_option("COMMAND", *name, "The command; without one, the program's help");
    command->callback([&program, &action, name] {
        action = [&program, name] {
            const std::vector<std::string> known = commands_of(program);
            if (!name->empty() && std::find(known.begin(), known.end(), *name) == known.end())
                throw usage_error("{}", unknown_command(program, *name));
            const std::string of = *name;
            program.clear();  // else the help of the program is that of the command `help`
            const std::string text = of.empty() ? program.help() : program.get_subcommand(of)->help(program.get_name());
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
