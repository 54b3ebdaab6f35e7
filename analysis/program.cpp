#include "analysis/program.hpp"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "analysis/command.hpp"
#include "analysis/exchange/formats.hpp"
#include "base/command_line.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/version.hpp"

namespace lockstep::analysis {

int run_program(int argc, const char* const* argv) {
    CLI::App program("Shows where the time of lockstep runs went, from their traces.", "lockstep-analyze");
    program.set_version_flag("-V,--version", fmt::format("lockstep-analyze {} ({})\nOTF2: {}", version(), commit(),
                                                         has_otf2() ? "yes" : "no"));
    program.require_subcommand(1);
    program.footer(
        "A RUN is a run's folder (runs/NAME), one of its trace-NNN.h5 files, or a folder of run folders.\n"
        "Exit codes: 0 success, 1 internal error, 2 invalid input, 3 damaged file,\n"
        "6 compare found the second run slower than allowed.");
    Action action;
    add_summary(program, action);
    add_scaling(program, action);
    add_sweep(program, action);
    add_compare(program, action);
    add_predict(program, action);
    add_report(program, action);
    add_artifact(program, action);
    add_import(program, action);
    add_export(program, action);
    add_help_command(program, action);
    try {
        program.parse(argc, argv);
        refuse_empty_values(program);
        const int code = action();
        if (std::fflush(stdout) != 0) throw fault_error("the output cannot be written: {}", system_error_text());
        return code;
    } catch (const CLI::ParseError& problem) {
        if (problem.get_exit_code() == 0) return program.exit(problem);  // --help, --version
        std::fprintf(stderr, "lockstep-analyze: %s\n", command_line_problem(program, problem, argc, argv).c_str());
        return static_cast<int>(ExitCode::usage);
    } catch (const Error& problem) {
        log::error("{}", problem.what());
        return static_cast<int>(problem.code());
    } catch (const std::exception& problem) {
        log::error("internal error in lockstep-analyze: {}", problem.what());
        return static_cast<int>(ExitCode::fault);
    }
}

}  // namespace lockstep::analysis
