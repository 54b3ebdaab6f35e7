// lockstep-analyze summary: what a run was, where each rank's time went, how fast and how large it was.
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "analysis/command.hpp"
#include "analysis/load/guard.hpp"
#include "analysis/load/load.hpp"
#include "analysis/output/page.hpp"
#include "analysis/output/values.hpp"
#include "analysis/summary/summary.hpp"
#include "base/format.hpp"
#include "base/json_text.hpp"
#include "base/table.hpp"

namespace lockstep::analysis {
namespace {

struct Options {
    std::vector<std::string> runs;
    std::string format = "text", per = "run", ranks = "auto";
};

constexpr auto forward = static_cast<std::size_t>(Phase::forward), other = static_cast<std::size_t>(Phase::other);
constexpr std::size_t few_ranks =
    16;  // up to so many, every rank of every epoch or step is shown unless told otherwise
constexpr std::size_t many_ranks = 1024;  // up to so many, every rank of the whole run

Summary summarise(const std::string& path, const Options& options) {
    const trace::Run run = reading(path, Reading::structure, [&] { return trace::open_run(path); });
    std::size_t ranks = 0;
    for (const auto& part : run.parts) ranks = std::max(ranks, part.file.ranks());
    const bool every_rank = options.ranks == "all" || (options.ranks == "auto" && ranks <= few_ranks);
    MeasureOptions wanted;
    wanted.figures.emplace();
    wanted.figures->ranks_of_epochs = every_rank;
    wanted.figures->ranks_of_steps = every_rank && options.per == "step";
    Measurement measurement = reading(path, Reading::rows, [&] { return measure(run, wanted); });
    return {configuration_of(run),
            launches_of(run),
            status_of(run),
            path,
            std::move(*measurement.figures),
            options.ranks == "all" || ranks <= many_ranks};
}

// An integer where possible: a mean over ranks may be fractional.
Cell calls_cell(double calls) {
    if (calls == std::floor(calls)) return static_cast<std::int64_t>(calls);
    return calls;
}

// Empty if tokens are unknown.
Cell rate_cell(double rate) {
    return rate > 0 ? known_whole(rate) : Cell();
}

Cell mean_cell(const PhaseSums& sums, std::size_t phase, double unit) {
    if (sums.calls[phase] > 0) return mean_per_call(sums, phase) / unit;
    return {};
}

constexpr double millisecond = 1e-3;

// One line of the phase tables: a rank's or the mean's, of the run, an epoch or a step.
struct Line {
    Cell run;
    std::int64_t span = 0;
    Cell rank;
    const PhaseSums* sums = nullptr;
    double loss = 0, tokens_per_second = 0;
    std::int64_t steps = 0;
    Validations validations{};  // in the mean's line: they are of the model
    Cell peak{};
};

// Without ranks that took no part.
std::vector<Line> lines_of(const Summary& summary, const std::string& per) {
    std::vector<Line> lines;
    const RunFigures& figures = summary.figures;
    const Cell& run = summary.configuration.front().value;
    const auto add = [&](const SpanFigures& span, const auto& ranks) {
        for (std::size_t r = 0; r < ranks.size(); ++r)
            if (ranks[r].steps > 0 || span.steps == 0)
                lines.push_back({run,
                                 span.number,
                                 static_cast<std::int64_t>(r),
                                 &ranks[r].phases,
                                 ranks[r].loss.value(),
                                 ranks[r].tokens_per_second(),
                                 ranks[r].steps,
                                 {},
                                 {}});
        lines.push_back({run,
                         span.number,
                         std::string("mean"),
                         &span.mean,
                         span.loss.value(),
                         tokens_per_second_of_a_rank(span),
                         span.steps,
                         span.validations,
                         {}});
    };
    if (per == "run") {
        std::uint64_t most = 0;
        if (summary.ranks_of_run)
            add(figures.all, figures.ranks);
        else
            add(figures.all, std::vector<RankFigures>());
        for (Line& line : lines)
            if (const auto* rank = std::get_if<std::int64_t>(&line.rank))
                line.peak = static_cast<std::int64_t>(figures.ranks[static_cast<std::size_t>(*rank)].peak);
        for (const RankFigures& rank : figures.ranks) most = std::max(most, rank.peak);
        lines.back().peak = static_cast<std::int64_t>(most);
        return lines;
    }
    for (const SpanFigures& span : per == "epoch" ? figures.epochs : figures.steps) add(span, span.ranks);
    return lines;
}

std::vector<Column> key_columns(const std::string& per) {
    std::vector<Column> columns;
    if (per != "run") columns.push_back({per, per});
    columns.push_back({"rank", "rank"});
    return columns;
}

std::vector<Cell> key_cells(const std::string& per, const Line& line) {
    std::vector<Cell> cells;
    if (per != "run") cells.emplace_back(line.span);
    cells.push_back(line.rank);
    return cells;
}

// A line's last validation, and its best where it may have several. A column without any is left out.
std::vector<Field<Line>> validation_fields(bool several) {
    using Value = Cell (*)(const Validation&);
    struct Named {
        const char* name;
        Value value;
    };
    constexpr Value step = [](const Validation& one) { return Cell(one.step); };
    constexpr Value loss = [](const Validation& one) { return Cell(one.loss); };
    const std::vector<Named> last = {
        {"validation_step", step},
        {"validation_loss", loss},
        {"validation_bits_per_byte", [](const auto& one) { return known(one.bits_per_byte); }},
        {"validation_tokens", [](const auto& one) { return Cell(one.tokens); }}};
    const std::vector<Named> best = {{"best_validation_step", step}, {"best_validation_loss", loss}};
    std::vector<Field<Line>> fields;
    const auto add = [&](const std::vector<Named>& all, const Validation& (*choose)(const Validations&)) {
        for (const auto& [name, value] : all)
            fields.push_back({{name, ""},
                              [value = value, choose](const Line& line) {
                                  return line.validations.empty() ? Cell() : value(choose(line.validations));
                              },
                              true});
    };
    add(last, [](const Validations& all) -> const Validation& { return all.back(); });
    if (several) add(best, best_of);
    return fields;
}

std::string csv_of(const std::vector<Summary>& summaries, const std::string& per) {
    std::vector<Line> lines;
    for (const Summary& summary : summaries)
        for (Line& line : lines_of(summary, per)) lines.push_back(std::move(line));
    std::vector<Field<Line>> fields = {{{"run", ""}, [](const Line& line) { return line.run; }}};
    if (per != "run") fields.push_back({{per, ""}, [](const Line& line) { return Cell(line.span); }});
    fields.push_back({{"rank", ""}, [](const Line& line) { return line.rank; }});
    fields.push_back({{"steps", ""}, [](const Line& line) { return Cell(line.steps); }});
    for (std::size_t p = 0; p < phase_count; ++p) {
        const std::string name = phase_names[p];
        fields.push_back({{name + "_seconds", ""}, [p](const Line& line) { return Cell(line.sums->seconds[p]); }});
        fields.push_back({{name + "_calls", ""}, [p](const Line& line) { return Cell(line.sums->calls[p]); }});
        fields.push_back({{name + "_mean_seconds", ""}, [p](const Line& line) { return mean_cell(*line.sums, p, 1); }});
    }
    fields.push_back({{"total_seconds", ""}, [](const Line& line) { return Cell(line.sums->total()); }});
    fields.push_back({{"loss", ""}, [](const Line& line) { return known(line.loss); }});
    fields.push_back({{"tokens_per_second", ""}, [](const Line& line) { return Cell(line.tokens_per_second); }});
    if (per == "run") fields.push_back({{"peak_memory_bytes", ""}, [](const Line& line) { return line.peak; }});
    for (const Field<Line>& field : validation_fields(per != "step")) fields.push_back(field);
    return table_of(lines, fields).print(TableFormat::csv);
}

// Seconds, calls and mean per call of every phase: one table each, a line per rank and one for their mean.
void phase_tables(Page& page, const Summary& summary, const std::string& per, const std::string& of) {
    const std::vector<Column> keys = key_columns(per);
    std::vector<Column> second_columns = keys, call_columns = keys, mean_columns = keys;
    std::vector<std::size_t> phases;
    for (std::size_t p = 0; p < phase_count; ++p) {
        if (!summary.figures.measured[p]) continue;
        phases.push_back(p);
        second_columns.push_back({phase_names[p], phase_names[p], 3});
        if (p == other) continue;  // what no call covers
        call_columns.push_back({phase_names[p], phase_names[p], 1});
        mean_columns.push_back({phase_names[p], phase_names[p], 3});
    }
    second_columns.push_back({"total", "total", 3});
    second_columns.push_back({"loss", per == "run" ? "mean loss" : "loss", 4});
    const std::vector<Line> lines = lines_of(summary, per);
    const bool validated = per != "run" && std::any_of(lines.begin(), lines.end(),
                                                       [](const Line& line) { return !line.validations.empty(); });
    if (validated) second_columns.push_back({"validation_loss", "validation loss", 4});
    second_columns.push_back({"tokens_per_second", "tokens/s"});
    Table seconds(second_columns), calls(call_columns), means(mean_columns);
    for (const Line& line : lines) {
        const std::vector<Cell> key = key_cells(per, line);
        std::vector<Cell> second_cells = key, call_cells = key, mean_cells = key;
        for (const std::size_t p : phases) {
            second_cells.emplace_back(line.sums->seconds[p]);
            if (p == other) continue;
            call_cells.push_back(calls_cell(line.sums->calls[p]));
            mean_cells.push_back(mean_cell(*line.sums, p, millisecond));
        }
        second_cells.emplace_back(line.sums->total());
        second_cells.push_back(known(line.loss));
        if (validated)
            second_cells.push_back(line.validations.empty() ? Cell() : known_fixed(line.validations.back().loss));
        second_cells.push_back(rate_cell(line.tokens_per_second));
        seconds.add_row(std::move(second_cells));
        calls.add_row(std::move(call_cells));
        means.add_row(std::move(mean_cells));
    }
    page.heading("Seconds by phase, " + of);
    page.table(seconds);
    if (call_columns.size() == keys.size()) return;  // a table of totals has no calls
    page.heading("Calls by phase, " + of);
    page.table(calls);
    page.heading("Mean per call by phase, milliseconds, " + of);
    page.table(means);
}

void share_table(Page& page, const RunFigures& figures) {
    Table table({{"phase", "phase"},
                 {"seconds", "seconds", 3},
                 {"share", "share, %", 1},
                 {"calls", "calls", 1},
                 {"mean", "mean per call, ms", 3},
                 {"fastest", "fastest rank, s", 3},
                 {"slowest", "slowest rank, s", 3}});
    const PhaseSums& mean = figures.all.mean;
    const double total = mean.total();
    for (std::size_t p = 0; p < phase_count; ++p)
        if (figures.measured[p])
            table.add_row({std::string(phase_names[p]), mean.seconds[p], 100 * share_of(mean.seconds[p], total),
                           calls_cell(mean.calls[p]), mean_cell(mean, p, millisecond), figures.all.fastest[p],
                           figures.all.slowest[p]});
    page.heading("Phases, average over ranks");
    page.table(table);
}

// Where ranks waited: the pipeline's time is idle stages and transfers.
void communication_table(Page& page, const RunFigures& figures) {
    double sum = 0;
    for (const CommunicationKind& kind : figures.communication) sum += kind.mean;
    if (sum <= 0) return;
    Table table({{"kind", "communication"},
                 {"seconds", "seconds", 3},
                 {"share", "share of the total time, %", 2},
                 {"least", "lowest rank, s", 3},
                 {"most", "highest rank, s", 3}});
    for (const CommunicationKind& kind : figures.communication)
        if (kind.most > 0)
            table.add_row(
                {kind.name, kind.mean, 100 * share_of(kind.mean, figures.all.mean.total()), kind.least, kind.most});
    page.heading("Communication and waiting by kind, average over ranks");
    page.table(table);
}

void launch_table(Page& page, const Summary& summary) {
    Table table({{"launch", "launch"},
                 {"started", "started"},
                 {"first_step", "from step"},
                 {"last_step", "to step"},
                 {"ranks", "ranks"},
                 {"grid", "data x tensor x pipeline x context"},
                 {"hosts", "hosts"},
                 {"threads", "threads per rank"},
                 {"micro_batch", "micro-batch"},
                 {"seconds", "seconds in steps", 3},
                 {"rate", "tokens/s", 0}});
    for (std::size_t i = 0; i < summary.launches.size(); ++i) {
        const Launch& launch = summary.launches[i];
        const SpanFigures& span = summary.figures.launches[i];
        const bool counts = span.steps > 0;
        const auto setting = [&](const char* key) { return launch.settings.at(key); };
        table.add_row({launch.number, setting("started"), counts ? Cell(span.first_step) : Cell(),
                       counts ? Cell(span.last_step) : Cell(), setting("ranks"), setting("grid"), setting("hosts"),
                       setting("threads"), setting("micro_batch"), span.seconds,
                       counts ? Cell(tokens_per_second(span)) : Cell()});
    }
    page.heading("Launches");
    page.table(table);
}

void rank_table(Page& page, const RunFigures& figures) {
    Table table({{"rank", "rank"},
                 {"host", "host"},
                 {"threads", "threads"},
                 {"steps", "steps"},
                 {"first", "first loss", 4},
                 {"last", "last loss", 4},
                 {"mean", "mean loss", 4},
                 {"latency", "forward mean, ms", 3},
                 {"median", "forward median, ms", 3},
                 {"rate", "tokens/s"},
                 {"allocated", "allocated, MiB", 1},
                 {"reserved", "reserved, MiB", 1},
                 {"peak", "peak memory, MiB", 1}});
    constexpr double mib = 1 << 20;
    const auto bytes = [](std::uint64_t count) { return count > 0 ? Cell(static_cast<double>(count) / mib) : Cell(); };
    const auto milliseconds = [](double seconds) { return seconds > 0 ? Cell(1e3 * seconds) : Cell(); };
    for (std::size_t r = 0; r < figures.ranks.size(); ++r) {
        const RankFigures& rank = figures.ranks[r];
        table.add_row({static_cast<std::int64_t>(r), rank.host, rank.threads, rank.steps, known(rank.loss_first),
                       known(rank.loss_last), known(rank.loss.value()),
                       milliseconds(mean_per_call(rank.phases, forward)), milliseconds(rank.forward_median),
                       rate_cell(rank.tokens_per_second()), bytes(rank.allocated), bytes(rank.reserved),
                       bytes(rank.peak)});
    }
    page.heading("Ranks");
    page.table(table);
}

void validation_table(Page& page, const Validations& validations) {
    if (validations.empty()) return;
    struct Row {
        const char* which;
        const Validation& validation;
    };
    const std::vector<Field<Row>> fields = {
        {{"which", "validation"}, [](const Row& row) { return Cell(std::string(row.which)); }},
        {{"step", "step"}, [](const Row& row) { return Cell(row.validation.step); }},
        {{"loss", "loss", 4}, [](const Row& row) { return known_fixed(row.validation.loss); }},
        {{"bits_per_byte", "bits per byte", 4},
         [](const Row& row) { return known_fixed(row.validation.bits_per_byte); },
         true},
        {{"tokens", "tokens"}, [](const Row& row) { return Cell(row.validation.tokens); }}};
    page.heading(validations.size() == 1 ? "Validation loss"
                                         : fmt::format("Validation loss, {} validations",
                                                       with_commas(static_cast<std::int64_t>(validations.size()))));
    page.table(table_of<Row>({{"last", validations.back()}, {"best", best_of(validations)}}, fields));
}

void status_sentences(Page& page, const Summary& summary) {
    if (summary.status.empty()) return;
    const auto status = parse_json<nlohmann::ordered_json>(summary.status);
    if (!status.is_object()) return page.sentence("Final status unknown: status.json cannot be read.");
    std::string words;
    for (const auto& [key, value] : status.items())
        if (value.is_primitive() && !value.is_null() && value != "")
            words += fmt::format("{}{} {}", words.empty() ? "" : ", ", key,
                                 value.is_string() ? value.get<std::string>() : value.dump());
    page.sentence("Final status (status.json): " + words + ".");
}

void print_page(Page& page, const Summary& summary, const std::string& per) {
    const RunFigures& figures = summary.figures;
    Table configuration({{"key", "setting"}, {"value", "value"}});
    for (const Setting& setting : summary.configuration) {
        if (std::holds_alternative<std::monostate>(setting.value) || setting.value == Cell(std::string())) continue;
        // As text: a column of mixed numbers and names reads best left-aligned, and a year without separators.
        const auto* whole = std::get_if<std::int64_t>(&setting.value);
        std::vector<Cell> cells = {setting.title, setting.value};
        if (whole) cells[1] = std::to_string(*whole);
        configuration.add_row(std::move(cells));
    }
    page.heading(fmt::format("Run {}", summary.path), true);
    page.table(configuration);
    if (summary.launches.size() > 1) launch_table(page, summary);
    share_table(page, figures);
    communication_table(page, figures);
    phase_tables(page, summary, "run", "whole run");
    if (summary.ranks_of_run)
        rank_table(page, figures);
    else
        page.sentence(fmt::format("{} ranks: --ranks all prints a line for each.",
                                  with_commas(static_cast<std::int64_t>(figures.ranks.size()))));
    validation_table(page, figures.all.validations);
    if (per != "run") phase_tables(page, summary, per, "by " + per);
    page.heading("Totals");
    const SpanFigures& all = figures.all;
    page.sentence(fmt::format("{} ({} to {}), {} tokens, {:.3f} s in steps (slowest rank).",
                              all.steps == 1 ? "1 step" : with_commas(all.steps) + " steps", all.first_step,
                              all.last_step, with_commas(all.tokens), all.seconds));
    if (all.tokens > 0)
        page.sentence(fmt::format("{} tokens/s over all ranks; model FLOP rate: {}.",
                                  with_commas(std::llround(std::min(tokens_per_second(all), 1e15))),
                                  human_rate(per_second(all.model_flop, all.seconds), "FLOP")));
    if (all.counted.tokens > 0)
        page.sentence(fmt::format("Energy: {:.4g} kJ, {:.4g} J/token.", all.counted.joules / 1000,
                                  all.counted.joules_per_token()));
    if (all.counted.cycles > 0)
        page.sentence(fmt::format("Processors: {:.4g} instructions, {:.3g} per cycle; {:.3g} GHz over CPU time.",
                                  all.counted.instructions, all.counted.instructions_per_cycle(),
                                  all.counted.cycles_per_second() / 1e9));
    if (figures.measured[forward])
        page.sentence(fmt::format("Forward pass: {:.3f} ms per call on average, median {:.3f} ms.",
                                  1e3 * mean_per_call(figures.all.mean, forward), 1e3 * figures.forward_median));
    page.sentence(fmt::format("Skipped steps: {}. Tracing took {:.3f} % of the traced time.", all.skipped,
                              100 * figures.overhead_share));
    if (all.steps > 1) page.sentence("These figures include the warm-up; scaling, sweep and compare skip it.");
    for (const std::string& note : figures.notes) page.sentence(note);
    status_sentences(page, summary);
}

int run_summary(const Options& options) {
    const TableFormat format = table_format(options.format);
    std::vector<Summary> summaries;
    for (const std::string& path : expand_runs(options.runs)) summaries.push_back(summarise(path, options));
    std::string out;
    if (format == TableFormat::json) {
        Json all = Json::array();
        for (const Summary& summary : summaries) all.push_back(json_of(summary));
        out = json_text(summaries.size() == 1 ? all[0] : all, 1);
    } else if (format == TableFormat::csv) {
        out = csv_of(summaries, options.per);
    } else {
        Page page(format);
        for (const Summary& summary : summaries) print_page(page, summary, options.per);
        out = page.text();
    }
    print(out);
    return 0;
}

}  // namespace

void add_summary(CLI::App& program, Action& action) {
    auto options = std::make_shared<Options>();
    CLI::App* command =
        program.add_subcommand("summary", "Show configuration, time by phase and rank, losses, rates, memory");
    command->add_option("RUN", options->runs, "Run folders, trace files, or folders of run folders")->required();
    add_format_option(*command, options->format);
    command->add_option("--per", options->per, "Tables for the whole run, or also for each epoch or step")
        ->check(CLI::IsMember({"run", "epoch", "step"}))
        ->capture_default_str();
    command
        ->add_option("--ranks", options->ranks,
                     "Lines of all ranks, only of their mean (with --per epoch or step), or auto: all ranks of the "
                     "run up to 1,024, of each epoch or step up to 16")
        ->check(CLI::IsMember({"auto", "all", "mean"}))
        ->capture_default_str();
    command->footer(
        "Every second belongs to exactly one phase: communication inside backward counts as communication, everything\n"
        "inside initialization, validation or checkpoint as that phase, and the rest of a step as other. json has the\n"
        "run, its epochs and its steps in one object (an array of objects for several runs); csv has the rows that\n"
        "--per selects.");
    command->callback([options, &action] { action = [options] { return run_summary(*options); }; });
}

}  // namespace lockstep::analysis
