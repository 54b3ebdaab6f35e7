// Values that may be unknown, as table cells and as JSON, and their printing.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "analysis/load/validations.hpp"
#include "analysis/metrics/statistics.hpp"
#include "base/table.hpp"

namespace CLI {
class App;
}

namespace lockstep::analysis {

using Json = nlohmann::ordered_json;

// Empty if the value is not finite.
Cell known(double value, double factor = 1);
Cell known_whole(double value);  // rounded

// For people: numbers from 1e15 up, as in a damaged or diverged run, are shortened to four digits.
std::string whole_words(double value);                // "124,298,064", "1.2e+18"
std::string fixed_words(double value, int decimals);  // "86.43", "1.2e+18"
Cell known_fixed(double value, double factor = 1);    // a number, or text if too large for fixed decimals

Json json_number(double value);
Json json_cell(const Cell& cell);
Json json_interval(const Interval& interval);                       // [low, high]
Json json_validation(const std::optional<Validation>& validation);  // null where there is none

// Ends with a newline. Invalid UTF-8 in names is replaced.
std::string json_text(const Json& json, int indent = 2);

// Columns of tables that only programs read, which have no titles.
std::vector<Column> columns_named(std::initializer_list<const char*> names);

// A column and how to compute its cell for each row; `optional`: left out if it is empty in all rows.
template <class Row>
struct Field {
    Column column;
    std::function<Cell(const Row&)> cell;
    bool optional = false;
};
template <class Row>
Table table_of(const std::vector<Row>& rows, const std::vector<Field<Row>>& fields) {
    std::vector<Column> columns;
    std::vector<std::vector<Cell>> cells(rows.size());
    for (const Field<Row>& field : fields) {
        bool any = !field.optional;
        for (std::size_t r = 0; r < rows.size(); ++r) {
            cells[r].push_back(field.cell(rows[r]));
            any = any || !std::holds_alternative<std::monostate>(cells[r].back());
        }
        if (any)
            columns.push_back(field.column);
        else
            for (auto& row : cells) row.pop_back();
    }
    Table table(std::move(columns));
    for (auto& row : cells) table.add_row(std::move(row));
    return table;
}
// Drops the columns that are empty in all rows.
Table without_empty_columns(const Table& table);

// Throws a fault if stdout cannot be written.
void print(const std::string& text);

// --format text, markdown, csv or json.
void add_format_option(CLI::App& command, std::string& format, const std::string& of = "");

}  // namespace lockstep::analysis
