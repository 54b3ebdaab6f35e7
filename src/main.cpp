#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/version.hpp"
#include "command.hpp"
#include "data/tokenizer.hpp"
#include "kernels/backend.hpp"

namespace {

std::string version_text() {
    return fmt::format(
        "lockstep {} (commit {})\nbuilt with {}\nCPU instruction set: {}\nCUDA: not in this build\nsentencepiece: {}",
        lockstep::version(), lockstep::commit(), lockstep::compiler(), lockstep::kernels::cpu_instruction_set(),
        lockstep::data::has_sentencepiece() ? "yes" : "no");
}

// Whether this process speaks for the launch before MPI has started, by what the launchers of MPICH and its kin, of
// Open MPI and of Slurm say. Without a launcher it does.
bool speaks_for_all() {
    for (const char* name : {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"})
        if (const char* rank = std::getenv(name)) return std::atoi(rank) == 0;
    return true;
}

// OpenMP's threads wait for each other in a loop by default. Where a core is shared, be it with the thread that writes
// a checkpoint, a loop burns whole time slices: steps of 20 ms were seen to take seconds. The OpenMP library reads the
// setting when it is loaded, before main, so the program starts itself anew with it. What the user set stays.
void wait_without_spinning(char** argv) {
    if (std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT")) return;
    std::error_code unknown;
    const std::string program = std::filesystem::read_symlink("/proc/self/exe", unknown).string();
    if (!unknown && setenv("OMP_WAIT_POLICY", "passive", 1) == 0) execv(program.c_str(), argv);
}

}  // namespace

int main(int argc, char** argv) {
    using namespace lockstep;
    wait_without_spinning(argv);
    CLI::App program{
        "Trains transformer and TTT (test-time-training) language models over MPI ranks.\n"
        "Exit codes: 0 done, 1 a fault inside, 2 the input is wrong, 3 a file is damaged, 4 stopped early with a "
        "checkpoint."};
    program.name("lockstep");
    program.require_subcommand(1);
    program.set_version_flag("--version", version_text, "Print version, commit and features");
    commands::Action action;
    commands::add_train(program, action);
    commands::add_eval(program, action);
    commands::add_generate(program, action);
    commands::add_pack(program, action);
    commands::add_inspect(program, action);
    commands::add_verify(program, action);
    try {
        program.parse(argc, argv);
        return action();
    } catch (const CLI::ParseError& problem) {
        if (problem.get_exit_code() == 0) return program.exit(problem);  // --help, --version
        if (speaks_for_all()) std::fprintf(stderr, "lockstep: %s; see lockstep --help\n", problem.what());
        return static_cast<int>(ExitCode::usage);
    } catch (const Error& error) {
        log::error("{}", error.what());
        return static_cast<int>(error.code());
    } catch (const std::exception& error) {
        log::error("a fault inside lockstep: {}", error.what());
        return static_cast<int>(ExitCode::fault);
    }
}
