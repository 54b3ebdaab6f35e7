// Completion for shells and man pages, made from the options that a program declares.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/command_line.hpp"
#include "base/error.hpp"

namespace lockstep {
namespace {

struct OptionInfo {
    std::string name, meaning, value;  // "--set", its help, "TEXT" ("": a flag)
};
struct CommandInfo {
    std::string name, meaning, more;
    std::vector<OptionInfo> options, arguments;  // arguments: without a name before them
};

std::string replaced(std::string text, const std::string& what, const std::string& with) {
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size()))
        text.replace(at, what.size(), with);
    return text;
}

std::string one_line(const std::string& text) {
    return replaced(text, "\n", " ");
}

CommandInfo describe(const CLI::App& command) {
    CommandInfo info{command.get_name(), one_line(command.get_description()), command.get_footer(), {}, {}};
    for (const CLI::Option* option : command.get_options(nullptr)) {
        const std::string meaning = one_line(option->get_description());
        const std::string value = option->get_type_size() == 0 ? "" : option->get_type_name();
        if (option->get_lnames().empty())
            info.arguments.push_back({option->get_name(true), meaning, value});
        else
            info.options.push_back({"--" + option->get_lnames().front(), meaning, value});
    }
    return info;
}

std::vector<CommandInfo> commands_of(const CLI::App& program) {
    std::vector<CommandInfo> commands;
    for (const CLI::App* command : program.get_subcommands(nullptr))
        if (!command->get_group().empty()) commands.push_back(describe(*command));
    return commands;
}

std::string function_name(const CLI::App& program) {
    return "_" + replaced(program.get_name(), "-", "_");
}

std::string bash_completion(const CLI::App& program) {
    std::string names, cases;
    for (const CommandInfo& command : commands_of(program)) {
        names += (names.empty() ? "" : " ") + command.name;
        cases += fmt::format("        {}) options=\"", command.name);
        for (std::size_t i = 0; i < command.options.size(); ++i) cases += (i == 0 ? "" : " ") + command.options[i].name;
        cases += "\" ;;\n";
    }
    return fmt::format(
        "{0}() {{\n"
        "    local current=\"${{COMP_WORDS[COMP_CWORD]}}\" options=\"\"\n"
        "    COMPREPLY=()\n"
        "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
        "        mapfile -t COMPREPLY < <(compgen -W \"{1} --help --version\" -- \"$current\")\n"
        "        return\n"
        "    fi\n"
        "    case \"${{COMP_WORDS[1]}}\" in\n"
        "        help) [ \"$COMP_CWORD\" -eq 2 ] && options=\"{1}\" ;;\n"
        "{2}"
        "    esac\n"
        "    if [[ \"$current\" == -* || \"${{COMP_WORDS[1]}}\" == help ]]; then\n"
        "        mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$current\")\n"
        "    fi\n"
        "}}\n"
        "complete -o default -F {0} {3}\n",
        function_name(program), names, cases, program.get_name());
}

// In single quotes, within a specification of _arguments.
std::string zsh_text(const std::string& text) {
    std::string quoted = replaced(text, "'", "'\\''");
    for (const char* special : {"[", "]", ":"}) quoted = replaced(quoted, special, "\\" + std::string(special));
    return quoted;
}

std::string zsh_completion(const CLI::App& program) {
    std::string names, cases;
    for (const CommandInfo& command : commands_of(program)) {
        names += fmt::format("    '{}:{}'\n", command.name, replaced(command.meaning, "'", "'\\''"));
        cases += fmt::format("    {})\n        _arguments", command.name);
        for (const OptionInfo& option : command.options)
            cases += fmt::format(" \\\n            '{}[{}]{}'", option.name, zsh_text(option.meaning),
                                 option.value.empty() ? "" : ":value:_files");
        cases += " \\\n            '*:file:_files'\n        ;;\n";
    }
    return fmt::format(
        "#compdef {0}\n"
        "local -a commands\n"
        "commands=(\n"
        "{1}"
        ")\n"
        "if (( CURRENT == 2 )); then\n"
        "    _describe command commands\n"
        "    return\n"
        "fi\n"
        "local command=$words[2]\n"
        "shift words\n"
        "(( CURRENT-- ))\n"
        "case $command in\n"
        "{2}"
        "esac\n",
        program.get_name(), names, cases);
}

std::string fish_completion(const CLI::App& program) {
    const auto text = [](const std::string& words) {
        return "'" + replaced(replaced(words, "\\", "\\\\"), "'", "\\'") + "'";
    };
    std::string script;
    for (const CommandInfo& command : commands_of(program)) {
        script += fmt::format("complete -c {} -n __fish_use_subcommand -a {} -d {}\n", program.get_name(), command.name,
                              text(command.meaning));
        for (const OptionInfo& option : command.options)
            script += fmt::format("complete -c {} -n '__fish_seen_subcommand_from {}' -l {}{} -d {}\n",
                                  program.get_name(), command.name, option.name.substr(2),
                                  option.value.empty() ? "" : " -r", text(option.meaning));
    }
    return script;
}

// A line of troff: no control character at its beginning, hyphens that can be copied.
std::string troff(const std::string& text) {
    std::string line = replaced(replaced(text, "\\", "\\e"), "-", "\\-");
    line = replaced(line, "\n.", "\n\\&.");
    line = replaced(line, "\n'", "\n\\&'");
    return line.starts_with('.') || line.starts_with('\'') ? "\\&" + line : line;
}

// The same line breaks.
std::string lines(const std::string& text) {
    return replaced(troff(text), "\n", "\n.br\n");
}

}  // namespace

std::string completion_script(const CLI::App& program, const std::string& shell) {
    if (shell == "bash") return bash_completion(program);
    if (shell == "zsh") return zsh_completion(program);
    if (shell == "fish") return fish_completion(program);
    throw usage_error("--completion {} is unknown; there are bash, zsh and fish", shell);
}

std::string man_page(const CLI::App& program) {
    std::string upper = program.get_name();
    for (char& letter : upper)
        if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
    const std::string about = program.get_description(), first = about.substr(0, about.find('\n'));
    std::string page = fmt::format(
        ".TH {} 1\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n.B {}\n.I COMMAND\n[OPTIONS]\n.SH DESCRIPTION\n{}\n"
        ".SH COMMANDS\n",
        upper, troff(program.get_name()), troff(first), troff(program.get_name()), lines(about));
    for (const CommandInfo& command : commands_of(program)) {
        page += fmt::format(".SS {}\n{}\n", troff(command.name), troff(command.meaning));
        for (const auto* list : {&command.arguments, &command.options})
            for (const OptionInfo& option : *list)
                page += fmt::format(".TP\n\\fB{}\\fR {}\n{}\n", troff(option.name), troff(option.value),
                                    troff(option.meaning.empty() ? "see the documentation" : option.meaning));
        if (!command.more.empty()) page += ".PP\n" + lines(command.more) + "\n";
    }
    if (!program.get_footer().empty()) page += ".SH NOTES\n" + lines(program.get_footer()) + "\n";
    return page;
}

}  // namespace lockstep
