// How near the planner's time of a step comes to that of real runs on this machine: calibrates once, trains on random
// tokens for each of a table of cases, and compares predicted with measured times.
// docs/planner-own-program.md
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <regex>
#include <vector>

#include "base/error.hpp"
#include "base/table.hpp"
#include "command_run.hpp"
#include "config/machine.hpp"
#include "config/run_description.hpp"
#include "cost/own_prices.hpp"
#include "cost/own_time.hpp"
#include "layout/memory_plan.hpp"
#include "layout/run_layout.hpp"
#include "training_run.hpp"

using namespace lockstep;
using namespace lockstep::bench;
namespace fs = std::filesystem;

namespace {

struct Options {
    std::string lockstep = beside_this_program("lockstep"), folder = fs::temp_directory_path().string();
    std::string hardware, filter, format = "text";
    std::int64_t steps = 7, ranks = 2;
    bool list = false, predict = false;
};

using Settings = std::vector<std::string>;

std::vector<TrainingCase> all_cases() {
    const Settings middle = {"model.layers=6", "model.width=512", "model.heads=8", "model.kv_heads=8",
                             "model.mlp_width=2048"};
    const auto with = [](Settings settings, const Settings& more) {
        settings.insert(settings.end(), more.begin(), more.end());
        return settings;
    };
    const Settings tensor = {"parallel.tensor=2"}, pipeline = {"parallel.pipeline=2"};
    std::vector<TrainingCase> cases;
    for (const std::string precision : {"fp32", "bf16"}) {
        cases.push_back({"gpt2-124m", 4, 64, 4, precision, 1});
        cases.push_back({"gpt2-124m", 4, 256, 4, precision, 1});
        cases.push_back({"gpt2-124m", 8, 64, 8, precision, 1, middle});
        cases.push_back({"gpt2-124m", 8, 256, 4, precision, 1, middle});
        cases.push_back({"ttt-linear-125m", 1, 512, 1, precision, 1});
        cases.push_back({"ttt-mlp-125m", 1, 512, 1, precision, 1});
        cases.push_back({"gpt2-124m", 4, 256, 2, precision, 2});
        for (const char* zero : {"parallel.zero=1", "parallel.zero=2", "parallel.zero=3"})
            cases.push_back({"gpt2-124m", 4, 256, 2, precision, 2, {zero}});
        cases.push_back({"gpt2-124m", 4, 256, 4, precision, 2, tensor});
        cases.push_back({"gpt2-124m", 4, 256, 1, precision, 2, pipeline});
        cases.push_back({"gpt2-124m", 8, 256, 2, precision, 2, middle});
        cases.push_back({"gpt2-124m", 8, 256, 2, precision, 2, with(middle, pipeline)});
        cases.push_back({"ttt-linear-125m", 2, 512, 1, precision, 2});
        cases.push_back({"ttt-mlp-125m", 2, 512, 2, precision, 2, tensor});
        cases.push_back({"gpt2-124m", 8, 256, 2, precision, 4, middle});
        cases.push_back({"gpt2-124m", 8, 256, 1, precision, 4, with(middle, {"parallel.pipeline=4"})});
        cases.push_back(
            {"gpt2-124m", 8, 256, 2, precision, 4, with(middle, {"parallel.tensor=2", "parallel.pipeline=2"})});
        cases.push_back({"gpt2-124m", 8, 256, 2, precision, 4, with(middle, tensor)});
        cases.push_back({"gpt2-124m", 8, 256, 1, precision, 4, with(middle, {"parallel.zero=3"})});
    }
    // Below block 3 nothing is trained, and above it no weights of the MLPs.
    const std::string frozen = "model.frozen=[\"embedding/*\",\"position/*\",\"blocks/[0-2]/*\",\"*/mlp/*\"]";
    cases.push_back({"gpt2-124m", 8, 256, 4, "fp32", 1, with(middle, {frozen})});
    cases.push_back({"gpt2-124m", 4, 256, 4, "bf16", 1, {"parallel.recompute=full"}});
    cases.push_back({"gpt2-124m", 16, 256, 4, "bf16", 1});
    return cases;
}

std::vector<TrainingCase> chosen(const std::string& filter) {
    std::vector<TrainingCase> cases;
    try {
        const std::regex expression(filter);
        for (const TrainingCase& training : all_cases())
            if (std::regex_search(name_of(training), expression)) cases.push_back(training);
    } catch (const std::regex_error& problem) {
        throw usage_error("--filter {} is not a valid regular expression: {}", filter, problem.what());
    }
    if (cases.empty()) throw usage_error("--filter {} matches no case; --list shows their names", filter);
    return cases;
}

config::Machine calibrated(const Options& options, const std::string& folder) {
    if (!options.hardware.empty()) return config::read_machine(options.hardware);
    const std::string path = folder + "/machine.toml";
    const CommandResult ended =
        run_command({{LOCKSTEP_MPIEXEC, "-np", std::to_string(options.ranks), fs::absolute(options.lockstep).string(),
                      "bench", "--device", "cpu", "--calibrate", path, "--folder", folder},
                     folder,
                     {}});
    if (ended.exit_code != 0)
        throw fault_error("lockstep bench ended with exit code {}: {}", ended.exit_code, ended.output);
    return config::read_machine(path);
}

// As the run computes on this machine.
config::RunDescription description_of(const TrainingCase& training, const config::Machine& machine) {
    config::RunDescription description = config::read_run_description("", settings_of(training));
    description.precision.compute = cost::precision_on(machine, description.precision.compute);
    return description;
}

cost::StepTime predicted(const TrainingCase& training, const config::Machine& machine) {
    const config::RunDescription description = description_of(training, machine);
    return cost::own_step_time(description, layout::choose_grid(description, training.ranks), training.ranks, machine);
}

// The largest resident set of a rank before a checkpoint is begun, in bytes.
double predicted_peak(const TrainingCase& training, const config::Machine& machine) {
    const config::RunDescription description = description_of(training, machine);
    const config::Grid grid = layout::choose_grid(description, training.ranks);
    const int threads = std::max(1, static_cast<int>(machine.device.per_node) / static_cast<int>(training.ranks));
    std::size_t most = 0;
    for (std::int64_t stage = 0; stage < grid.pipeline; ++stage) {
        cluster::GridPlace place;
        place.pipeline = stage;
        most = std::max(most, layout::process_bytes(description, grid, place, {}, threads, false));
    }
    return static_cast<double>(most);
}

int run(const Options& options) {
    const TableFormat format = table_format(options.format);
    const std::vector<TrainingCase> cases = chosen(options.filter);
    if (options.list) {
        for (const TrainingCase& training : cases) std::printf("%s\n", name_of(training).c_str());
        return 0;
    }
    end_on_signals();
    const TemporaryFolder folder(options.folder);
    const Trainings trainings(options.lockstep, folder.path());
    const config::Machine machine = calibrated(options, folder.path());
    Table table({{"case", "case"},
                 {"measured_seconds", "measured, s", 4},
                 {"predicted_seconds", "predicted, s", 4},
                 {"error", "error", 3},
                 {"peak_gib", "memory, GiB", 3},
                 {"predicted_gib", "predicted, GiB", 3},
                 {"memory_error", "error", 3},
                 {"forward", "forward, s", 3},
                 {"loss", "loss, s", 3},
                 {"backward", "backward, s", 3},
                 {"tensor", "tensor, s", 3},
                 {"pipeline", "pipeline, s", 3},
                 {"idle", "idle, s", 3},
                 {"data", "data, s", 3},
                 {"optimizer", "optimizer, s", 3}});
    constexpr double gib = 1 << 30;
    double worst = 0, sum = 0, worst_memory = 0, sum_memory = 0;
    for (const TrainingCase& training : cases) {
        const cost::StepTime time = predicted(training, machine);
        const double peak = predicted_peak(training, machine);
        Cell measured, error, measured_peak, memory_error;
        if (!options.predict) {
            std::fprintf(stderr, "%s\n", name_of(training).c_str());
            const TrainingResult result = trainings.run(training, options.steps);
            const double seconds = result.step_seconds;
            const double off = time.total() / seconds - 1;
            measured = seconds;
            error = off;
            worst = std::max(worst, std::abs(off));
            sum += std::abs(off);
            const double memory_off = peak / result.peak_bytes - 1;
            measured_peak = result.peak_bytes / gib;
            memory_error = memory_off;
            worst_memory = std::max(worst_memory, std::abs(memory_off));
            sum_memory += std::abs(memory_off);
        }
        table.add_row({name_of(training), measured, time.total(), error, measured_peak, peak / gib, memory_error,
                       time.forward, time.loss, time.backward + time.recomputation, time.tensor, time.pipeline,
                       time.idle, time.data, time.optimizer});
    }
    std::fputs(table.print(format).c_str(), stdout);
    if (!options.predict && format == TableFormat::text)
        std::printf("time: mean absolute error %.3f, worst %.3f; memory: %.3f, %.3f; %zu cases\n",
                    sum / static_cast<double>(cases.size()), worst, sum_memory / static_cast<double>(cases.size()),
                    worst_memory, cases.size());
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App program{"Predicted and measured seconds of training steps on this machine."};
    program.name("bench_plan");
    Options options;
    program.add_option("--lockstep", options.lockstep,
                       "The program to train with (default: the one next to this program)");
    program.add_option("--hardware", options.hardware, "A calibration of this machine (default: calibrate first)");
    program.add_option("--ranks", options.ranks, "Ranks for the calibration")->check(CLI::PositiveNumber);
    program.add_option("--folder", options.folder, "Working folder; it needs up to 3 GB");
    program.add_option("--steps", options.steps, "Steps per case, more than 2")->check(CLI::Range(3, 1000));
    program.add_option("--filter", options.filter, "Only cases whose name matches this regular expression");
    program.add_option("--format", options.format, "text, markdown, csv or json");
    program.add_flag("--list", options.list, "Show the names of the cases");
    program.add_flag("--predict", options.predict, "Predict only, without training");
    CLI11_PARSE(program, argc, argv);
    try {
        return run(options);
    } catch (const Error& error) {
        std::fprintf(stderr, "bench_plan: %s\n", error.what());
        return static_cast<int>(error.code());
    }
}
