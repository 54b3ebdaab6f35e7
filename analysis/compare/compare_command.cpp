// lockstep-analyze compare: two runs, phase by phase and as a whole step.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "analysis/command.hpp"
#include "analysis/compare/compare.hpp"
#include "analysis/load/load.hpp"
#include "analysis/output/page.hpp"
#include "analysis/output/values.hpp"
#include "base/error.hpp"
#include "base/format.hpp"

namespace lockstep::analysis {
namespace {

struct Options {
    LoadOptions load;
    std::string slower_than;
    std::string format = "text";
};

Table run_table(const Comparison& comparison) {
    Table table({{"letter", ""},
                 {"name", "run"},
                 {"ranks", "ranks"},
                 {"steps", "steps"},
                 {"warm_up", "warm-up left out"},
                 {"rate", "tokens/s, mean", 0},
                 {"peak", "peak memory, MiB", 1}});
    constexpr double mib = 1 << 20;
    for (const ComparedRun* run : {&comparison.a, &comparison.b})
        table.add_row({std::string(run == &comparison.a ? "A" : "B"), run->name, run->ranks,
                       run->imported ? Cell() : Cell(run->steps), run->imported ? Cell() : Cell(run->warm_up),
                       known_whole(run->tokens_per_second),
                       run->peak > 0 ? Cell(static_cast<double>(run->peak) / mib) : Cell()});
    return table;
}

std::string at_step(const char* what, std::int64_t step) {
    return fmt::format("{} at step {}", what, with_commas(step));
}

// Without the columns that neither run fills.
Table loss_table(const Comparison& comparison) {
    struct Row {
        std::string letter;
        const ComparedRun& run;
    };
    using Of = std::optional<Validation> ComparedRun::*;
    const auto cell = [](Of of, auto value) {
        return [of, value](const Row& row) { return row.run.*of ? value(*(row.run.*of)) : Cell(); };
    };
    const auto loss = [](const Validation& one) { return known_fixed(one.loss); };
    const auto bits = [](const Validation& one) { return known_fixed(one.bits_per_byte); };
    const auto step = [](const Validation& one) { return Cell(one.step); };
    constexpr Of common = &ComparedRun::common_validation, last = &ComparedRun::last_validation,
                 best = &ComparedRun::best_validation;
    const std::int64_t validated = comparison.a.common_validation ? comparison.a.common_validation->step : 0;
    const std::vector<Field<Row>> fields = {
        {{"letter", ""}, [](const Row& row) { return Cell(row.letter); }},
        {{"loss", at_step("loss", comparison.last_common_step.value_or(0)), 4},
         [](const Row& row) { return known_fixed(row.run.loss); },
         true},
        {{"validation_loss", at_step("validation loss", validated), 4}, cell(common, loss), true},
        {{"bits_per_byte", at_step("bits per byte", validated), 4}, cell(common, bits), true},
        {{"last", "last validation loss", 4}, cell(last, loss), true},
        {{"last_step", "at step"}, cell(last, step), true},
        {{"best", "best validation loss", 4}, cell(best, loss), true},
        {{"best_step", "at step"}, cell(best, step), true}};
    return table_of<Row>({{"A", comparison.a}, {"B", comparison.b}}, fields);
}

std::string page_of(const Comparison& comparison, TableFormat format) {
    Page page(format);
    page.heading(fmt::format("A: {}, B: {}", comparison.a.path, comparison.b.path), true);
    page.table(run_table(comparison));
    page.heading("Time, medians");
    page.table(compare_table(comparison));
    if (comparison.verdict) page.sentence(comparison.verdict->sentence);
    if (const Table losses = loss_table(comparison); losses.columns().size() > 1) {
        page.heading("Losses");
        page.table(losses);
    }
    page.heading("Settings that differ");
    if (comparison.settings.empty()) {
        page.sentence("None.");
    } else {
        Table settings({{"key", "setting"}, {"a", "A"}, {"b", "B"}});
        for (const Difference& difference : comparison.settings)
            settings.add_row({difference.key, difference.values[0], difference.values[1]});
        page.table(settings);
    }
    page.remarks(comparison.remarks);
    return page.text();
}

int run_compare(const Options& options) {
    const TableFormat format = table_format(options.format);
    std::optional<double> allowed;
    if (!options.slower_than.empty()) allowed = share_of_words(options.slower_than);
    const std::vector<std::string> paths = expand_runs(options.load.runs);
    const std::vector<Measurement> runs = load_measurements(options.load);
    if (runs.size() != 2) throw usage_error("compare takes two different runs, A and B, not {}", runs.size());
    const Comparison comparison = compare(runs[0], runs[1], allowed);
    std::string text;
    if (format == TableFormat::json)
        text = json_text(json_of(comparison));
    else if (format == TableFormat::csv)
        text = compare_rows(comparison).print(format);
    else
        text = page_of(comparison, format);
    print(text);
    return static_cast<int>(comparison.verdict && comparison.verdict->slower ? ExitCode::slower : ExitCode::done);
}

}  // namespace

void add_compare(CLI::App& program, Action& action) {
    auto options = std::make_shared<Options>();
    CLI::App* command =
        program.add_subcommand("compare", "Compare two runs phase by phase; exit code 6 if the second is slower");
    add_load_options(*command, options->load);
    command->add_option(
        "--slower-than", options->slower_than,
        "Exit with 6 if B's step is slower than A's by more than this share (5% or 0.05) over the whole interval of B "
        "÷ A (with fewer than 6 steps: by the medians alone)");
    add_format_option(*command, options->format);
    command->footer(
        "The first run is A, the second B. Times are medians with 95 % intervals; the interval of B ÷ A is a\n"
        "bootstrap over blocks of steps (docs/analysis-methods.md). If the steps of A and B differ in tokens, B ÷ A\n"
        "compares seconds per token. A run cannot be compared with its own files, but two files of a run can.\n"
        "  lockstep-analyze compare runs/before runs/after --slower-than 5%");
    command->callback([options, &action] { action = [options] { return run_compare(*options); }; });
}

}  // namespace lockstep::analysis
