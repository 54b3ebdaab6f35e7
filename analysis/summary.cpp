// lockstep-analyze summary: what a run was, where each rank's time went, how fast and how large it was.
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "analysis/command.hpp"
#include "analysis/configuration.hpp"
#include "analysis/figures.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/table.hpp"

namespace lockstep::analysis {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
    std::vector<std::string> runs;
    std::string format = "text", per = "run", ranks = "auto";
};

constexpr auto forward = static_cast<std::size_t>(Phase::forward);
constexpr std::size_t few_ranks =
    16;  // up to so many, every rank of every epoch or step is shown unless told otherwise

struct Summary {
    std::vector<Setting> configuration;
    std::string status;
    std::string path;
    RunFigures figures;
};

Summary summarise(const std::string& path, const Options& options) {
    const trace::Run run = trace::open_run(path);
    std::size_t ranks = 0;
    for (const auto& part : run.parts) ranks = std::max(ranks, part.file.ranks());
    const bool every_rank = options.ranks == "all" || (options.ranks == "auto" && ranks <= few_ranks);
    FigureOptions wanted;
    wanted.ranks_of_epochs = every_rank;
    wanted.ranks_of_steps = every_rank && options.per == "step";
    return {configuration_of(run), status_of(run), path, figures_of(run, wanted)};
}

double share_of(double part, double whole) {
    return whole > 0 ? part / whole : 0;
}

// Numbers that are not finite have no JSON.
Json number(double value) {
    return std::isfinite(value) ? Json(value) : Json(nullptr);
}

Cell cell(double value) {
    if (std::isfinite(value)) return value;
    return {};
}

// Whole where it is whole: a mean over ranks may not be.
Cell calls_cell(double calls) {
    if (calls == std::floor(calls)) return static_cast<std::int64_t>(calls);
    return calls;
}

Cell mean_cell(const PhaseSums& sums, std::size_t phase, double unit) {
    if (sums.calls[phase] > 0) return mean_per_call(sums, phase) / unit;
    return {};
}

constexpr double millisecond = 1e-3;

Json json_phases(const PhaseSums& sums, const std::array<double, phase_count>* slowest = nullptr) {
    Json phases = Json::object();
    const double total = sums.total();
    for (std::size_t p = 0; p < phase_count; ++p) {
        Json phase = {{"seconds", number(sums.seconds[p])}, {"calls", number(sums.calls[p])}};
        if (sums.calls[p] == std::floor(sums.calls[p])) phase["calls"] = static_cast<std::int64_t>(sums.calls[p]);
        phase["mean_seconds"] = sums.calls[p] > 0 ? number(mean_per_call(sums, p)) : Json(nullptr);
        phase["share"] = number(share_of(sums.seconds[p], total));
        if (slowest) phase["slowest_seconds"] = number((*slowest)[p]);
        phases[phase_names[p]] = std::move(phase);
    }
    return phases;
}

double own_rate(std::int64_t tokens, std::size_t ranks, const RankSpan& rank, double seconds) {
    return per_second(static_cast<double>(tokens) / static_cast<double>(ranks),
                      rank.step_seconds > 0 ? rank.step_seconds : seconds);
}

Json json_totals(const SpanFigures& span) {
    return {{"steps", span.steps},
            {"skipped_steps", span.skipped},
            {"tokens", span.tokens},
            {"seconds", number(span.seconds)},
            {"tokens_per_second", number(per_second(static_cast<double>(span.tokens), span.seconds))},
            {"model_flop_per_second", number(per_second(span.model_flop, span.seconds))},
            {"loss", number(span.loss.value())}};
}

Json json_span(const SpanFigures& span, const char* name, std::size_t rank_count) {
    Json object = {{name, span.number}};
    object.update(json_totals(span));
    object["phases"] = json_phases(span.mean, &span.slowest);
    if (!span.ranks.empty()) {
        object["ranks"] = Json::array();
        for (std::size_t r = 0; r < span.ranks.size(); ++r)
            object["ranks"].push_back(
                {{"rank", r},
                 {"phases", json_phases(span.ranks[r].phases)},
                 {"loss", number(span.ranks[r].loss.value())},
                 {"tokens_per_second", number(own_rate(span.tokens, rank_count, span.ranks[r], span.seconds))}});
    }
    return object;
}

Json json_rank(const RankFigures& rank, std::size_t number_of_rank) {
    return {
        {"rank", number_of_rank},
        {"host", rank.place.host},
        {"cores", rank.place.cores},
        {"gpu", rank.place.gpu},
        {"threads", rank.place.threads},
        {"phases", json_phases(rank.phases)},
        {"loss",
         {{"first", number(rank.loss_first)}, {"last", number(rank.loss_last)}, {"mean", number(rank.loss.value())}}},
        {"forward_latency",
         {{"mean_seconds", number(mean_per_call(rank.phases, forward))},
          {"median_seconds", number(rank.forward_median)}}},
        {"tokens_per_second", number(rank.tokens_per_second)},
        {"allocated_memory_bytes", rank.allocated},
        {"reserved_memory_bytes", rank.reserved},
        {"peak_memory_bytes", rank.peak},
        {"tracing_seconds", number(rank.overhead)}};
}

Json json_of(const Summary& summary) {
    const RunFigures& figures = summary.figures;
    const auto ranks = static_cast<double>(figures.ranks.size());
    Json all = Json::object();
    Json& configuration = all["configuration"] = Json::object();
    for (const Setting& setting : summary.configuration)
        std::visit(
            [&](const auto& value) {
                if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::monostate>)
                    configuration[setting.key] = nullptr;
                else
                    configuration[setting.key] = value;
            },
            setting.value);
    const Json status = Json::parse(summary.status, nullptr, false);
    all["path"] = summary.path;
    all["status"] = status.is_discarded() ? Json(nullptr) : status;
    Json& totals = all["totals"] = json_totals(figures.all);
    totals["first_step"] = figures.first_step;
    totals["last_step"] = figures.last_step;
    totals["hardware_flop_per_second"] = number(per_second(figures.hardware_flop, figures.all.seconds));
    Json& list = all["ranks"] = Json::array();
    double overhead = 0, rank_losses = 0;
    std::uint64_t peak = 0;
    for (std::size_t r = 0; r < figures.ranks.size(); ++r) {
        list.push_back(json_rank(figures.ranks[r], r));
        overhead += figures.ranks[r].overhead;
        rank_losses += figures.ranks[r].loss.value();
        peak = std::max(peak, figures.ranks[r].peak);
    }
    all["average"] = {
        {"phases", json_phases(figures.mean)},
        {"loss", {{"mean", number(rank_losses / ranks)}}},
        {"forward_latency",
         {{"mean_seconds", number(mean_per_call(figures.mean, forward))},
          {"median_seconds", number(figures.forward_median)}}},
        {"tokens_per_second", number(per_second(static_cast<double>(figures.all.tokens), figures.all.seconds) / ranks)},
        {"largest_peak_memory_bytes", peak}};
    all["overhead"] = {{"seconds", number(overhead / ranks)}, {"share", number(figures.overhead_share)}};
    Json& epochs = all["epochs"] = Json::array();
    for (const SpanFigures& span : figures.epochs) epochs.push_back(json_span(span, "epoch", figures.ranks.size()));
    Json& steps = all["steps"] = Json::array();
    for (const SpanFigures& span : figures.steps) steps.push_back(json_span(span, "step", figures.ranks.size()));
    all["notes"] = figures.notes;
    return all;
}

// One line of the phase tables: a rank's or the mean's, of the run, an epoch or a step.
struct Line {
    std::int64_t span = 0;
    Cell rank;
    const PhaseSums* sums = nullptr;
    double loss = 0, tokens_per_second = 0;
    std::int64_t steps = 0;
    Cell peak{};
};

std::vector<Line> lines_of(const Summary& summary, const std::string& per) {
    std::vector<Line> lines;
    const RunFigures& figures = summary.figures;
    const auto ranks = static_cast<double>(figures.ranks.size());
    if (per == "run") {
        std::uint64_t most = 0;
        for (std::size_t r = 0; r < figures.ranks.size(); ++r) {
            const RankFigures& rank = figures.ranks[r];
            most = std::max(most, rank.peak);
            lines.push_back({0, static_cast<std::int64_t>(r), &rank.phases, rank.loss.value(), rank.tokens_per_second,
                             figures.all.steps, static_cast<std::int64_t>(rank.peak)});
        }
        lines.push_back({0, std::string("mean"), &figures.mean, figures.all.loss.value(),
                         per_second(static_cast<double>(figures.all.tokens), figures.all.seconds) / ranks,
                         figures.all.steps, static_cast<std::int64_t>(most)});
        return lines;
    }
    for (const SpanFigures& span : per == "epoch" ? figures.epochs : figures.steps) {
        for (std::size_t r = 0; r < span.ranks.size(); ++r)
            lines.push_back({span.number,
                             static_cast<std::int64_t>(r),
                             &span.ranks[r].phases,
                             span.ranks[r].loss.value(),
                             own_rate(span.tokens, figures.ranks.size(), span.ranks[r], span.seconds),
                             span.steps,
                             {}});
        lines.push_back({span.number,
                         std::string("mean"),
                         &span.mean,
                         span.loss.value(),
                         per_second(static_cast<double>(span.tokens), span.seconds) / ranks,
                         span.steps,
                         {}});
    }
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

std::string csv_of(const std::vector<Summary>& summaries, const std::string& per) {
    std::vector<Column> columns = {{"run", "run"}};
    for (const Column& column : key_columns(per)) columns.push_back(column);
    columns.push_back({"steps", "steps"});
    for (const char* name : phase_names)
        for (const char* what : {"_seconds", "_calls", "_mean_seconds"})
            columns.push_back({std::string(name) + what, name});
    for (const char* name : {"total_seconds", "loss", "tokens_per_second"}) columns.push_back({name, name});
    if (per == "run") columns.push_back({"peak_memory_bytes", "peak memory"});
    Table table(columns);
    for (const Summary& summary : summaries)
        for (const Line& line : lines_of(summary, per)) {
            std::vector<Cell> cells = {summary.configuration.front().value};
            for (const Cell& key : key_cells(per, line)) cells.push_back(key);
            cells.emplace_back(line.steps);
            for (std::size_t p = 0; p < phase_count; ++p) {
                cells.emplace_back(line.sums->seconds[p]);
                cells.emplace_back(line.sums->calls[p]);
                cells.push_back(mean_cell(*line.sums, p, 1));
            }
            cells.emplace_back(line.sums->total());
            cells.push_back(cell(line.loss));
            cells.emplace_back(line.tokens_per_second);
            if (per == "run") cells.push_back(line.peak);
            table.add_row(std::move(cells));
        }
    return table.print(TableFormat::csv);
}

class Page {
  public:
    explicit Page(TableFormat format) : format_(format) {}
    void heading(const std::string& words, bool main = false) {
        if (!text_.empty()) text_ += "\n";
        text_ += format_ == TableFormat::markdown ? fmt::format("{} {}\n\n", main ? "##" : "###", words) : words + "\n";
    }
    void table(const Table& table) { text_ += table.print(format_); }
    void sentence(const std::string& words) { text_ += (format_ == TableFormat::markdown ? "- " : "") + words + "\n"; }
    const std::string& text() const { return text_; }

  private:
    TableFormat format_;
    std::string text_;
};

// Seconds, calls and mean per call of every phase: one table each, a line per rank and one for their mean.
void phase_tables(Page& page, const std::vector<Line>& lines, const std::string& per, const std::string& of) {
    std::vector<Column> columns = key_columns(per);
    const std::size_t keys = columns.size();
    for (const char* name : phase_names) columns.push_back({name, name, 3});
    std::vector<Column> with_total = columns;
    with_total.push_back({"total", "total", 3});
    with_total.push_back({"loss", per == "run" ? "mean loss" : "loss", 4});
    with_total.push_back({"tokens_per_second", "tokens/s", 0});
    columns.pop_back();  // "other" is what no call covers
    std::vector<Column> call_columns = columns;
    for (std::size_t c = keys; c < call_columns.size(); ++c) call_columns[c].decimals = 1;
    Table seconds(with_total), calls(call_columns), means(columns);
    for (const Line& line : lines) {
        std::vector<Cell> second_cells = key_cells(per, line), call_cells = second_cells, mean_cells = second_cells;
        for (std::size_t p = 0; p < phase_count; ++p) {
            second_cells.emplace_back(line.sums->seconds[p]);
            if (p + 1 == phase_count) break;
            call_cells.push_back(calls_cell(line.sums->calls[p]));
            mean_cells.push_back(mean_cell(*line.sums, p, millisecond));
        }
        second_cells.emplace_back(line.sums->total());
        second_cells.push_back(cell(line.loss));
        second_cells.emplace_back(line.tokens_per_second);
        seconds.add_row(std::move(second_cells));
        calls.add_row(std::move(call_cells));
        means.add_row(std::move(mean_cells));
    }
    page.heading("Seconds by phase, " + of);
    page.table(seconds);
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
    const double total = figures.mean.total();
    for (std::size_t p = 0; p < phase_count; ++p) {
        double fastest = figures.ranks.front().phases.seconds[p], slowest = fastest;
        for (const RankFigures& rank : figures.ranks) {
            fastest = std::min(fastest, rank.phases.seconds[p]);
            slowest = std::max(slowest, rank.phases.seconds[p]);
        }
        table.add_row({std::string(phase_names[p]), figures.mean.seconds[p],
                       100 * share_of(figures.mean.seconds[p], total), calls_cell(figures.mean.calls[p]),
                       mean_cell(figures.mean, p, millisecond), fastest, slowest});
    }
    page.heading("Phases, average over ranks");
    page.table(table);
}

void rank_table(Page& page, const RunFigures& figures) {
    Table table({{"rank", "rank"},
                 {"host", "host"},
                 {"threads", "threads"},
                 {"first", "first loss", 4},
                 {"last", "last loss", 4},
                 {"mean", "mean loss", 4},
                 {"latency", "forward mean, ms", 3},
                 {"median", "forward median, ms", 3},
                 {"rate", "tokens/s", 0},
                 {"allocated", "allocated, MiB", 1},
                 {"reserved", "reserved, MiB", 1},
                 {"peak", "peak memory, MiB", 1}});
    constexpr double mib = 1 << 20;
    for (std::size_t r = 0; r < figures.ranks.size(); ++r) {
        const RankFigures& rank = figures.ranks[r];
        table.add_row({static_cast<std::int64_t>(r), rank.place.host, rank.place.threads, cell(rank.loss_first),
                       cell(rank.loss_last), cell(rank.loss.value()), 1e3 * mean_per_call(rank.phases, forward),
                       1e3 * rank.forward_median, rank.tokens_per_second, static_cast<double>(rank.allocated) / mib,
                       static_cast<double>(rank.reserved) / mib, static_cast<double>(rank.peak) / mib});
    }
    page.heading("Ranks");
    page.table(table);
}

void status_sentences(Page& page, const Summary& summary) {
    if (summary.status.empty()) return;
    const Json status = Json::parse(summary.status, nullptr, false);
    if (!status.is_object()) return page.sentence("How it ended is unknown: status.json cannot be read.");
    std::string words;
    for (const auto& [key, value] : status.items())
        if (value.is_primitive())
            words += fmt::format("{}{} {}", words.empty() ? "" : ", ", key,
                                 value.is_string() ? value.get<std::string>() : value.dump());
    page.sentence("How it ended (status.json): " + words + ".");
}

void print_page(Page& page, const Summary& summary, const std::string& per) {
    const RunFigures& figures = summary.figures;
    Table configuration({{"key", "setting"}, {"value", "value"}});
    for (const Setting& setting : summary.configuration) {
        if (std::holds_alternative<std::monostate>(setting.value)) continue;
        // As words: a column of mixed numbers and names reads best flush left, and without separators in a year.
        const auto* whole = std::get_if<std::int64_t>(&setting.value);
        std::vector<Cell> cells = {setting.title, setting.value};
        if (whole) cells[1] = std::to_string(*whole);
        configuration.add_row(std::move(cells));
    }
    page.heading(fmt::format("Run {}", summary.path), true);
    page.table(configuration);
    share_table(page, figures);
    phase_tables(page, lines_of(summary, "run"), "run", "whole run");
    rank_table(page, figures);
    if (per != "run") phase_tables(page, lines_of(summary, per), per, "by " + per);
    page.heading("Together");
    const SpanFigures& all = figures.all;
    page.sentence(fmt::format("{} steps ({} to {}), {} tokens, {:.3f} s in steps (the slowest rank's).",
                              with_commas(all.steps), figures.first_step, figures.last_step, with_commas(all.tokens),
                              all.seconds));
    page.sentence(fmt::format("{:.0f} tokens/s on all ranks together, {} for the model.",
                              per_second(static_cast<double>(all.tokens), all.seconds),
                              human_rate(per_second(all.model_flop, all.seconds), "FLOP")));
    page.sentence(fmt::format("Forward pass: {:.3f} ms a call on average, median {:.3f} ms.",
                              1e3 * mean_per_call(figures.mean, forward), 1e3 * figures.forward_median));
    page.sentence(fmt::format("Skipped steps: {}. Tracing took {:.3f} % of the traced time.", all.skipped,
                              100 * figures.overhead_share));
    for (const std::string& note : figures.notes) page.sentence(note);
    status_sentences(page, summary);
}

int run_summary(const Options& options) {
    const TableFormat format = table_format(options.format);
    std::vector<Summary> summaries;
    for (const std::string& path : options.runs) summaries.push_back(summarise(path, options));
    std::string out;
    if (format == TableFormat::json) {
        Json all = Json::array();
        for (const Summary& summary : summaries) all.push_back(json_of(summary));
        // A name in a damaged description may not be UTF-8; that is no reason to print nothing.
        out = (summaries.size() == 1 ? all[0] : all).dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
    } else if (format == TableFormat::csv) {
        out = csv_of(summaries, options.per);
    } else {
        Page page(format);
        for (const Summary& summary : summaries) print_page(page, summary, options.per);
        out = page.text();
    }
    if (std::fwrite(out.data(), 1, out.size(), stdout) != out.size())
        throw fault_error("the output cannot be written: {}", system_error_text());
    return 0;
}

}  // namespace

void add_summary(CLI::App& program, Action& action) {
    auto options = std::make_shared<Options>();
    CLI::App* command =
        program.add_subcommand("summary", "configuration, time by phase and rank, losses, rates, memory");
    command->add_option("RUN", options->runs, "run folders or trace files")->required();
    command->add_option("--format", options->format, "text, markdown, csv or json")
        ->check(CLI::IsMember({"text", "markdown", "csv", "json"}))
        ->capture_default_str();
    command->add_option("--per", options->per, "tables of the whole run, or also of each epoch or each step")
        ->check(CLI::IsMember({"run", "epoch", "step"}))
        ->capture_default_str();
    command
        ->add_option("--ranks", options->ranks,
                     "with --per epoch or step: all ranks, only their mean, or auto (all, up to 16 ranks)")
        ->check(CLI::IsMember({"auto", "all", "mean"}))
        ->capture_default_str();
    command->footer(
        "Every second belongs to one phase: communication inside backward counts as communication, whatever is\n"
        "inside initialization, validation or checkpoint as that, the rest of a step as other. json holds the\n"
        "run, its epochs and its steps in one object (an array of them for several runs); csv holds the lines\n"
        "that --per names.");
    command->callback([options, &action] { action = [options] { return run_summary(*options); }; });
}

}  // namespace lockstep::analysis
