#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>

#include "base/command_line.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/version.hpp"
#include "command.hpp"
#include "data/tokenizer.hpp"
#include "device/gpu.hpp"
#include "device/processor_counters.hpp"
#include "kernels/backend.hpp"

namespace {

std::string version_text() {
    return fmt::format(
        "lockstep {} (commit {})\nbuilt with {}\nCPU instruction set: {}, {}\nCUDA: {}\nPAPI: {}\nsentencepiece: {}\n"
        "Hugging Face tokenizers: {}",
        lockstep::version(), lockstep::commit(), lockstep::compiler(), lockstep::kernels::cpu_instruction_set(),
        lockstep::kernels::cpu_multiplies_bf16() ? "bf16 products" : "no bf16 products", lockstep::gpu_support(),
        lockstep::ProcessorCounters::built_in() ? "yes" : "no", lockstep::data::has_sentencepiece() ? "yes" : "no",
        lockstep::data::has_huggingface() ? "yes" : "no");
}

// Whether this process is rank 0 according to the launcher (MPICH and derivatives, Open MPI, Slurm), before MPI has
// started. True without a launcher.
bool is_first_process() {
    for (const char* name : {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"})
        if (const char* rank = std::getenv(name)) return std::atoi(rank) == 0;
    return true;
}

// libgomp's threads spin where they wait for each other, by default for milliseconds: on a machine that has other work
// they spend the time slices that the thread they wait for needs, and a step takes ten times as long. A short spin
// is as fast on an idle machine. libgomp reads the variable when it is loaded, so the program starts once more.
void restart_with_short_spins(char** argv) {
    for (const char* name : {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"})
        if (std::getenv(name)) return;
    // valgrind follows no new program, and a loader that was started by name is not this one.
    const char* preloaded = std::getenv("LD_PRELOAD");
    std::error_code problem;
    const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", problem);
    if (problem || !program.filename().string().starts_with("lockstep")) return;
    if (preloaded && std::string(preloaded).find("vgpreload") != std::string::npos) return;
    if (::setenv("GOMP_SPINCOUNT", "1000", 1) != 0) return;
    ::execv(program.c_str(), argv);
    // It goes on as it is where that failed.
}

}  // namespace

int main(int argc, char** argv) {
    using namespace lockstep;
    if (argc > 1)
        for (const char* command : {"train", "eval", "generate", "bench"})
            if (std::string(argv[1]) == command) restart_with_short_spins(argv);
    std::signal(SIGXFSZ, SIG_IGN);  // a file that reaches its limit is an error of the call that writes it
    CLI::App program{
        "Trains transformer and TTT (test-time-training) language models over MPI ranks.\n"
        "Exit codes: 0 success, 1 internal fault, 2 wrong input, 3 damaged file, 4 stopped early with a "
        "checkpoint, 5 no progress (the watchdog), 6 something found (doctor --strict)."};
    program.name("lockstep");
    program.require_subcommand(1);
    program.set_version_flag("-V,--version", version_text, "Print version, commit and features");
    commands::Action action;
    commands::add_train(program, action);
    commands::add_eval(program, action);
    commands::add_generate(program, action);
    commands::add_pack(program, action);
    commands::add_convert(program, action);
    commands::add_inspect(program, action);
    commands::add_plan(program, action);
    commands::add_topo(program, action);
    commands::add_doctor(program, action);
    commands::add_verify(program, action);
    commands::add_bench(program, action);
    commands::add_witness(program, action);
    add_help_command(program, action);
    try {
        program.parse(argc, argv);
        refuse_empty_values(program, {"--prompt"});
        // Commands that are not parallel run on rank 0 only.
        const bool by_ranks = program.got_subcommand("train") || program.got_subcommand("eval") ||
                              program.got_subcommand("bench") || program.got_subcommand("convert") ||
                              program.got_subcommand("doctor") || program.got_subcommand("witness");
        const int code = by_ranks || is_first_process() ? action() : 0;
        if (std::fflush(stdout) != 0) throw fault_error("the output cannot be written: {}", system_error_text());
        return code;
    } catch (const CLI::ParseError& problem) {
        if (problem.get_exit_code() == 0) return program.exit(problem);  // --help, --version
        if (!is_first_process()) return static_cast<int>(ExitCode::usage);
        std::fprintf(stderr, "lockstep: %s\n", command_line_problem(program, problem, argc, argv).c_str());
        return static_cast<int>(ExitCode::usage);
    } catch (const Error& error) {
        log::error("{}", error.what());
        return static_cast<int>(error.code());
    } catch (const std::exception& error) {
        log::error("internal error: {}", error.what());
        return static_cast<int>(ExitCode::fault);
    }
}
