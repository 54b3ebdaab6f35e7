#include "analysis/exchange/imported_table.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/error.hpp"
#include "base/format.hpp"

namespace lockstep::analysis {
namespace {

// The columns of which a run has one value, with the least that makes sense.
struct SettingColumn {
    const char* name;
    std::int64_t least;
};
constexpr std::array<SettingColumn, 9> setting_columns = {{{"ranks", 1},
                                                           {"batch", 1},
                                                           {"accumulation", 1},
                                                           {"length", 1},
                                                           {"data", 1},
                                                           {"tensor", 1},
                                                           {"pipeline", 1},
                                                           {"context", 1},
                                                           {"tokens", 0}}};
constexpr std::int64_t most_ranks = 1 << 17;  // as many as a trace can hold

std::vector<std::string> known_columns() {
    std::vector<std::string> names = {"run", "rank", "tokens_per_second", "peak_memory_bytes"};
    for (const auto& column : setting_columns) names.emplace_back(column.name);
    names.insert(names.end(), time_column_names.begin(), time_column_names.end());
    return names;
}

// One row of the table, its cells by the columns' names.
class Row {
  public:
    Row(const CsvTable& table, const CsvRow& row) : table_(table), row_(row) {}
    std::size_t line() const { return row_.line; }

    std::string text(const std::string& column) const {
        for (std::size_t i = 0; i < table_.header.fields.size(); ++i)
            if (table_.header.fields[i] == column) return row_.fields[i];
        return "";
    }
    std::optional<double> number(const std::string& column) const {
        const std::string word = text(column);
        if (word.empty()) return std::nullopt;
        double value = 0;
        const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), value);
        if (problem != std::errc{} || end != word.data() + word.size() || !std::isfinite(value))
            throw wrong(column, "is not a number; write numbers like 1234.5");
        if (value < 0) throw wrong(column, "is negative");
        return value;
    }
    std::optional<std::int64_t> whole_number(const std::string& column, std::int64_t least) const {
        const auto value = number(column);
        if (!value) return std::nullopt;
        constexpr double most = 9007199254740992;  // up to here every whole number is a double
        if (*value != std::floor(*value) || *value > most) throw wrong(column, "is not a whole number");
        if (*value < static_cast<double>(least)) throw wrong(column, fmt::format("is less than {}", least));
        return static_cast<std::int64_t>(*value);
    }
    Error wrong(const std::string& column, const std::string& how) const {
        return usage_error("{} line {}: {} '{}' {}", table_.path, row_.line, column, text(column), how);
    }

  private:
    const CsvTable& table_;
    const CsvRow& row_;
};

std::string run_name(const Row& row, const std::string& path) {
    const std::string name = row.text("run");
    if (name.empty()) throw usage_error("{} line {}: the run has no name", path, row.line());
    const bool plain = name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") ==
                       std::string::npos;
    if (!plain || name.front() == '.' || name.size() > 200)
        throw row.wrong("run",
                        "cannot name a folder; use letters, digits, '.', '_' and '-', not starting with '.', at most "
                        "200 of them");
    return name;
}

ImportedRank numbers_of(const Row& row) {
    ImportedRank rank;
    rank.line = row.line();
    for (std::size_t i = 0; i < time_column_count; ++i)
        rank.seconds[i] = row.number(time_column_names[i]).value_or(unknown);
    rank.tokens_per_second = row.number("tokens_per_second").value_or(unknown);
    rank.peak_memory = row.whole_number("peak_memory_bytes", 0).value_or(0);
    return rank;
}

// A run while its rows are gathered.
struct Gathered {
    ImportedRun run;
    std::map<std::int64_t, ImportedRank> by_rank;
    std::optional<ImportedRank> of_all;
};

void take_settings(const CsvTable& table, const Row& row, ImportedRun& run) {
    for (const auto& column : setting_columns) {
        const auto value = row.whole_number(column.name, column.least);
        if (!value) continue;
        const auto [known, added] = run.settings.emplace(column.name, *value);
        if (!added && known->second != *value)
            throw usage_error("{} line {}: {} is {}, but {} in an earlier row of run {}; these are two runs",
                              table.path, row.line(), column.name, *value, known->second, run.name);
    }
}

void take_row(const CsvTable& table, const Row& row, Gathered& gathered) {
    ImportedRun& run = gathered.run;
    take_settings(table, row, run);
    run.lines.push_back(row.line());
    const ImportedRank numbers = numbers_of(row);
    const auto rank = row.whole_number("rank", 0);
    if (rank) {
        if (*rank >= most_ranks) throw row.wrong("rank", fmt::format("is not below {}", most_ranks));
        const auto [known, added] = gathered.by_rank.emplace(*rank, numbers);
        if (!added)
            throw usage_error("{} line {}: rank {} of run {} is already in line {}", table.path, row.line(), *rank,
                              run.name, known->second.line);
    } else {
        if (gathered.of_all)
            throw usage_error("{} line {}: run {} is already in line {}; rows of single ranks need a column rank",
                              table.path, row.line(), run.name, gathered.of_all->line);
        gathered.of_all = numbers;
    }
    if (gathered.of_all && !gathered.by_rank.empty())
        throw usage_error(
            "{} line {}: run {} has a row for all of its ranks and rows of single ranks; give one of both", table.path,
            row.line(), run.name);
}

void place_ranks(const CsvTable& table, Gathered& gathered) {
    ImportedRun& run = gathered.run;
    if (const auto ranks = run.settings.find("ranks"); ranks != run.settings.end()) {
        run.ranks = ranks->second;
        run.settings.erase(ranks);
    } else if (gathered.of_all) {
        throw usage_error("{} line {}: run {} has no number of ranks; fill in the column ranks", table.path,
                          run.lines.front(), run.name);
    } else {
        run.ranks = static_cast<std::int64_t>(gathered.by_rank.size());
        run.remarks.push_back("The table does not give the number of ranks; it is taken to be the number of rows.");
    }
    if (run.ranks > most_ranks)
        throw usage_error("{} line {}: run {} has {} ranks; a trace holds up to {}", table.path, run.lines.front(),
                          run.name, run.ranks, most_ranks);
    run.rank.resize(static_cast<std::size_t>(run.ranks));
    run.whole = gathered.of_all.has_value();
    if (run.whole) std::fill(run.rank.begin(), run.rank.end(), *gathered.of_all);
    for (const auto& [rank, numbers] : gathered.by_rank) {
        if (rank >= run.ranks)
            throw usage_error("{} line {}: rank {} of run {}, which has {} ranks; they count from 0", table.path,
                              numbers.line, rank, run.name, run.ranks);
        run.rank[static_cast<std::size_t>(rank)] = numbers;
    }
}

void fill_in_totals(ImportedRun& run) {
    if (run.gives(TimeColumn::total)) return;
    bool any = false;
    for (ImportedRank& rank : run.rank) {
        rank.at(TimeColumn::total) = rank.parts_of_total();
        any = any || std::isfinite(rank.at(TimeColumn::total));
    }
    if (any) run.remarks.push_back("The table gives no total; it is taken to be the sum of the times that it gives.");
}

std::vector<std::string> check_columns(const CsvTable& table) {
    const std::vector<std::string> known = known_columns();
    const auto& names = table.header.fields;
    if (std::find(names.begin(), names.end(), "run") == names.end())
        throw usage_error("{} line {}: there is no column run; the columns are run, ranks, rank, total and others",
                          table.path, table.header.line);
    std::vector<std::string> warnings;
    for (const std::string& name : names) {
        if (std::find(known.begin(), known.end(), name) != known.end()) continue;
        const std::string nearest = nearest_name(name, known);
        warnings.push_back(fmt::format("the column '{}' is not known and left out{}", name,
                                       nearest.empty() ? "" : "; did you mean " + nearest + "?"));
    }
    return warnings;
}

double sum_of_known(const ImportedRank& rank, std::initializer_list<TimeColumn> columns) {
    double sum = unknown;
    for (const TimeColumn column : columns)
        if (const double value = rank.at(column); std::isfinite(value)) sum = std::isfinite(sum) ? sum + value : value;
    return sum;
}

}  // namespace

std::array<double, time_column_count> ImportedRank::filled_with_unknown() {
    std::array<double, time_column_count> seconds;
    seconds.fill(unknown);
    return seconds;
}

double ImportedRank::parts_of_compute() const {
    using enum TimeColumn;
    return sum_of_known(*this, {forward, loss, backward, optimizer});
}

double ImportedRank::parts_of_total() const {
    using enum TimeColumn;
    const double around =
        sum_of_known(*this, {data_loading, data_movement, communication, validation, checkpoint, initialization});
    const double computed = std::isfinite(at(compute)) ? at(compute) : parts_of_compute();
    if (!std::isfinite(computed)) return around;
    return std::isfinite(around) ? around + computed : computed;
}

bool ImportedRun::gives(TimeColumn column) const {
    return std::any_of(rank.begin(), rank.end(), [&](const auto& one) { return std::isfinite(one.at(column)); });
}

std::int64_t ImportedRun::setting(const std::string& key) const {
    const auto known = settings.find(key);
    return known == settings.end() ? 0 : known->second;
}

double ImportedRun::tokens_per_second() const {
    if (whole) return rank.front().tokens_per_second;
    double sum = 0;
    for (const ImportedRank& one : rank) sum += one.tokens_per_second;
    return sum;
}

double ImportedRun::slowest_total() const {
    double most = unknown;
    for (const ImportedRank& one : rank)
        if (const double total = one.at(TimeColumn::total); std::isfinite(total) && !(total <= most)) most = total;
    return most;
}

double ImportedRun::work() const {
    if (whole) return rank.front().at(TimeColumn::total) * rank.front().tokens_per_second;
    double sum = 0;
    for (const ImportedRank& one : rank) sum += one.at(TimeColumn::total) * one.tokens_per_second;
    return sum;
}

std::vector<ImportedRun> runs_of_table(const CsvTable& table, std::vector<std::string>& warnings) {
    warnings = check_columns(table);
    std::vector<Gathered> all;
    std::map<std::string, std::size_t> place;
    for (const CsvRow& cells : table.rows) {
        const Row row(table, cells);
        const std::string name = run_name(row, table.path);
        const auto [known, added] = place.emplace(name, all.size());
        if (added) {
            all.emplace_back();
            all.back().run.name = name;
        }
        take_row(table, row, all[known->second]);
    }
    std::vector<ImportedRun> runs;
    for (Gathered& gathered : all) {
        place_ranks(table, gathered);
        fill_in_totals(gathered.run);
        runs.push_back(std::move(gathered.run));
    }
    check_consistency(runs);
    return runs;
}

}  // namespace lockstep::analysis
