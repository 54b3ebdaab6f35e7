#include "analysis/exchange/imported_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>

#include "analysis/load/description.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/version.hpp"
#include "base/whole_file.hpp"
#include "trace/writer.hpp"

namespace lockstep::analysis {
namespace {

std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char letter : text) {
        if (letter == '"' || letter == '\\') out += '\\';
        if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f)
            out += fmt::format("\\u{:04x}", static_cast<unsigned char>(letter));
        else
            out += letter;
    }
    return out + "\"";
}

// With a point or an exponent, so that TOML takes it for a floating-point number.
std::string number(double value) {
    if (!std::isfinite(value)) return "nan";
    std::string text = fmt::format("{}", value);
    if (text.find_first_of(".e") == std::string::npos) text += ".0";
    return text;
}

template <class Values, class Print>
std::string list(const Values& values, const Print& print) {
    std::string out;
    for (const auto& value : values) out += (out.empty() ? "" : ", ") + print(value);
    return "[" + out + "]";
}

void add_section(std::string& out, const ImportedRun& run, const char* section,
                 std::initializer_list<std::pair<const char*, const char*>> keys) {
    std::string lines;
    for (const auto& [key, column] : keys)
        if (const std::int64_t value = run.setting(column); value > 0) lines += fmt::format("{} = {}\n", key, value);
    if (!lines.empty()) out += fmt::format("\n[{}]\n{}", section, lines);
}

// One number of each rank, or of the run where one row speaks for it; "" where the table gives none.
template <class Value>
std::string values_of(const ImportedRun& run, const Value& value) {
    std::vector<double> values;
    for (const ImportedRank& rank : run.rank) values.push_back(value(rank));
    if (std::none_of(values.begin(), values.end(), [](double one) { return std::isfinite(one); })) return "";
    return run.whole ? number(values.front()) : list(values, number);
}

// The regions of one imported run, and what each rank spent in them.
class RegionTable {
  public:
    explicit RegionTable(const ImportedRun& run) : run_(run) {
        using enum TimeColumn;
        add("epoch", "epoch", -1, total);
        const std::int64_t step = add("epoch/step", "step", 0, total);
        for (const TimeColumn column : {data_loading, data_movement, communication}) add_given(column, step);
        const bool has_compute = run.gives(compute);
        const std::int64_t computing = has_compute ? add_given(compute, step) : step;
        for (const TimeColumn column : {forward, loss, backward, optimizer}) add_given(column, computing);
        for (const TimeColumn column : {validation, checkpoint, initialization}) add_given(column, -1);
    }
    const std::vector<trace::RegionRow>& rows() const { return rows_; }
    // NaN where the table gives nothing.
    double seconds(std::size_t region, const ImportedRank& rank) const {
        if (columns_[region] != TimeColumn::total) return rank.at(columns_[region]);
        // Validation, checkpoints and initialization are roots beside the epoch: together they are the total.
        double left = rank.at(TimeColumn::total);
        for (const TimeColumn column : {TimeColumn::validation, TimeColumn::checkpoint, TimeColumn::initialization})
            if (std::isfinite(rank.at(column))) left -= rank.at(column);
        return left < 0 ? 0 : left;
    }

  private:
    std::int64_t add(const std::string& path, const std::string& name, std::int64_t parent, TimeColumn column) {
        trace::RegionRow row;
        row.id = static_cast<std::int64_t>(rows_.size());
        row.parent = parent;
        row.name = name;
        row.path = path;
        rows_.push_back(row);
        columns_.push_back(column);
        return row.id;
    }
    std::int64_t add_given(TimeColumn column, std::int64_t parent) {
        if (!run_.gives(column)) return -1;
        const std::string name = time_column_names[static_cast<std::size_t>(column)];
        const std::string above = parent < 0 ? "" : rows_[static_cast<std::size_t>(parent)].path + "/";
        return add(above + name, name, parent, column);
    }

    const ImportedRun& run_;
    std::vector<trace::RegionRow> rows_;
    std::vector<TimeColumn> columns_;
};

trace::RowBatch block_of(const ImportedRun& run, const RegionTable& regions) {
    trace::RowBatch block;
    trace::StepRow row;
    row.step = 1;
    row.loss = row.learning_rate = row.gradient_norm = unknown;
    row.tokens = run.setting("tokens");
    row.batch = run.setting("batch");
    const double slowest = run.slowest_total();
    row.seconds = std::isfinite(slowest) ? slowest : 0;
    row.wall_time = wall_seconds();
    block.steps.push_back(row);
    for (const ImportedRank& rank : run.rank) {
        block.rank_loss.push_back(unknown);
        block.overhead.push_back(0);
        block.memory.insert(block.memory.end(), 3, static_cast<std::uint64_t>(rank.peak_memory));
        for (std::size_t region = 0; region < regions.rows().size(); ++region) {
            const double seconds = regions.seconds(region, rank);
            block.times.push_back(seconds);
            block.calls.push_back(std::isfinite(seconds) ? 1 : 0);
        }
    }
    return block;
}

bool is_imported(const std::filesystem::path& description) {
    const std::string text = text_of_regular_file(description.string());
    return description_table(text)["imported"].is_table();  // what cannot be read is not known to be ours to replace
}

// run.toml comes first: whatever stops the import, what lies there is then known to be imported.
void make_room(const std::string& folder, const std::string& description) {
    std::error_code problem;
    std::filesystem::create_directories(folder, problem);
    if (problem) throw fault_error("the folder {} cannot be created: {}", folder, problem.message());
    const std::string path = folder + "/run.toml";
    write_whole_file(path, description);
    for (const trace::NumberedFile& old : trace::trace_files(folder)) {
        std::filesystem::remove(old.path, problem);
        if (problem) throw fault_error("{} cannot be removed: {}", old.path, problem.message());
    }
}

}  // namespace

std::string description_of(const ImportedRun& run, const std::string& table) {
    std::string out = fmt::format("[run]\nname = {}\n", quoted(run.name));
    add_section(out, run, "batch", {{"global", "batch"}, {"length", "length"}, {"accumulation", "accumulation"}});
    add_section(out, run, "parallel",
                {{"data", "data"}, {"tensor", "tensor"}, {"pipeline", "pipeline"}, {"context", "context"}});
    out += fmt::format("\n[imported]\ntable = {}\nlines = {}\nwhole = {}\n", quoted(table),
                       list(run.lines, [](std::size_t line) { return fmt::format("{}", line); }), run.whole);
    const std::string totals = values_of(run, [](const auto& rank) { return rank.at(TimeColumn::total); });
    if (!totals.empty()) out += fmt::format("total = {}\n", totals);
    const std::string rates = values_of(run, [](const auto& rank) { return rank.tokens_per_second; });
    if (!rates.empty()) out += fmt::format("tokens_per_second = {}\n", rates);
    if (!run.remarks.empty()) out += fmt::format("remarks = {}\n", list(run.remarks, quoted));
    return out;
}

void check_folder(const std::string& folder, bool replace) {
    const std::filesystem::path description = std::filesystem::path(folder) / "run.toml";
    std::error_code ignored;
    if (std::filesystem::exists(folder, ignored) && !std::filesystem::is_directory(folder, ignored))
        throw usage_error("{} is not a folder; give another --out", folder);
    const bool described = std::filesystem::exists(description, ignored);
    if (!described && trace::trace_files(folder).empty()) return;
    if (!described || !is_imported(description))
        throw usage_error("{} holds a run that was not imported; give another --out or rename the run in the table",
                          folder);
    if (!replace) throw usage_error("{} already holds an imported run; replace it with --replace", folder);
}

std::string write_imported_run(const ImportedRun& run, const std::string& table, const std::string& folder) {
    const RegionTable regions(run);
    trace::Header header;
    header.run_name = run.name;
    header.description = description_of(run, table);
    make_room(folder, header.description);
    header.program_version = version();
    header.commit = commit();
    header.detail = trace::Header::imported_detail;
    header.start_time = wall_seconds();
    header.ranks.resize(run.rank.size());
    header.regions = regions.rows();
    trace::WriterLimits limits;
    limits.fewest_rows = 1;
    trace::TraceWriter writer(folder, header, 1, limits);
    writer.append(block_of(run, regions));
    const std::string path = writer.path();
    writer.finish();
    return path;
}

}  // namespace lockstep::analysis
