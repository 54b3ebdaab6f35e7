#include "analysis/exchange/imported_table.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include <fmt/ranges.h>

#include "analysis/exchange/imported_columns.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/plural.hpp"

namespace lockstep::analysis {
namespace {

constexpr std::int64_t most_ranks = 1 << 17;   // as many as a trace can hold
constexpr std::int64_t most_of_all = 1 << 20;  // ranks of all runs together: a few bytes name many, and all take memory
// Far beyond what is measured, so that a slip of the pen is seen and sums and products stay finite.
constexpr std::int64_t most_degree = 1 << 20, most_sequences = std::int64_t{1} << 40,
                       most_tokens = 1'000'000'000'000'000'000, most_bytes = std::int64_t{1} << 60;
constexpr double least_measured = 1e-12, most_measured = 1e12;  // seconds, tokens/s

// The columns of which a run has one value, with the least and the most that make sense.
struct SettingColumn {
    const char* name;
    std::int64_t least, most;
};
constexpr std::array<SettingColumn, 9> setting_columns = {{{"ranks", 1, most_ranks},
                                                           {"batch", 1, most_sequences},
                                                           {"accumulation", 1, most_sequences},
                                                           {"length", 1, most_sequences},
                                                           {"data", 1, most_degree},
                                                           {"tensor", 1, most_degree},
                                                           {"pipeline", 1, most_degree},
                                                           {"context", 1, most_degree},
                                                           {"tokens", 0, most_tokens}}};

std::vector<std::string> known_columns() {
    std::vector<std::string> names = {"run", "rank", "tokens_per_second", "peak_memory_bytes"};
    for (const auto& column : setting_columns) names.emplace_back(column.name);
    names.insert(names.end(), time_column_names.begin(), time_column_names.end());
    return names;
}

// One row of the table, its cells by the columns' names.
class Row {
  public:
    Row(const CsvTable& table, const ImportedColumns& columns, const CsvRow& row)
        : table_(table), columns_(columns), row_(row) {}
    std::size_t line() const { return row_.line; }

    bool has(const std::string& column) const { return columns_.has(column); }
    std::string text(const std::string& column) const { return columns_.text(row_, column); }
    std::optional<double> number(const std::string& column) const {
        const std::string word = text(column);
        if (word.empty()) return std::nullopt;
        double value = 0;
        const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), value);
        if (problem == std::errc::result_out_of_range) throw wrong(column, "is too large or too small");
        if (problem != std::errc{} || end != word.data() + word.size() || !std::isfinite(value))
            throw wrong(column, "is not a number; write numbers like 1234.5");
        if (value < 0) throw wrong(column, "is negative");
        return value;
    }
    // Seconds or tokens/s; unknown where the cell is empty.
    double measured(const std::string& column) const {
        const auto value = number(column);
        if (!value) return unknown;
        if (*value > most_measured) throw wrong(column, "is more than 1e12");
        if (*value > 0 && *value < least_measured) throw wrong(column, "is less than 1e-12, but not 0");
        return *value;
    }
    std::optional<std::int64_t> whole_number(const std::string& column, std::int64_t least, std::int64_t most) const {
        const auto value = number(column);
        if (!value) return std::nullopt;
        if (*value != std::floor(*value)) throw wrong(column, "is not a whole number");
        if (*value < static_cast<double>(least)) throw wrong(column, fmt::format("is less than {}", least));
        const auto beyond = [&] { return wrong(column, fmt::format("is more than {}", most)); };
        if (*value > static_cast<double>(most)) throw beyond();
        // Beyond 2^53 a double does not hold every whole number.
        const std::string word = text(column);
        std::int64_t digits = 0;
        const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), digits);
        const bool exact = problem == std::errc{} && end == word.data() + word.size();
        if (exact && digits > most) throw beyond();
        return exact ? digits : static_cast<std::int64_t>(*value);
    }
    Error wrong(const std::string& column, const std::string& how) const {
        return usage_error("{} line {}: {} '{}' {}", table_.path, row_.line, printable(columns_.written(column)),
                           printable(text(column)), how);
    }

  private:
    const CsvTable& table_;
    const ImportedColumns& columns_;
    const CsvRow& row_;
};

// Of a table without names: "ranks-8", and "ranks-8-2" for the second row with 8.
std::string name_by_ranks(const Row& row, const std::string& path, std::map<std::string, int>& taken) {
    const auto ranks = row.whole_number("ranks", 1, most_ranks);
    if (!ranks)
        throw usage_error(
            "{} line {}: the run has neither a name nor a number of ranks; fill in ranks, or add a "
            "column run",
            path, row.line());
    const std::string name = fmt::format("ranks-{}", *ranks);
    const int number = row.has("rank") ? 1 : ++taken[name];
    return number == 1 ? name : fmt::format("{}-{}", name, number);
}

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
    for (std::size_t i = 0; i < time_column_count; ++i) rank.seconds[i] = row.measured(time_column_names[i]);
    rank.tokens_per_second = row.measured("tokens_per_second");
    rank.peak_memory = row.whole_number("peak_memory_bytes", 0, most_bytes).value_or(0);
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
        const auto value = row.whole_number(column.name, column.least, column.most);
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
    const auto rank = row.whole_number("rank", 0, most_ranks - 1);
    if (rank) {
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
            "{} line {}: run {} has a row for all of its ranks and rows of single ranks; give one or the other",
            table.path, row.line(), run.name);
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
        run.remarks.push_back("The table does not give the number of ranks; the number of rows is assumed.");
    }
    run.rank.resize(static_cast<std::size_t>(run.ranks));
    run.whole = gathered.of_all.has_value();
    if (run.whole) std::fill(run.rank.begin(), run.rank.end(), *gathered.of_all);
    for (const auto& [rank, numbers] : gathered.by_rank) {
        if (rank >= run.ranks)
            throw usage_error("{} line {}: rank {} of run {}, which has {} rank{}; ranks count from 0", table.path,
                              numbers.line, rank, run.name, run.ranks, plural(run.ranks));
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
    if (any) {
        run.remarks.push_back("The table gives no total; the sum of the times it gives is assumed.");
        return;
    }
    // Published tables often have rates only.
    const double rate = run.rank.front().tokens_per_second;
    if (!run.whole || !(rate > 0)) return;
    double tokens = static_cast<double>(run.setting("tokens"));
    if (tokens > 0) {
        run.remarks.push_back("The table gives a rate and no time; tokens / tokens_per_second is assumed.");
    } else {
        tokens = static_cast<double>(run.setting("batch")) * static_cast<double>(run.setting("length"));
        if (!(tokens > 0)) return;
        run.remarks.push_back(
            "The table gives a rate and no time; the time is that of one step, batch * length / tokens_per_second.");
    }
    for (ImportedRank& rank : run.rank) rank.at(TimeColumn::total) = tokens / rate;
}

// Memory and settings alone say nothing about scaling.
void check_measured(const CsvTable& table, const ImportedColumns& columns, const ImportedRun& run) {
    if (run.gives(TimeColumn::total)) return;
    if (std::any_of(run.rank.begin(), run.rank.end(),
                    [](const ImportedRank& rank) { return std::isfinite(rank.tokens_per_second); }))
        return;
    const auto& ignored = columns.ignored();
    throw usage_error(
        "{} line {}: run {} has neither a time nor a rate; give the seconds of the whole run in a column total (or "
        "time), or tokens_per_second{}",
        table.path, run.lines.front(), run.name,
        ignored.empty() ? "" : fmt::format(". Columns not recognized: {}", fmt::join(ignored, ", ")));
}

// One rank has nobody to communicate with. Elsewhere what is not given stays unknown, and takes figures with it.
void settle_communication(std::vector<ImportedRun>& runs) {
    using enum TimeColumn;
    if (std::none_of(runs.begin(), runs.end(), [](const ImportedRun& run) { return run.gives(communication); })) return;
    for (ImportedRun& run : runs) {
        if (run.gives(communication)) continue;
        if (run.ranks > 1) {
            run.remarks.push_back(
                "The table gives communication for other runs but not for this one; figures that need it are left out.");
            continue;
        }
        run.rank.front().at(communication) = 0;
        run.remarks.push_back("A single rank communicates with no one: its communication is assumed to be 0.");
    }
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
    warnings.clear();
    const ImportedColumns columns(table, known_columns(), warnings);
    std::vector<Gathered> all;
    std::map<std::string, std::size_t> place;
    std::map<std::string, int> taken;
    for (const CsvRow& cells : table.rows) {
        const Row row(table, columns, cells);
        const std::string name = columns.has("run") ? run_name(row, table.path) : name_by_ranks(row, table.path, taken);
        const auto [known, added] = place.emplace(name, all.size());
        if (added) {
            all.emplace_back();
            all.back().run.name = name;
        }
        take_row(table, row, all[known->second]);
    }
    std::vector<ImportedRun> runs;
    std::int64_t ranks = 0;
    for (Gathered& gathered : all) {
        place_ranks(table, gathered);
        ranks += gathered.run.ranks;
        if (ranks > most_of_all)
            throw usage_error("{} line {}: the runs up to {} have more than {} ranks together; divide the table",
                              table.path, gathered.run.lines.front(), gathered.run.name, most_of_all);
        fill_in_totals(gathered.run);
        check_measured(table, columns, gathered.run);
        runs.push_back(std::move(gathered.run));
    }
    settle_communication(runs);
    check_consistency(runs);
    return runs;
}

}  // namespace lockstep::analysis
