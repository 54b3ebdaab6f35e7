// How speed and memory of whole training steps grow with the length of a sequence, for each mixer, on one rank and with
// the sequence divided among several. docs/benchmarks.md
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/table.hpp"
#include "command_run.hpp"
#include "training_run.hpp"

using namespace lockstep;
using namespace lockstep::bench;
namespace fs = std::filesystem;

namespace {

struct Options {
    std::string lockstep = beside_this_program("lockstep"), folder = fs::temp_directory_path().string();
    std::string precision = "fp32", format = "text";
    std::vector<std::string> mixers;
    std::vector<std::int64_t> lengths = {512, 1024, 2048, 4096, 8192, 16384, 32768}, ranks = {1, 2, 4};
    std::int64_t steps = 4;
};

// The sizes of the 125M models with four blocks, so that a hybrid has its three to one.
struct Mixing {
    const char* name;
    std::vector<std::string> settings;
};
const std::vector<Mixing> all_mixings = {
    {"attention", {"model.mixer=attention", "model.position=rope"}},
    {"attention, window 512", {"model.mixer=attention", "model.position=rope", "model.window=512"}},
    {"ttt-linear", {"model.mixer=ttt-linear"}},
    {"ttt-mlp", {"model.mixer=ttt-mlp"}},
    {"gated-deltanet", {"model.mixer=gated-deltanet"}},
    {"hybrid", {"model.mixer=[\"ttt-linear\",\"ttt-linear\",\"ttt-linear\",\"attention\"]", "model.position=rope"}}};

std::vector<Mixing> chosen(const std::vector<std::string>& names) {
    if (names.empty()) return all_mixings;
    std::vector<Mixing> list;
    for (const std::string& name : names) {
        const auto found =
            std::find_if(all_mixings.begin(), all_mixings.end(), [&](const Mixing& one) { return name == one.name; });
        if (found == all_mixings.end()) {
            std::string known;
            for (const Mixing& one : all_mixings) known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", one.name);
            throw usage_error("--mixer {} is unknown; choose one of {}", name, known);
        }
        list.push_back(*found);
    }
    return list;
}

TrainingCase case_of(const Mixing& mixing, std::int64_t length, std::int64_t ranks, const Options& options) {
    TrainingCase training{"ttt-linear-125m", 1, length, 1, options.precision, ranks, mixing.settings};
    training.settings.insert(training.settings.end(), {"model.layers=4", fmt::format("model.context={}", length),
                                                       fmt::format("parallel.context={}", ranks)});
    return training;
}

int run(const Options& options) {
    const TableFormat format = table_format(options.format);
    const std::vector<Mixing> mixings = chosen(options.mixers);
    const TemporaryFolder folder(options.folder);
    const Trainings trainings(options.lockstep, folder.path());
    Table table({{"mixer", "mixer"},
                 {"length", "length"},
                 {"ranks", "ranks"},
                 {"threads", "threads"},
                 {"tokens_per_second", "tokens/s", 0},
                 {"model_gigaflop_per_second", "model GFLOP/s", 0},
                 {"peak_gibibytes", "peak memory, GiB", 2},
                 {"kibibytes_per_token", "KiB per token", 1}});
    const std::size_t all = mixings.size() * options.lengths.size() * options.ranks.size();
    std::size_t number = 0;
    int exit_code = 0;
    for (const Mixing& mixing : mixings)
        for (const std::int64_t ranks : options.ranks) {
            double least = 0;  // bytes of the shortest length
            std::int64_t shortest = 0;
            for (const std::int64_t length : options.lengths) {
                std::fprintf(stderr, "[%zu/%zu] %s, length %lld, %lld rank%s: ", ++number, all, mixing.name,
                             static_cast<long long>(length), static_cast<long long>(ranks), ranks == 1 ? "" : "s");
                try {
                    const TrainingResult result = trainings.run(case_of(mixing, length, ranks, options), options.steps);
                    std::fprintf(stderr, "%.0f tokens/s\n", result.tokens_per_second);
                    if (shortest == 0) {
                        shortest = length;
                        least = result.peak_bytes;
                    }
                    // Of one rank, for a token of its stretch.
                    const double tokens = static_cast<double>(length - shortest) / static_cast<double>(ranks);
                    table.add_row({mixing.name, length, ranks, result.threads, result.tokens_per_second,
                                   result.flop_per_second / 1e9, result.peak_bytes / static_cast<double>(1 << 30),
                                   tokens > 0 ? Cell((result.peak_bytes - least) / tokens / 1024) : Cell()});
                } catch (const Error& problem) {
                    if (ended_by_signal()) throw;
                    std::fprintf(stderr, "failed\nbench_long_context: %s\n", problem.what());
                    exit_code = static_cast<int>(problem.code());
                }
            }
        }
    if (!table.rows().empty()) std::fputs(table.print(format).c_str(), stdout);
    return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App program(
        "Times training steps of one sequence on this machine's CPUs, by sequence length, for each mixer: models of "
        "the 125M sizes with four blocks, on random tokens. Memory is the resident set of the largest rank; KiB per "
        "token is its growth since the shortest length. Long lengths take minutes each.",
        "bench_long_context");
    program.add_option("--lockstep", options.lockstep, "the program")->capture_default_str();
    program.add_option("--mixer", options.mixers, "only this mixer (repeatable)");
    program.add_option("--length", options.lengths, "tokens of the sequence (several, ascending)")
        ->delimiter(',')
        ->check(CLI::Range(std::int64_t{16}, std::int64_t{1} << 20))
        ->capture_default_str();
    program.add_option("--ranks", options.ranks, "ranks that share the sequence (several)")
        ->delimiter(',')
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    program.add_option("--precision", options.precision, "fp32 or bf16")->capture_default_str();
    program.add_option("--steps", options.steps, "steps of each case; the first two are not timed")
        ->check(CLI::Range(3, 1000))
        ->capture_default_str();
    program.add_option("--folder", options.folder, "where to create a temporary folder; it needs up to 2 GB")
        ->capture_default_str();
    program.add_option("--format", options.format, "text, markdown, csv or json")->capture_default_str();
    try {
        program.parse(argc, argv);
    } catch (const CLI::ParseError& problem) {
        if (problem.get_exit_code() == 0) return program.exit(problem);
        std::fprintf(stderr, "bench_long_context: %s; see bench_long_context --help\n", problem.what());
        return static_cast<int>(ExitCode::usage);
    }
    try {
        end_on_signals();
        return run(options);
    } catch (const Error& problem) {
        std::fprintf(stderr, "bench_long_context: %s\n", problem.what());
        return static_cast<int>(problem.code());
    }
}
