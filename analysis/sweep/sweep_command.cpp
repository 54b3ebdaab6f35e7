// lockstep-analyze sweep: runs over two settings, such as batch and accumulation, and the best of them.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "analysis/command.hpp"
#include "analysis/load/load.hpp"
#include "analysis/output/page.hpp"
#include "analysis/output/values.hpp"
#include "analysis/sweep/sweep.hpp"

namespace lockstep::analysis {
namespace {

struct Options {
    LoadOptions load;
    std::vector<std::string> keys = {"batch", "accumulation"};
    std::string format = "text";
};

std::string page_of(const Sweep& sweep, TableFormat format) {
    Page page(format);
    page.heading(fmt::format("{} × {}", sweep.keys[0], sweep.keys[1]), true);
    page.table(sweep_times(sweep));
    for (const std::string& sentence : sweep.sentences) page.sentence(sentence);
    const Table phases = sweep_phases(sweep);
    if (phases.columns().size() > sweep.keys.size()) {
        page.heading("Phases, mean over ranks: seconds over the whole run, milliseconds per call");
        page.table(phases);
    }
    page.remarks(sweep.remarks);
    return page.text();
}

int run_sweep(const Options& options) {
    const TableFormat format = table_format(options.format);
    const Sweep sweep = sweep_of(load_measurements(options.load), options.keys);
    std::string text;
    if (format == TableFormat::json)
        text = json_text(json_of(sweep));
    else if (format == TableFormat::csv)
        text = sweep_rows(sweep).print(format);
    else
        text = page_of(sweep, format);
    print(text);
    return 0;
}

}  // namespace

void add_sweep(CLI::App& program, Action& action) {
    auto options = std::make_shared<Options>();
    CLI::App* command = program.add_subcommand("sweep", "Compare runs over a grid of two settings, and name the best");
    add_load_options(*command, options->load);
    command->add_option("--by", options->keys, "Two settings: batch,accumulation or model.width,batch.length")
        ->delimiter(',')
        ->capture_default_str();
    add_format_option(*command, options->format);
    command->footer(
        "total: the whole run, slowest rank; train: time in steps, slowest rank; epoch: without initialization,\n"
        "validation and checkpoints, mean over ranks. The step time is the median, without warm-up. For equal work,\n"
        "only the seconds in steps are scaled by the tokens.\n"
        "  lockstep-analyze sweep runs/b16a64 runs/b32a32 runs/b64a16\n"
        "  lockstep-analyze sweep runs/ --by ranks,batch.micro --format csv");
    command->callback([options, &action] { action = [options] { return run_sweep(*options); }; });
}

}  // namespace lockstep::analysis
