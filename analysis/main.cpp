// lockstep-analyze: from traces to tables. Results go to stdout, the one sentence of an error to stderr.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "analysis/command.hpp"
#include "base/error.hpp"
#include "base/version.hpp"

int main(int argc, char** argv) {
    using namespace lockstep;
    CLI::App program("Says from the traces of lockstep's runs where the time went.", "lockstep-analyze");
    program.set_version_flag("--version", fmt::format("lockstep-analyze {} ({})", version(), commit()));
    program.require_subcommand(1);
    program.footer(
        "A RUN is a run's folder (runs/NAME) or one of its trace-NNN.h5 files.\n"
        "Exit codes: 0 done, 1 a fault inside, 2 wrong input, 3 a damaged file.");
    analysis::Action action;
    analysis::add_summary(program, action);
    try {
        program.parse(argc, argv);
        const int code = action();
        if (std::fflush(stdout) != 0) throw fault_error("the output cannot be written: {}", system_error_text());
        return code;
    } catch (const CLI::ParseError& problem) {
        // CLI11 prints help and version here, and says what is wrong with the command line.
        return program.exit(problem) == 0 ? 0 : static_cast<int>(ExitCode::usage);
    } catch (const Error& problem) {
        fmt::print(stderr, "lockstep-analyze: {}\n", problem.what());
        return static_cast<int>(problem.code());
    } catch (const std::exception& problem) {
        fmt::print(stderr, "lockstep-analyze: {}\n", problem.what());
        return static_cast<int>(ExitCode::fault);
    }
}
