// lockstep-analyze export: traces in the formats of other tools.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <map>

#include "analysis/command.hpp"
#include "analysis/exchange/formats.hpp"
#include "analysis/load/guard.hpp"
#include "analysis/load/load.hpp"
#include "base/error.hpp"

namespace lockstep::analysis {
namespace {

namespace fs = std::filesystem;

struct Options {
    LoadOptions load;
    std::string format, file;
};

trace::Run only_run(const Options& options) {
    const std::vector<std::string> runs = expand_runs(options.load.runs);
    if (runs.size() != 1)
        throw usage_error("--to {} takes one run, not {}; export them one by one", options.format, runs.size());
    return reading(runs[0], Reading::structure, [&] { return trace::open_run(runs[0]); });
}

void export_one(const Options& options, void (*write)(const trace::Run&, Output&)) {
    const trace::Run run = only_run(options);
    Output output(options.file);
    reading(run.path, Reading::rows, [&] { write(run, output); });
    output.finish();
}

void export_to_otf2(const Options& options) {
    if (!has_otf2())
        throw usage_error(
            "this lockstep-analyze was built without OTF2; install OTF2 3 (Debian: libopen-trace-format2-dev) and "
            "rebuild, or export --to chrome");
    if (options.file.empty()) throw usage_error("--to otf2 writes a folder; name it with --out");
    const trace::Run run = only_run(options);
    OutputFolder folder(options.file);
    reading(run.path, Reading::rows, [&] { write_otf2(run, folder); });
    folder.finish();
}

void export_to_tensorboard(const Options& options) {
    if (options.file.empty())
        throw usage_error("--to tensorboard writes a folder for each run; name their parent folder with --out");
    std::map<std::string, std::string> run_of;  // by the run's folder below --out
    for (const std::string& path : expand_runs(options.load.runs)) {
        const trace::Run run = reading(path, Reading::structure, [&] { return trace::open_run(path); });
        const std::string file = tensorboard_path(run, options.file);
        const std::string folder = fs::path(file).parent_path().string();
        const auto [other, is_new] = run_of.emplace(folder, path);
        if (!is_new)
            throw usage_error("{} and {} are runs of the same name; export one of them to another folder",
                              other->second, path);
        std::error_code problem;
        fs::create_directories(folder, problem);
        if (problem) throw usage_error("the folder {} cannot be created: {}", folder, problem.message());
        Output output(file);
        reading(path, Reading::rows, [&] { write_tensorboard(run, output); });
        output.finish();
    }
}

int run_export(const Options& options) {
    if (options.format == "chrome") export_one(options, write_chrome_trace);
    if (options.format == "otf2") export_to_otf2(options);
    if (options.format == "csv") export_one(options, write_csv);
    if (options.format == "mllog") export_one(options, write_mllog);
    if (options.format == "tensorboard") export_to_tensorboard(options);
    if (options.format == "extra-p") {
        const std::vector<Measurement> measurements = load_measurements(options.load);
        Output output(options.file);
        write_extra_p(measurements, output);
        output.finish();
    }
    return 0;
}

}  // namespace

#ifdef LOCKSTEP_OTF2
bool has_otf2() {
    return true;
}
#else
bool has_otf2() {
    return false;
}
void write_otf2(const trace::Run&, const OutputFolder&) {
    LOCKSTEP_ASSERT(has_otf2());
}
#endif

void add_export(CLI::App& program, Action& action) {
    auto options = std::make_shared<Options>();
    CLI::App* command = program.add_subcommand(
        "export", "Write traces for Perfetto, spreadsheets, TensorBoard, MLPerf, Extra-P or OTF2 readers");
    add_load_options(*command, options->load);
    command
        ->add_option("--to", options->format,
                     "chrome (for Perfetto), otf2, csv, tensorboard, mllog (MLPerf log lines) or extra-p")
        ->required()
        ->check(CLI::IsMember({"chrome", "otf2", "csv", "tensorboard", "mllog", "extra-p"}));
    command->add_option("--out", options->file, "The file to write [stdout]; the folder for otf2 and tensorboard");
    command->footer(
        "chrome, otf2, csv and mllog take one run; extra-p takes several, at different numbers of ranks, and leaves out\n"
        "the warm-up. chrome and otf2 hold the steps sampled with events, csv a line for each step, rank and region.\n"
        "otf2 writes a new folder with the archive traces.otf2. tensorboard takes any number of runs and writes a\n"
        "folder for each.");
    command->callback([options, &action] { action = [options] { return run_export(*options); }; });
}

}  // namespace lockstep::analysis
