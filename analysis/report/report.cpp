// lockstep-analyze report: one page with plots, tables and how each figure was computed.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "analysis/command.hpp"
#include "analysis/load/load.hpp"
#include "analysis/report/gnuplot.hpp"
#include "analysis/report/report.hpp"
#include "analysis/report/text.hpp"
#include "analysis/scaling/scaling_command.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/plural.hpp"
#include "base/whole_file.hpp"

namespace lockstep::analysis {
namespace {

struct Options {
    LoadOptions load;
    ScalingOptions scaling;
    std::string out = "report.html", plots, title, prediction;  // no title: title_of
};

// Quoted for a shell.
std::string quoted(const std::string& word) {
    const char* plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
    if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
    std::string out = "'";
    for (const char letter : word) out += letter == '\'' ? "'\\''" : std::string(1, letter);
    return out + "'";
}

std::string command_line_of(const Options& options) {
    std::string line = "lockstep-analyze report";
    for (const std::string& run : options.load.runs) line += " " + quoted(run);
    line += " --out " + quoted(options.out);
    if (!options.plots.empty()) line += " --plots " + quoted(options.plots);
    if (!options.title.empty()) line += " --title " + quoted(options.title);
    if (options.load.measure.warm_up >= 0) line += fmt::format(" --warm-up {}", options.load.measure.warm_up);
    const ScalingOptions& scaling = options.scaling;
    if (scaling.kind != "auto") line += " --kind " + scaling.kind;
    if (!scaling.ignored.empty()) line += " --ignore " + quoted(fmt::format("{}", fmt::join(scaling.ignored, ",")));
    if (scaling.base_ranks > 0) line += fmt::format(" --base {}", scaling.base_ranks);
    if (!scaling.laws.empty()) line += fmt::format(" --laws {}", fmt::join(scaling.laws, ","));
    if (!scaling.predict_at.empty()) line += fmt::format(" --predict {}", fmt::join(scaling.predict_at, ","));
    if (!options.prediction.empty()) line += " --prediction " + quoted(options.prediction);
    return line;
}

std::string title_of(const Options& options, const std::vector<Measurement>& measurements) {
    if (!options.title.empty()) return options.title;
    return measurements.size() == 1 ? measurements.front().name : "How the runs scale";
}

int run_report(const Options& options) {
    Report report;
    report.command_line = command_line_of(options);
    report.scaling = scaling_or_none(load_measurements(options.load), options.scaling);
    report.title = title_of(options, report.scaling.measurements);
    if (!options.prediction.empty()) {
        report.prediction = read_prediction(options.prediction);
        report.comparison =
            compare_prediction(*report.prediction, report.scaling.measurements, options.scaling.ignored);
    }
    std::size_t drawn = 0;
    Draw draw;
    if (gnuplot_found())
        draw = [&](const Plot& plot) {
            if (!options.plots.empty()) write_plot(options.plots, plot);
            ++drawn;
            return lockstep::analysis::draw(plot);
        };
    const std::string page = report_page(report, draw);
    write_whole_file(options.out, page);
    if (!draw) log::warning("gnuplot was not found: {} has no plots; install gnuplot and rerun", options.out);
    fmt::print("{}: {} plot{}, {}\n", options.out, drawn, plural(drawn), human_bytes(static_cast<double>(page.size())));
    if (!options.plots.empty() && drawn > 0)
        fmt::print("{}: each plot as .svg, with its data (.dat) and its gnuplot script (.gp)\n", options.plots);
    return 0;
}

}  // namespace

void add_report(CLI::App& program, Action& action) {
    auto options = std::make_shared<Options>();
    CLI::App* command =
        program.add_subcommand("report", "Write one page with plots, tables and how each figure was computed");
    add_load_options(*command, options->load);
    command->add_option("--out", options->out, "The page (HTML)")->capture_default_str();
    command->add_option("--plots", options->plots,
                        "Also write the plots as files to this folder, with their data and scripts");
    command->add_option("--title", options->title,
                        "The page's title (default: How the runs scale; of a single run, its name)");
    add_scaling_options(*command, options->scaling);
    add_prediction_option(*command, options->prediction);
    command->footer(
        "The page needs no network and no other file. The plots are drawn by gnuplot, if it is installed.\n"
        "  lockstep-analyze report runs/g1 runs/g2 runs/g4 --out report.html --plots plots");
    command->callback([options, &action] { action = [options] { return run_report(*options); }; });
}

}  // namespace lockstep::analysis
