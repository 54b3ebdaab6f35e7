// How fast whole training steps are on this machine's CPUs: starts lockstep on random tokens for each of a table of
// cases, and sets its model FLOP/s against a large product by oneDNN, measured before and after. docs/benchmarks.md
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <regex>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/table.hpp"
#include "cluster/placement.hpp"
#include "command_run.hpp"
#include "measure.hpp"
#include "training_run.hpp"

using namespace lockstep;
using namespace lockstep::bench;
namespace fs = std::filesystem;

namespace {

struct Options {
    std::string lockstep = beside_this_program("lockstep"), folder = fs::temp_directory_path().string();
    std::string filter, format = "text";
    std::int64_t steps = 6;
    bool list = false;
};

const std::vector<TrainingCase> all_cases = {
    {"gpt2-124m", 4, 64, 4, "fp32", 1},        {"gpt2-124m", 4, 64, 4, "bf16", 1},
    {"gpt2-124m", 4, 256, 4, "fp32", 1},       {"gpt2-124m", 4, 256, 4, "bf16", 1},
    {"gpt2-124m", 16, 256, 4, "bf16", 1},      {"gpt2-124m", 16, 256, 4, "bf16", 2},
    {"ttt-linear-125m", 1, 512, 1, "fp32", 1}, {"ttt-linear-125m", 1, 512, 1, "bf16", 1},
    {"ttt-linear-125m", 8, 512, 4, "bf16", 1}, {"ttt-linear-125m", 1, 4096, 1, "bf16", 1},
    {"ttt-mlp-125m", 1, 512, 1, "fp32", 1},    {"ttt-mlp-125m", 1, 512, 1, "bf16", 1},
};

// Its steps are short: only the checkpoint at its end counts.
const TrainingCase checkpoint_case = {"gpt2-124m", 1, 16, 1, "fp32", 1};
const std::string checkpoint_name = "checkpoint of gpt2-124m with moments";
constexpr int checkpoint_rounds = 3;

// oneDNN's rate in each precision that is asked for, the best so far, with what was said of each measurement.
class ProductRates {
  public:
    explicit ProductRates(std::vector<std::string> precisions)
        : backend_(kernels::make_cpu_backend()), precisions_(std::move(precisions)) {
        set_threads(cluster::place_alone({}).seat().threads);
    }
    void measure() {
        for (const std::string& precision : precisions_) {
            const ProductRate rate = measure_product(*backend_, precision == "bf16" ? Type::bf16 : Type::fp32, 10);
            double& best = best_[precision];
            best = std::max(best, rate.flop_per_second);
            said_[precision].push_back(fmt::format("{} ({})", human_rate(rate.flop_per_second, "FLOP"), rate.size));
        }
    }
    double best(const std::string& precision) const { return best_.at(precision); }
    std::string text() const {
        std::string text;
        for (const auto& [precision, both] : said_)
            text +=
                fmt::format("oneDNN, {} product on {} threads (best size of square matrices): {} before, {} after\n",
                            precision, threads(), both.front(), both.back());
        return text;
    }

  private:
    std::shared_ptr<Backend> backend_;
    std::vector<std::string> precisions_;
    std::map<std::string, double> best_;
    std::map<std::string, std::vector<std::string>> said_;
};

// How fast checkpoints reach the disk, alternating with dd on the same file system.
std::string measure_checkpoints(const Trainings& trainings) {
    std::vector<double> own, plain;
    double bytes = 0;
    for (int round = 0; round < checkpoint_rounds; ++round) {
        const TrainingResult result = trainings.run(checkpoint_case, uncounted_steps + 1);
        own.push_back(result.checkpoint_seconds);
        bytes = result.checkpoint_bytes;
        const std::string file = trainings.folder() + "/zeros";
        const auto mebibytes = static_cast<std::int64_t>(std::ceil(bytes / (1 << 20)));
        const double start = seconds_now();
        const CommandResult ended = run_command(
            {{"dd", "if=/dev/zero", "of=" + file, "bs=1M", fmt::format("count={}", mebibytes), "conv=fsync"},
             trainings.folder(),
             {}});
        plain.push_back(seconds_now() - start);
        fs::remove(file);
        if (ended.exit_code != 0) throw fault_error("dd ended with exit code {}: {}", ended.exit_code, ended.output);
    }
    const double seconds = median(own), of_dd = median(plain);
    return fmt::format(
        "{}, {:.2f} GB: {:.2f} s, {:.2f} GB/s; dd of zeros with fsync: {:.2f} s, {:.2f} GB/s; medians of {}\n",
        checkpoint_name, bytes / 1e9, seconds, bytes / seconds / 1e9, of_dd, bytes / of_dd / 1e9, checkpoint_rounds);
}

class Chosen {
  public:
    explicit Chosen(const std::string& filter) {
        try {
            expression_.emplace(filter);
        } catch (const std::regex_error& problem) {
            throw usage_error("--filter {} is not a valid regular expression: {}", filter, problem.what());
        }
        for (const TrainingCase& training : all_cases)
            if (has(name_of(training))) cases.push_back(training);
        checkpoint = has(checkpoint_name);
        if (cases.empty() && !checkpoint)
            throw usage_error("--filter {} matches no case; --list shows their names", filter);
    }
    std::vector<TrainingCase> cases;
    bool checkpoint = false;

  private:
    bool has(const std::string& name) const { return std::regex_search(name, *expression_); }
    std::optional<std::regex> expression_;
};

void list(const Chosen& chosen) {
    for (const TrainingCase& training : chosen.cases) std::printf("%s\n", name_of(training).c_str());
    if (chosen.checkpoint) std::printf("%s\n", checkpoint_name.c_str());
}

struct Row {
    TrainingCase training;
    TrainingResult result;
};

Table make_table(const std::vector<Row>& rows, const ProductRates& rates) {
    Table table({{"model", "model"},
                 {"batch", "batch"},
                 {"micro_batch", "micro-batch"},
                 {"length", "length"},
                 {"precision", "precision"},
                 {"ranks", "ranks"},
                 {"threads", "threads"},
                 {"tokens_per_second", "tokens/s", 0},
                 {"model_gigaflop_per_second", "model GFLOP/s", 0},
                 {"share_of_onednn", "share of oneDNN", 2},
                 {"peak_gibibytes", "peak memory, GiB", 2}});
    for (const auto& [training, result] : rows)
        table.add_row({training.preset, training.batch, training.micro, training.length, training.precision,
                       training.ranks, result.threads, result.tokens_per_second, result.flop_per_second / 1e9,
                       result.flop_per_second / rates.best(training.precision),
                       result.peak_bytes / static_cast<double>(1 << 30)});
    return table;
}

int run(const Options& options) {
    const TableFormat format = table_format(options.format);
    Chosen chosen(options.filter);
    if (options.list) {
        list(chosen);
        return 0;
    }
    // Around a table for programs nothing may stand.
    std::FILE* around = format == TableFormat::text || format == TableFormat::markdown ? stdout : stderr;
    const TemporaryFolder folder(options.folder);
    const Trainings trainings(options.lockstep, folder.path());

    const auto in_bf16 = [](const TrainingCase& training) { return training.precision == "bf16"; };
    if (!kernels::cpu_multiplies_bf16()) {
        const auto skipped = std::erase_if(chosen.cases, in_bf16);
        if (skipped > 0)
            std::fprintf(around,
                         "bf16 cases are skipped (%zu): this processor has no bf16 instructions, or the environment "
                         "disables them\n",
                         skipped);
    }
    std::vector<std::string> precisions;
    for (const char* precision : {"fp32", "bf16"})
        if (std::any_of(chosen.cases.begin(), chosen.cases.end(),
                        [&](const TrainingCase& training) { return training.precision == precision; }))
            precisions.emplace_back(precision);

    int exit_code = 0;
    ProductRates rates(precisions);
    rates.measure();
    std::vector<Row> rows;
    for (std::size_t i = 0; i < chosen.cases.size(); ++i) {
        const TrainingCase& training = chosen.cases[i];
        std::fprintf(stderr, "[%zu/%zu] %s: ", i + 1, chosen.cases.size(), name_of(training).c_str());
        try {
            rows.push_back({training, trainings.run(training, options.steps)});
            std::fprintf(stderr, "%.0f tokens/s\n", rows.back().result.tokens_per_second);
        } catch (const Error& problem) {
            if (ended_by_signal()) throw;
            std::fprintf(stderr, "failed\nbench_training: %s\n", problem.what());
            exit_code = static_cast<int>(problem.code());
        }
    }
    rates.measure();
    std::fputs(rates.text().c_str(), around);
    if (!rows.empty()) std::fputs(make_table(rows, rates).print(format).c_str(), stdout);
    std::fflush(stdout);
    if (chosen.checkpoint) {
        std::fprintf(stderr, "%s: %d times\n", checkpoint_name.c_str(), checkpoint_rounds);
        std::fputs(measure_checkpoints(trainings).c_str(), around);
    }
    return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App program(
        "Times whole training steps of lockstep on this machine's CPUs, on random tokens. tokens/s and model FLOP/s "
        "are those of the median step after the first two, from the run's trace; the share is relative to a large "
        "oneDNN product in the same precision; memory is the resident set of the largest rank until the checkpoint "
        "begins.",
        "bench_training");
    program.add_option("--lockstep", options.lockstep, "the program")->capture_default_str();
    program.add_option("--filter", options.filter, "only cases whose name matches this regular expression");
    program.add_option("--steps", options.steps, "steps of each case; the first two are not timed")
        ->check(CLI::Range(3, 1000))
        ->capture_default_str();
    program.add_option("--folder", options.folder, "where to create a temporary folder; it needs up to 4 GB")
        ->capture_default_str();
    program.add_option("--format", options.format, "text, markdown, csv or json")->capture_default_str();
    program.add_flag("--list", options.list, "print the names of the cases and exit");
    try {
        program.parse(argc, argv);
    } catch (const CLI::ParseError& problem) {
        if (problem.get_exit_code() == 0) return program.exit(problem);
        std::fprintf(stderr, "bench_training: %s; see bench_training --help\n", problem.what());
        return static_cast<int>(ExitCode::usage);
    }
    try {
        end_on_signals();
        return run(options);
    } catch (const Error& problem) {
        std::fprintf(stderr, "bench_training: %s\n", problem.what());
        return static_cast<int>(problem.code());
    }
}
