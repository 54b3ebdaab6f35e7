#include "plan/measured_table.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>

#include "base/csv_table.hpp"
#include "base/error.hpp"
#include "base/log.hpp"

namespace lockstep::plan {
namespace {

constexpr std::int64_t required = -1;
constexpr auto zero_stages = std::to_array<std::string_view>({"0", "1", "2", "3"});

class Row {
  public:
    Row(const CsvTable& table, const CsvRow& row, const std::map<std::string, std::size_t>& columns)
        : table_(table), row_(row), columns_(columns) {}
    std::string text(const std::string& column, const std::string& otherwise) const {
        const auto found = columns_.find(column);
        if (found == columns_.end() || row_.fields[found->second].empty()) return otherwise;
        return row_.fields[found->second];
    }
    std::optional<double> number(const std::string& column) const {
        const std::string field = text(column, "");
        if (field.empty()) return std::nullopt;
        double value = 0;
        const auto [end, problem] = std::from_chars(field.data(), field.data() + field.size(), value);
        if (problem != std::errc() || end != field.data() + field.size() || !std::isfinite(value) || value <= 0)
            throw usage_error("{}:{}: {} = {}: it must be a number above 0", table_.path, row_.line, column,
                              printable(field));
        return value;
    }
    std::int64_t count(const std::string& column, std::int64_t otherwise) const {
        const auto value = number(column);
        if (!value && otherwise == required)
            throw usage_error("{}:{}: column {} is empty", table_.path, row_.line, column);
        if (!value) return otherwise;
        if (*value != std::floor(*value) || *value > 1e7)
            throw usage_error("{}:{}: {} = {}: it must be a whole number of at most 10,000,000", table_.path, row_.line,
                              column, *value);
        return static_cast<std::int64_t>(*value);
    }
    // Which of the words it is.
    std::int64_t index(const std::string& column, const std::string& otherwise,
                       std::span<const std::string_view> words) const {
        const std::string value = text(column, otherwise);
        const auto found = std::find(words.begin(), words.end(), value);
        if (found == words.end())
            config::refuse_word(fmt::format("{}:{}: {}", table_.path, row_.line, column), printable(value),
                                config::texts_of(words));
        return found - words.begin();
    }
    template <class Enum>
    Enum word(const std::string& column, Enum otherwise) const {
        return static_cast<Enum>(index(column, config::word_of(otherwise), config::words_in<Enum>));
    }

  private:
    const CsvTable& table_;
    const CsvRow& row_;
    const std::map<std::string, std::size_t>& columns_;
};

MeasuredRow measured_row(const CsvTable& table, const CsvRow& line, const Row& row) {
    MeasuredRow measured;
    measured.source_line = row.count("source_line", static_cast<std::int64_t>(line.line));
    measured.date = row.text("date", "");
    measured.flagged = row.text("flagged", "");
    measured.out_of_memory = row.word("outcome", config::Outcome::ok) == config::Outcome::oom;
    measured.seconds = row.number("seconds_per_iteration");
    measured.memory_gb = row.number("memory_gb");

    config::RunDescription& run = measured.job.run;
    config::ModelDescription& model = run.model;
    model.width = row.count("hidden", required);
    model.layers = row.count("layers", required);
    if (model.layers > 10000)
        throw usage_error("{}:{}: layers = {}: it must be at most 10,000", table.path, line.line, model.layers);
    model.heads = {row.count("heads", required)};
    model.vocabulary = row.count("vocabulary", 250880);
    model.context = row.count("sequence", 2048);
    model.norm = config::NormKind::layer;
    model.mlp = config::MlpKind::gelu;
    model.position = config::Position::none;
    config::resolve(model);
    if (model.width % model.heads.front() != 0)
        throw usage_error("{}:{}: heads = {} does not divide hidden = {}", table.path, line.line, model.heads.front(),
                          model.width);
    run.batch.length = model.context;
    run.batch.global = row.count("global_batch", required);
    run.precision.compute = row.word("precision", config::Precision::fp16);
    cost::ModelLoad load;
    load.shape = model;
    cost::measure(load);
    measured.job.models.push_back(std::move(load));
    measured.job.program = cost::program_named(row.text("program", "megatron-deepspeed"));

    cost::Layout& layout = measured.layout;
    layout.data = row.count("dp", required);
    layout.tensor = row.count("tp", required);
    layout.pipeline = row.count("pp", required);
    layout.micro = row.count("micro_batch", required);
    layout.zero = row.index("zero_stage", "1", zero_stages);
    layout.recompute = row.word("recompute", config::Recompute::full);
    if (layout.recompute == config::Recompute::cheap)
        throw usage_error("{}:{}: recompute = cheap: {} supports none, selective and full", table.path, line.line,
                          measured.job.program.name);
    const std::int64_t ranks = row.count("gpus", layout.ranks());
    if (layout.ranks() != ranks)
        log::warning("{}:{}: dp x tp x pp = {} is not gpus = {}; using the product", table.path, line.line,
                     layout.ranks(), ranks);
    if (layout.pipeline > model.layers)
        throw usage_error("{}:{}: pp = {} is more than layers = {}", table.path, line.line, layout.pipeline,
                          model.layers);
    if (cost::micro_batches(measured.job, layout) < 1)
        throw usage_error("{}:{}: global_batch = {} is less than dp x micro_batch = {}", table.path, line.line,
                          run.batch.global, layout.data * layout.micro);
    return measured;
}

}  // namespace

std::vector<MeasuredRow> read_measured_table(const std::string& path) {
    const CsvTable table = read_csv_table(path);
    std::map<std::string, std::size_t> columns;
    for (std::size_t i = 0; i < table.header.fields.size(); ++i) columns[table.header.fields[i]] = i;
    for (const char* column : {"hidden", "layers", "heads", "dp", "tp", "pp", "micro_batch", "global_batch"})
        if (columns.count(column) == 0)
            throw usage_error("{} has no column {}; see docs/planner.md for the columns of measured steps", path,
                              column);
    std::vector<MeasuredRow> rows;
    for (const CsvRow& line : table.rows) rows.push_back(measured_row(table, line, Row(table, line, columns)));
    if (rows.empty()) throw usage_error("{} has no rows", path);
    return rows;
}

}  // namespace lockstep::plan
