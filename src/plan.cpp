// lockstep plan: memory, step time and cost of every layout of a run.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/plural.hpp"
#include "base/whole_file.hpp"
#include "command.hpp"
#include "model/frozen.hpp"
#include "optim/weight_groups.hpp"
#include "plan/fit.hpp"
#include "plan/job_script.hpp"
#include "plan_output.hpp"
#include "train/initial_model.hpp"

namespace lockstep::commands {
namespace {

using namespace config;
using namespace cost;
using namespace plan;

struct Options {
    std::string run, out, fit, evaluate, format = "text";
    std::vector<std::string> settings;
    PlanRequest request;
    std::set<std::string> given;  // options given on the command line
    std::int64_t top = 10;
    std::string write_job, write_run;
};

void write_text(const std::string& path, const std::string& text) {
    write_whole_file(path, text);
    log::info("wrote {}", path);
}

// The command line overrides the file. A device count given there as GPUs or as nodes replaces either in the file.
PlanRequest merged(Options options, PlanRequest file) {
    const std::vector<config::Key> of_command = options.request.keys(), of_file = file.keys();
    if (options.given.count("gpus") + options.given.count("nodes") > 0) {
        file.gpus.clear();
        file.nodes = 0;
    }
    for (std::size_t i = 0; i < of_file.size(); ++i) {
        if (options.given.count(of_file[i].path) == 0) continue;
        std::visit(
            [&](auto to) {
                const auto from = std::get<decltype(to)>(of_command[i].member);
                if constexpr (std::is_same_v<decltype(to), config::Choice>)
                    *to.value = *from.value;
                else if constexpr (std::is_pointer_v<decltype(to)>)
                    *to = *from;
            },
            of_file[i].member);
    }
    return file;
}

Job read_job(const Options& options, const PlanRequest& request) {
    std::vector<ModelLoad> models;
    if (!options.run.empty()) models = read_plan_models(options.run);
    config::RunDescription run = train::read_run(options.run, options.settings, *cluster::make_solo_group());
    if (models.empty()) {
        config::check(run);
        model::check_frozen(run.model);
        optim::check_groups(run.optimizer, run.model);
    }
    if (!models.empty()) {
        if (request.program == "lockstep")
            throw usage_error(
                "{}: [[plan.models]] describes several models in one job, which lockstep does not train; set "
                "plan.program to one of: {}",
                options.run, fmt::join(program_names(), ", "));
        if (run.batch.length == 0)
            throw usage_error("{}: batch.length is missing, and [[plan.models]] have no context", options.run);
        run.model = models.front().shape;
    }
    Job job = job_of(run);
    if (!models.empty()) job.models = std::move(models);
    if (request.program != job.program.name) job.program = program_named(request.program);
    job.ranks_per_node = request.ranks_per_node;
    if (job.run.batch.global < 1) throw usage_error("batch.global is missing: the sequences per step");
    if (job.run.batch.length < 1) throw usage_error("batch.length is missing: the tokens per sequence");
    return job;
}

std::vector<std::int64_t> device_counts(const PlanRequest& request, const Job& job, const Machine& machine) {
    std::vector<std::int64_t> counts = counts_of(request.gpus, "--gpus");
    if (request.nodes > 0) counts.push_back(request.nodes * ranks_per_node(machine, job));
    if (counts.empty())
        throw usage_error("no number of devices given: --gpus N, --gpus 1,2,4 to compare, or --nodes N");
    std::sort(counts.begin(), counts.end());
    counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
    for (const std::int64_t count : counts)
        if (count < 1) throw usage_error("--gpus = {}: it must be at least 1", count);
    return counts;
}

// Checked before the search.
void check_writing(const Options& options, const Job& job) {
    if (options.write_job.empty() && options.write_run.empty()) return;
    if (!job.own_program())
        throw usage_error("--write-job and --write-run work for lockstep only, not for {}", job.program.name);
    if (!options.write_job.empty() && options.write_job != "slurm")
        throw usage_error("--write-job {}: only slurm is supported; jobs/ has scripts for PBS, LSF and Flux to edit",
                          options.write_job);
    for (const char character : options.write_run)
        if (std::isspace(static_cast<unsigned char>(character)) != 0 || character == '\'' || character == '"')
            throw usage_error("--write-run {}: the job script needs a name without blanks or quotation marks",
                              options.write_run);
}

void write_run_and_job(const Options& options, const Job& job, const Machine& machine, const Candidate& best,
                       const Limits& limits) {
    const std::string stem = job.run.run.name.empty() ? "run" : job.run.run.name;
    const std::string run_file = options.write_run.empty() ? stem + ".planned.toml" : options.write_run;
    write_text(run_file, config::to_toml(laid_out(job, best.layout)));
    if (options.write_job.empty()) return;
    JobScript script;
    script.run_file = run_file;
    // The fewest nodes with equal numbers of ranks.
    const std::int64_t per_node = ranks_per_node(machine, job);
    script.nodes = (best.devices + per_node - 1) / per_node;
    while (best.devices % script.nodes != 0) ++script.nodes;
    script.ranks_per_node = best.devices / script.nodes;
    script.gpus = machine.device.kind == config::MachineKind::gpu;
    if (!script.gpus)
        script.cores_per_rank =
            std::max<std::int64_t>(1, static_cast<std::int64_t>(machine.device.per_node) / script.ranks_per_node);
    constexpr double reserve = 1.1, startup = 600, longest = 86400, unknown = 4 * 3600;  // seconds
    script.seconds = best.job.total() > 0 ? std::min(longest, reserve * best.job.total() + startup) : unknown;
    if (limits.seconds > 0) script.seconds = std::min(script.seconds, limits.seconds);
    const std::string path = stem + ".slurm";
    write_text(path, slurm_script(script));
    std::filesystem::permissions(path, std::filesystem::perms::owner_exec, std::filesystem::perm_options::add);
}

int plan_layouts(const Options& options) {
    const PlanRequest request = options.run.empty() ? options.request : merged(options, read_plan_request(options.run));
    if (request.hardware.empty())
        throw usage_error(
            "no machine given: --hardware NAME or FILE; shipped: {}; lockstep bench --calibrate FILE "
            "describes this one",
            fmt::join(machine_names(), ", "));
    PlanOutput output;
    output.machine = read_machine(request.hardware);
    output.job = read_job(options, request);
    if (output.job.ranks_per_node > 0 && output.machine.device.kind == config::MachineKind::gpu) {
        if (static_cast<double>(output.job.ranks_per_node) > output.machine.device.per_node)
            throw usage_error("--ranks-per-node = {} is more than the {} GPU{} of a node", output.job.ranks_per_node,
                              output.machine.device.per_node, plural(output.machine.device.per_node));
        output.machine.device.per_node = static_cast<double>(output.job.ranks_per_node);
    }
    if (!request.within.empty()) output.limits.seconds = seconds_of(request.within, "--within");
    if (output.limits.seconds > 0 && output.job.steps <= 0)
        throw usage_error("--within needs the length of the run: set schedule.steps");
    output.limits.gpu_hours = request.budget_gpu_hours;
    if (output.limits.gpu_hours > 0 && output.job.steps <= 0)
        throw usage_error("--budget needs the length of the run: set schedule.steps");
    output.limits.memory = request.memory_limit_gib * 1073741824.0;
    check_writing(options, output.job);
    output.counts = device_counts(request, output.job, output.machine);
    output.result = search(output.machine, output.job, request, output.counts, output.limits, request.by);
    output.top = options.top;
    print_result(print_plan(output, table_format(options.format)));
    if (output.result.fitting.empty()) throw usage_error("{}", why_none(output));
    if (!options.write_job.empty() || !options.write_run.empty())
        write_run_and_job(options, output.job, output.machine, output.chosen(), output.limits);
    return 0;
}

int evaluate(const Options& options) {
    const auto rows = read_measured_table(options.evaluate);
    const std::string name = options.request.hardware.empty() ? "a100-80-4x100g" : options.request.hardware;
    const Machine machine = read_machine(name);
    print_result(print_judgement(machine, rows, judge(machine, rows), table_format(options.format)));
    return 0;
}

int fit_table(const Options& options) {
    if (options.out.empty()) throw usage_error("--fit writes a machine description: name it with --out FILE.toml");
    const auto rows = read_measured_table(options.fit);
    const std::string name = options.request.hardware.empty() ? "a100-80-4x100g" : options.request.hardware;
    const Machine start = read_machine(name);
    Machine fitted = fit(start, rows);
    constexpr std::size_t folds = 5;
    constexpr double doubtful = 0.1;
    const Judgement crossed = cross_validate(start, rows, folds);
    fitted.origin = fmt::format(
        "fitted to {} rows of {}; in {}-fold cross-validation {:.1f} % mean and {:.1f} % worst error of the step time",
        rows.size(), std::filesystem::path(options.fit).filename().string(), folds, 100 * crossed.mean_absolute_error,
        100 * crossed.worst_error);
    if (crossed.mean_absolute_error > doubtful)
        log::warning("the errors are large ({:.0f} % mean): a row may be mistyped or measured with another program",
                     100 * crossed.mean_absolute_error);
    print_result(print_judgement(fitted, rows, crossed, table_format(options.format)));
    write_text(options.out, to_toml(fitted));
    return 0;
}

CLI::Validator whole_number() {
    return {[](const std::string& text) {
                const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
                return digits && text.size() <= 6 && std::stol(text) > 0
                           ? std::string()
                           : text + ": it must be a whole number from 1 to 999999";
            },
            "COUNT"};
}

CLI::Validator above_zero() {
    return {[](const std::string& text) {
                double value = 0;
                return CLI::detail::lexical_cast(text, value) && std::isfinite(value) && value > 0
                           ? std::string()
                           : text + ": it must be a number above 0";
            },
            "NUMBER"};
}

}  // namespace

void add_plan(CLI::App& program, Action& action) {
    auto* command = program.add_subcommand(
        "plan",
        "Price every layout of a run: memory, step time, job time, GPU-hours; recommend the best and say "
        "why. Exit code 2 if none fits.");
    auto options = std::make_shared<Options>();
    PlanRequest& request = options->request;
    request.hardware.clear();
    command->add_option("RUN.toml", options->run, "Run description (TOML); its section [plan] may hold these options");
    command->add_option("--set", options->settings, "Override a key of the description, as for train");
    command->add_option("--gpus,--ranks", request.gpus, "Devices to use; several counts are compared: 1,2,4");
    command->add_option("--nodes", request.nodes, "Whole nodes instead")->check(whole_number());
    command->add_option("--ranks-per-node", request.ranks_per_node, "Ranks per node (default: one per GPU or CPU core)")
        ->check(whole_number());
    command->add_option("--hardware", request.hardware, "Machine: a shipped description's name, or a file");
    command->add_option("--program", request.program, "Program whose memory and time to predict: lockstep or another");
    command->add_option("--within", request.within, "Time limit of the job: 12h, 90m, 1d12h");
    command->add_option("--budget", request.budget_gpu_hours, "Budget in GPU-hours")->check(above_zero());
    command->add_option("--memory-limit", request.memory_limit_gib, "GiB that may be used, per GPU, on CPUs per node")
        ->check(above_zero());
    command
        ->add_option_function<std::string>(
            "--by",
            [&request](const std::string& word) { request.by = config::from_word<config::PlanOrder>(word, "--by"); },
            "Sort by time, tokens (per second) or gpu-hours")
        ->check(CLI::IsMember({"time", "tokens", "gpu-hours"}));
    struct Axis {
        const char *name, *meaning;
        std::string* values;
    };
    for (const Axis& axis : {Axis{"--tensor", "Ranks that share each layer", &request.tensor},
                             {"--pipeline", "Pipeline stages", &request.pipeline},
                             {"--context", "Ranks that share each sequence", &request.context},
                             {"--micro", "Sequences per micro-batch", &request.micro},
                             {"--interleave", "Model chunks per pipeline stage", &request.interleave},
                             {"--zero", "ZeRO stages, 0 to 3", &request.zero},
                             {"--sequence", "Sequence parallelism: true, false", &request.sequence},
                             {"--recompute", "Recomputation: none, cheap, selective, full", &request.recompute}})
        command->add_option(axis.name, *axis.values, axis.meaning)
            ->group("Layouts (values separated by commas; default: all possible ones)");
    command->add_option("--top", options->top, "Number of layouts to list")->check(CLI::Range(1, 1000));
    command->add_option("--write-run", options->write_run, "Write the best layout's run description to this file");
    command->add_option("--write-job", options->write_job, "Also write a job script: slurm");
    command->add_option("--fit", options->fit, "Fit the machine description to this table of measured steps (CSV)")
        ->group("Measured steps");
    command->add_option("--out", options->out, "Where --fit writes the description")->group("Measured steps");
    command
        ->add_option("--evaluate", options->evaluate,
                     "Evaluate a machine description against this table (CSV); default a100-80-4x100g")
        ->group("Measured steps");
    command->add_option("--format", options->format, "text, markdown, csv or json");
    command->callback([options, command, &action] {
        // Options whose names differ from their keys in [plan].
        const std::map<std::string, std::string> keys = {
            {"budget", "budget_gpu_hours"}, {"memory_limit", "memory_limit_gib"}, {"ranks", "gpus"}};
        for (const CLI::Option* option : command->get_options()) {
            std::string key = option->get_single_name();
            std::replace(key.begin(), key.end(), '-', '_');
            const auto other = keys.find(key);
            if (option->count() > 0) options->given.insert(other == keys.end() ? key : other->second);
        }
        action = [options] {
            const bool table = !options->fit.empty() || !options->evaluate.empty();
            if (table && (!options->run.empty() || options->given.count("gpus") + options->given.count("nodes") > 0))
                throw usage_error("--fit and --evaluate read a table; they take no run description, --gpus or --nodes");
            if (!options->fit.empty() && !options->evaluate.empty())
                throw usage_error("give --fit or --evaluate, not both");
            if (!options->fit.empty()) return fit_table(*options);
            if (!options->evaluate.empty()) return evaluate(*options);
            return plan_layouts(*options);
        };
    });
}

}  // namespace lockstep::commands
