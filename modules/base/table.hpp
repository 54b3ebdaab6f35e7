// A table printed as text, markdown, csv or json. Cells are typed: text prints them rounded, csv and json keep every
// digit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lockstep {

enum class TableFormat { text, markdown, csv, json };
TableFormat table_format(std::string_view name);  // throws a usage error that names the four

// As a field of a CSV file (RFC 4180): in quotes where it holds a comma, a quote or an end of line.
std::string csv_field(const std::string& text);

struct Column {
    std::string name;   // snake_case: the json key and csv header
    std::string title;  // what text and markdown show, with the unit: "forward, s"
    int decimals = 3;   // of floating-point cells in text and markdown
};

using Cell = std::variant<std::monostate, std::int64_t, double, std::string>;

class Table {
  public:
    explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
    void add_row(std::vector<Cell> cells);
    std::string print(TableFormat format) const;  // json: an array of objects; ends with a newline
    std::string print_object() const;             // json of the first row alone, for tables of one row
    const std::vector<Column>& columns() const { return columns_; }
    const std::vector<std::vector<Cell>>& rows() const { return rows_; }

  private:
    std::vector<Column> columns_;
    std::vector<std::vector<Cell>> rows_;
};

}  // namespace lockstep
