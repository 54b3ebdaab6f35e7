// lockstep-analyze predict: scaling curves to many ranks from runs on a few.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "analysis/command.hpp"
#include "analysis/load/load.hpp"
#include "analysis/output/page.hpp"
#include "analysis/predict/observations.hpp"
#include "analysis/predict/prediction.hpp"
#include "base/clock.hpp"
#include "base/command_line.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/plural.hpp"
#include "base/version.hpp"
#include "base/whole_file.hpp"

namespace lockstep::analysis {
namespace {

struct Options {
    LoadOptions load;
    PredictOptions predict;
    std::string hardware, out, format = "text";
    bool strong_alone = false, weak_alone = false;
};

std::string command_line_of(const Options& options) {
    std::string line = "lockstep-analyze predict";
    for (const std::string& run : options.load.runs) line += " " + run;
    line += " --hardware " + options.hardware;
    if (options.load.measure.warm_up >= 0) line += fmt::format(" --warm-up {}", options.load.measure.warm_up);
    const PredictOptions& predict = options.predict;
    if (!predict.ranks.empty())
        line += fmt::format(" --ranks {}", fmt::join(predict.ranks, ","));
    else
        line += fmt::format(" --to {:g}", predict.to);
    if (!predict.weak) line += " --strong";
    if (!predict.strong) line += " --weak";
    if (predict.batch > 0) line += fmt::format(" --batch {}", predict.batch);
    if (predict.ranks_per_node > 0) line += fmt::format(" --ranks-per-node {}", predict.ranks_per_node);
    if (!predict.ignored.empty()) line += fmt::format(" --ignore {}", fmt::join(predict.ignored, ","));
    return line;
}

PredictionFile predict(const Options& options) {
    config::Machine machine = config::read_machine(options.hardware);
    const std::vector<Measurement> all = load_measurements(options.load);
    const Observations seen = observe(all, machine, options.predict);
    PredictionFile prediction;
    prediction.scaling = predict_scaling(seen.program, seen.terms, machine, seen.steps, seen.curves);
    prediction.made = utc_now();
    prediction.program_version = version();
    prediction.commit = commit();
    prediction.command_line = command_line_of(options);
    prediction.unit = seen.unit;
    prediction.hardware = machine.name;
    prediction.hardware_origin = machine.origin;
    for (const config::Key& key : machine.keys())
        if (auto* const* number = std::get_if<double*>(&key.member))
            prediction.hardware_numbers.emplace_back(key.path, **number);
    prediction.model_ranks = seen.program.model_ranks();
    prediction.ranks_per_node = seen.program.ranks_per_node;
    prediction.settings = all[seen.runs.back()].settings;
    prediction.remarks = seen.remarks;
    for (std::size_t i = 0; i < seen.runs.size(); ++i) {
        const Measurement& run = all[seen.runs[i]];
        prediction.runs.push_back({run.name, run.path, seen.steps[i].ranks, seen.steps[i].nodes, seen.steps[i].batch,
                                   seen.steps[i].seconds, run.started});
        for (const std::string& remark : run.remarks) prediction.remarks.push_back(run.name + ": " + remark);
    }
    return prediction;
}

std::string page_of(const PredictionFile& prediction, TableFormat format) {
    Page page(format);
    for (const auto& curve : prediction.scaling.curves) {
        page.heading(curve_title(curve, prediction.model_ranks) + ", predicted", true);
        page.sentence(fmt::format("Base case: {:g} rank{}, {:.4g} s per {}. {:g} rank{} per node of {}.",
                                  curve.request.base_ranks, plural(curve.request.base_ranks),
                                  curve.request.base_seconds, prediction.unit, prediction.ranks_per_node,
                                  plural(prediction.ranks_per_node), prediction.hardware));
        page.table(prediction_table(curve, prediction.unit));
        for (const std::string& remark : curve.remarks) page.sentence(remark);
        page.heading("Breakdown");
        page.table(parts_table(curve, prediction.unit));
    }
    page.heading("Fitted parameters", true);
    page.table(numbers_table(prediction));
    page.heading("Cross-validation: each number of ranks predicted from the others");
    page.table(left_out_table(prediction));
    std::set<double> counts;
    for (const auto& run : prediction.runs) counts.insert(run.ranks);
    page.sentence(fmt::format(
        "Every interval includes this error ({:.1f} %), the scatter of the steps, and the uncertainty left by {} "
        "numbers of ranks.",
        100 * prediction.scaling.left_out_error, counts.size()));
    page.remarks(prediction.remarks);
    return page.text();
}

int run_predict(const Options& options) {
    const TableFormat format = table_format(options.format);
    const PredictionFile prediction = predict(options);
    const std::string json = json_text(json_of(prediction));
    if (!options.out.empty()) write_whole_file(options.out, json);
    if (format == TableFormat::json) {
        print(json);
    } else if (format == TableFormat::csv) {
        print(prediction_rows(prediction).print(format));
        for (const auto& curve : prediction.scaling.curves)
            for (const std::string& remark : curve.remarks) log::warning("{}", remark);
        for (const std::string& remark : prediction.remarks) log::warning("{}", remark);
    } else {
        print(page_of(prediction, format));
    }
    return 0;
}

}  // namespace

void add_predict(CLI::App& program, Action& action) {
    auto options = std::make_shared<Options>();
    CLI::App* command =
        program.add_subcommand("predict", "Predict scaling curves to many ranks from runs on a few, with intervals");
    add_load_options(*command, options->load);
    PredictOptions& predict = options->predict;
    command
        ->add_option("--hardware", options->hardware,
                     "The machine to predict for: a description of its nodes and network (TOML)")
        ->required();
    auto* ranks = command->add_option("--ranks", predict.ranks, "Numbers of ranks to predict: 64,512,4096")
                      ->delimiter(',')
                      ->check(above_zero());
    command->add_option("--to", predict.to, "The largest number of ranks to predict; smaller ones by doubling")
        ->check(CLI::Range(1.0, 1e7))
        ->capture_default_str()
        ->excludes(ranks);
    auto* strong = command->add_flag("--strong", options->strong_alone, "Strong scaling only: the same batch");
    auto* weak =
        command->add_flag("--weak", options->weak_alone, "Weak scaling only: a batch that grows with the ranks");
    strong->excludes(weak);
    command
        ->add_option("--batch", predict.batch,
                     "Sequences per step of the strong scaling curve [each batch measured on two numbers of ranks]")
        ->check(above_zero());
    command
        ->add_option("--ranks-per-node", predict.ranks_per_node,
                     "Ranks on each node [as many as it has devices, or cores for]")
        ->check(above_zero());
    command
        ->add_option("--ignore", predict.ignored, "Settings that may differ between the runs: model.width,batch.length")
        ->delimiter(',');
    command->add_option("--out", options->out,
                        "Write the prediction to this file (JSON), for scaling and report --prediction");
    add_format_option(*command, options->format);
    command->footer(
        "The runs must be of one program, on two or more numbers of ranks. docs/scaling-prediction.md has the method.\n"
        "  lockstep-analyze predict runs/g1 runs/g2 runs/g4 --hardware machine.toml --to 10000 --out prediction.json\n"
        "  lockstep-analyze report runs/g* --prediction prediction.json");
    command->callback([options, &action] {
        options->predict.strong = !options->weak_alone;
        options->predict.weak = !options->strong_alone;
        for (const double count : options->predict.ranks)
            if (count != std::floor(count))
                throw CLI::ValidationError("--ranks", fmt::format("{} is not a number of ranks", count));
        action = [options] { return run_predict(*options); };
    });
}

}  // namespace lockstep::analysis
