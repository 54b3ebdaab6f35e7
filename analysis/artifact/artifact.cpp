// lockstep-analyze artifact: a draft of the artifact description that SC and other conferences ask for, from the traces
// of the runs that a paper reports.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "analysis/command.hpp"
#include "analysis/exchange/output.hpp"
#include "analysis/load/load.hpp"
#include "analysis/output/values.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/plural.hpp"
#include "base/table.hpp"

namespace lockstep::analysis {
namespace {

struct Options {
    LoadOptions load;
    std::string file;
};

// Each value once, in the order of the runs.
std::string values_of(const std::vector<Measurement>& runs,
                      const std::function<std::string(const Measurement&)>& value) {
    std::vector<std::string> list;
    for (const Measurement& run : runs) {
        const std::string one = value(run);
        if (!one.empty() && std::find(list.begin(), list.end(), one) == list.end()) list.push_back(one);
    }
    return fmt::format("{}", fmt::join(list, "; "));
}

std::string setting_of(const std::vector<Measurement>& runs, const char* key) {
    return values_of(runs, [&](const Measurement& run) { return run.setting(key); });
}

std::string minutes(double seconds) {
    return std::isfinite(seconds) ? fmt::format("{:.1f}", seconds / 60) : "-";
}

Table results_of(const std::vector<Measurement>& runs) {
    Table table({{"run", "run"},
                 {"ranks", "ranks"},
                 {"hosts", "hosts"},
                 {"step", "step, s", 4},
                 {"interval", "95 % interval"},
                 {"tokens_per_second", "tokens/s", 0},
                 {"joules_per_token", "J/token", 6},
                 {"loss", "last loss", 4},
                 {"validation_loss", "last validation loss", 4}});
    for (const Measurement& run : runs) {
        const Interval interval = run.step_interval();
        const bool wide = std::isfinite(interval.low) && std::isfinite(interval.high);
        table.add_row({run.name, run.ranks, run.hosts, known(run.step_seconds()),
                       wide ? fmt::format("{:.4f} to {:.4f}", interval.low, interval.high) : std::string("-"),
                       known(run.tokens_per_second()), known(run.counted.joules_per_token()),
                       run.losses.empty() ? Cell() : Cell(run.losses.back().second),
                       run.validations.empty() ? Cell() : Cell(run.validations.back().loss)});
    }
    return table;
}

Table times_of(const std::vector<Measurement>& runs) {
    Table table({{"run", "run"}, {"minutes", "minutes", 1}, {"steps", "steps"}});
    for (const Measurement& run : runs)
        table.add_row({run.name, known(run.total_seconds / 60), static_cast<std::int64_t>(run.losses.size())});
    return table;
}

std::string hardware_of(const std::vector<Measurement>& runs) {
    std::string text;
    for (const Measurement& run : runs) {
        std::set<std::string> gpus;
        std::int64_t least = 0, most = 0;
        for (const RankMeasurement& rank : run.rank) {
            if (!rank.gpu.empty()) gpus.insert(rank.gpu.substr(0, rank.gpu.find(" (")));
            least = least == 0 ? rank.threads : std::min(least, rank.threads);
            most = std::max(most, rank.threads);
        }
        text += fmt::format("- {}: {} rank{} on {} node{}, {} thread{} per rank{}\n", run.name, run.ranks,
                            plural(run.ranks), run.hosts, plural(run.hosts),
                            least == most ? fmt::format("{}", most) : fmt::format("{} to {}", least, most),
                            plural(most), gpus.empty() ? ", no GPU" : fmt::format(", GPUs: {}", fmt::join(gpus, ", ")));
    }
    return text;
}

// Where all ranks had as many: they decide the last bits.
std::string threads_of(const Measurement& run) {
    const std::string threads = run.setting("threads");
    const bool one = !threads.empty() && threads.find_first_not_of("0123456789") == std::string::npos;
    return one ? "OMP_NUM_THREADS=" + threads + " " : "";
}

std::string commands_of(const std::vector<Measurement>& runs) {
    std::string text;
    for (const Measurement& run : runs)
        text += fmt::format("    {}mpirun -np {} lockstep train descriptions/{}.toml      # or srun, jobs/launch\n",
                            threads_of(run), run.ranks, run.name);
    return text;
}

std::string draft(const std::vector<Measurement>& runs) {
    double all = 0;
    std::string names;
    for (const Measurement& run : runs) {
        if (std::isfinite(run.total_seconds)) all += run.total_seconds;
        names += " " + run.path;
    }
    const std::string commits = setting_of(runs, "commit");
    std::string text = "# Artifact description (draft)\n\n";
    text += fmt::format("Generated from the traces of {} run{}. The authors must fill in what is in [brackets].\n\n",
                        runs.size(), plural(runs.size()));
    if (commits.find('+') != std::string::npos)
        text += "**A commit that ends in + had changes that were not committed: nobody else can build it.**\n\n";
    if (commits.find("; ") != std::string::npos) text += "**The runs come from different commits.**\n\n";
    text +=
        "## Overview\n\n[The paper's contributions, C1, C2 …]\n\n"
        "| artifact | contributions | figures and tables |\n|---|---|---|\n| A1: training runs | [C1] | [Figure 1] |\n\n"
        "## Artifact A1\n\n### Relation to contributions\n\n[What these runs show.]\n\n### Expected results\n\n";
    text += without_empty_columns(results_of(runs)).print(TableFormat::markdown);
    text +=
        "\nStep: the slowest rank's time, median over the steps that count (docs/analysis.md). Losses are bitwise reproducible with "
        "the same program, ranks, threads, processor and libraries; otherwise they agree to the precision of the "
        "arithmetic. Times depend on the machine.\n\n### Expected reproduction time\n\nSetup: [minutes to build and to "
        "prepare the data]. Execution: ";
    text += fmt::format("{} minutes on a machine like this, one run after the other. Analysis: less than a minute.\n\n",
                        minutes(all));
    text += times_of(runs).print(TableFormat::markdown);
    text += "\n### Hardware\n\n" + hardware_of(runs) +
            "- [processor, memory, network: `lscpu`, `lockstep topo` and `lockstep doctor` show them]\n";
    text += fmt::format(
        "\n### Software\n\n- lockstep {}, commit {}\n- [compiler: `lockstep --version`; MPI, HDF5, CUDA, NCCL: `module "
        "list`, or the package manager]\n",
        setting_of(runs, "program_version"), commits);
    const std::string train = setting_of(runs, "data.train"), validation = setting_of(runs, "data.validation");
    text += fmt::format("\n### Datasets and inputs\n\n- `data.train`: {}\n", train.empty() ? "[unknown]" : train);
    if (!validation.empty()) text += "- `data.validation`: " + validation + "\n";
    if (const std::string from = setting_of(runs, "init.from"); !from.empty())
        text += "- parameters from: " + from + "\n";
    text += "- [where to get them, their licence, `sha256sum`]\n- seeds: " + setting_of(runs, "run.seed") + "\n";
    text += fmt::format(
        "\n### Installation\n\n    git checkout {}\n    make install PREFIX=$HOME/lockstep\n\n### Execution\n\nThe "
        "resolved description of each run is `run.toml` in its folder; ship it with the artifact as "
        "`descriptions/NAME.toml`.\n\n",
        commits.empty() || commits.starts_with("unknown") ? "[the commit]"
                                                          : commits.substr(0, commits.find_first_of("+;")));
    text += commands_of(runs);
    text += fmt::format(
        "\nT1 (training) takes the description and the data and writes `runs/NAME` with the trace; T2 (analysis) reads "
        "the traces. T1 → T2.\n\n### Analysis\n\n    lockstep-analyze {}{}\n    lockstep-analyze report{} --out report.html\n",
        runs.size() > 1 ? "scaling" : "summary", names, names);
    return text;
}

int run_artifact(const Options& options) {
    const std::vector<Measurement> runs = load_measurements(options.load);
    for (const Measurement& run : runs)
        if (run.imported) throw usage_error("{} was imported from a table; give only runs of lockstep", run.path);
    Output output(options.file);
    output.write(draft(runs));
    output.finish();
    return 0;
}

}  // namespace

void add_artifact(CLI::App& program, Action& action) {
    auto options = std::make_shared<Options>();
    CLI::App* command =
        program.add_subcommand("artifact", "Draft a paper's artifact description from the runs it reports");
    add_load_options(*command, options->load);
    command->add_option("--out", options->file, "The file to write, Markdown [stdout]");
    command->footer(
        "Hardware, software, inputs, commands, expected results and times, in the order SC asks for them.\n"
        "  lockstep-analyze artifact runs/g1 runs/g2 runs/g4 --out artifact.md");
    command->callback([options, &action] { action = [options] { return run_artifact(*options); }; });
}

}  // namespace lockstep::analysis
