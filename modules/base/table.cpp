#include "base/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/utf8.hpp"

namespace lockstep {
namespace {

std::string readable(const Cell& cell, int decimals) {
    if (const auto* whole = std::get_if<std::int64_t>(&cell)) return with_commas(*whole);
    if (const auto* number = std::get_if<double>(&cell))
        return std::isfinite(*number) ? fmt::format("{:.{}f}", *number, decimals) : "-";
    if (const auto* words = std::get_if<std::string>(&cell)) return *words;
    return "-";
}

std::string csv_cell(const Cell& cell) {
    if (const auto* whole = std::get_if<std::int64_t>(&cell)) return fmt::format("{}", *whole);
    if (const auto* number = std::get_if<double>(&cell))
        return std::isfinite(*number) ? fmt::format("{}", *number) : "";
    if (const auto* words = std::get_if<std::string>(&cell)) return csv_field(*words);
    return "";
}

bool is_number(const Cell& cell) {
    return std::holds_alternative<std::int64_t>(cell) || std::holds_alternative<double>(cell);
}

// Lines of at most `width` characters, broken between words.
std::vector<std::string> wrapped(const std::string& text, std::size_t width) {
    std::vector<std::string> lines(1);
    std::istringstream words(text);
    for (std::string word; words >> word;) {
        std::string& line = lines.back();
        if (line.empty())
            line = word;
        else if (character_count(line) + 1 + character_count(word) <= width)
            line += " " + word;
        else
            lines.push_back(word);
    }
    return lines;
}

// A column as it is printed: all rows' text, and its title on one line or several.
struct PrintedColumn {
    std::vector<std::string> title, cells;
    std::size_t width = 0;
    bool right = false;  // aligned so
    std::size_t cell_width() const {
        std::size_t most = 1;
        for (const std::string& cell : cells) most = std::max(most, character_count(cell));
        return most;
    }
    void set_title(std::vector<std::string> lines) {
        title = std::move(lines);
        width = cell_width();
        for (const std::string& line : title) width = std::max(width, character_count(line));
    }
};

std::vector<PrintedColumn> printed_columns(const std::vector<Column>& columns,
                                           const std::vector<std::vector<Cell>>& rows) {
    std::vector<PrintedColumn> printed(columns.size());
    for (std::size_t c = 0; c < columns.size(); ++c) {
        printed[c].right = !rows.empty();
        for (const auto& row : rows) {
            printed[c].cells.push_back(readable(row[c], columns[c].decimals));
            printed[c].right =
                printed[c].right && (is_number(row[c]) || std::holds_alternative<std::monostate>(row[c]));
        }
        printed[c].set_title({columns[c].title});
    }
    return printed;
}

std::size_t width_of(const std::vector<PrintedColumn>& columns) {
    std::size_t width = 0;
    for (const PrintedColumn& column : columns) width += column.width + 2;
    return width < 2 ? 0 : width - 2;
}

std::string print_aligned(const std::vector<PrintedColumn>& columns, bool markdown) {
    std::string out;
    const auto line = [&](const auto& text_of) {
        std::string text = markdown ? "| " : "";
        for (std::size_t c = 0; c < columns.size(); ++c) {
            if (c > 0) text += markdown ? " | " : "  ";
            const std::string cell = text_of(columns[c]);
            text += fmt::format(fmt::runtime(columns[c].right ? "{:>{}}" : "{:<{}}"), cell, columns[c].width);
        }
        if (markdown) text += " |";
        while (!text.empty() && text.back() == ' ') text.pop_back();
        out += text + "\n";
    };
    std::size_t lines = 0, rows = 0;
    for (const PrintedColumn& column : columns) {
        lines = std::max(lines, column.title.size());
        rows = column.cells.size();
    }
    for (std::size_t i = lines; i > 0; --i)
        line([&](const PrintedColumn& column) {
            return i > column.title.size() ? std::string() : column.title[column.title.size() - i];
        });
    if (markdown) {
        std::string rule = "|";
        for (const PrintedColumn& column : columns) rule += column.right ? "---:|" : "---|";
        out += rule + "\n";
    }
    for (std::size_t r = 0; r < rows; ++r) line([&](const PrintedColumn& column) { return column.cells[r]; });
    return out;
}

// Titles on several lines where one line is too wide; where that is not enough, columns below the others, each part
// with the first column. One column alone may be wider.
std::string print_folded(std::vector<PrintedColumn> columns) {
    if (width_of(columns) > widest_text) {
        constexpr std::size_t least_title = 9;
        for (PrintedColumn& column : columns)
            column.set_title(wrapped(column.title.front(), std::max(column.cell_width(), least_title)));
    }
    std::string out;
    for (std::size_t next = 0; next < columns.size();) {
        std::vector<PrintedColumn> part;
        if (next > 0) part.push_back(columns.front());
        const std::size_t repeated = part.size();
        while (next < columns.size()) {
            part.push_back(columns[next]);
            if (width_of(part) > widest_text && part.size() > repeated + 1) {
                part.pop_back();
                break;
            }
            ++next;
        }
        out += (out.empty() ? "" : "\n") + print_aligned(part, false);
    }
    return out;
}

nlohmann::ordered_json json_object(const std::vector<Column>& columns, const std::vector<Cell>& row) {
    nlohmann::ordered_json object = nlohmann::ordered_json::object();
    for (std::size_t c = 0; c < row.size(); ++c)
        std::visit(
            [&](const auto& value) {
                using Value = std::decay_t<decltype(value)>;
                if constexpr (std::is_same_v<Value, std::monostate>)
                    object[columns[c].name] = nullptr;
                else
                    object[columns[c].name] = value;
            },
            row[c]);
    return object;
}

// Names that are not UTF-8 lose their invalid bytes.
std::string json_text(const nlohmann::ordered_json& json) {
    return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string csv_field(const std::string& text) {
    if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
    std::string quoted = "\"";
    for (const char letter : text) quoted += letter == '"' ? "\"\"" : std::string(1, letter);
    return quoted + "\"";
}

TableFormat table_format(std::string_view name) {
    if (name == "text") return TableFormat::text;
    if (name == "markdown") return TableFormat::markdown;
    if (name == "csv") return TableFormat::csv;
    if (name == "json") return TableFormat::json;
    throw usage_error("--format '{}' is unknown; use text, markdown, csv or json", name);
}

void Table::add_row(std::vector<Cell> cells) {
    LOCKSTEP_ASSERT(cells.size() == columns_.size());
    rows_.push_back(std::move(cells));
}

std::string Table::print(TableFormat format) const {
    if (format == TableFormat::text) return print_folded(printed_columns(columns_, rows_));
    if (format == TableFormat::markdown) return print_aligned(printed_columns(columns_, rows_), true);
    if (format == TableFormat::csv) {
        std::string out;
        for (std::size_t c = 0; c < columns_.size(); ++c) out += (c > 0 ? "," : "") + csv_field(columns_[c].name);
        out += "\n";
        for (const auto& row : rows_) {
            for (std::size_t c = 0; c < row.size(); ++c) out += (c > 0 ? "," : "") + csv_cell(row[c]);
            out += "\n";
        }
        return out;
    }
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const auto& row : rows_) all.push_back(json_object(columns_, row));
    return json_text(all);
}

std::string Table::print_object() const {
    LOCKSTEP_ASSERT(!rows_.empty());
    return json_text(json_object(columns_, rows_[0]));
}

}  // namespace lockstep
