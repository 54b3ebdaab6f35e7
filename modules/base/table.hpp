// Tables printed as text, markdown, csv or json. Cells are typed: text rounds them, csv and json keep all digits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lockstep {

inline constexpr std::size_t widest_text = 120;  // characters of a line; wider tables are folded

enum class TableFormat { text, markdown, csv, json };
TableFormat table_format(std::string_view name);  // throws a usage error that lists the four

// A CSV field (RFC 4180): quoted if it has a comma, quote or newline.
std::string csv_field(const std::string& text);

struct Column {
    std::string name;   // snake_case: the json key and csv header
    std::string title;  // header in text and markdown, with the unit: "forward, s"
    int decimals = 3;   // digits of floating-point cells in text and markdown
};

using Cell = std::variant<std::monostate, std::int64_t, double, std::string>;

class Table {
  public:
    explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
    void add_row(std::vector<Cell> cells);
    std::string print(TableFormat format) const;  // json: an array of objects; ends with a newline
    std::string print_object() const;             // json of the first row only, for one-row tables
    const std::vector<Column>& columns() const { return columns_; }
    const std::vector<std::vector<Cell>>& rows() const { return rows_; }

  private:
    std::vector<Column> columns_;
    std::vector<std::vector<Cell>> rows_;
};

}  // namespace lockstep
