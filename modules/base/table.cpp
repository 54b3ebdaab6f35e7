#include "base/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

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

std::string print_aligned(const std::vector<Column>& columns, const std::vector<std::vector<Cell>>& rows,
                          bool markdown) {
    std::vector<std::size_t> widths;
    std::vector<bool> right;
    for (std::size_t c = 0; c < columns.size(); ++c) {
        std::size_t width = character_count(columns[c].title);
        bool numeric = !rows.empty();
        for (const auto& row : rows) {
            width = std::max(width, character_count(readable(row[c], columns[c].decimals)));
            numeric = numeric && (is_number(row[c]) || std::holds_alternative<std::monostate>(row[c]));
        }
        widths.push_back(width);
        right.push_back(numeric);
    }
    std::string out;
    const auto line = [&](const auto& text_of) {
        std::string text = markdown ? "| " : "";
        for (std::size_t c = 0; c < columns.size(); ++c) {
            if (c > 0) text += markdown ? " | " : "  ";
            const std::string cell = text_of(c);
            text += right[c] ? fmt::format("{:>{}}", cell, widths[c]) : fmt::format("{:<{}}", cell, widths[c]);
        }
        if (markdown) text += " |";
        while (!text.empty() && text.back() == ' ') text.pop_back();
        out += text + "\n";
    };
    line([&](std::size_t c) { return columns[c].title; });
    if (markdown) {
        std::string rule = "|";
        for (std::size_t c = 0; c < columns.size(); ++c) rule += right[c] ? "---:|" : "---|";
        out += rule + "\n";
    }
    for (const auto& row : rows) line([&](std::size_t c) { return readable(row[c], columns[c].decimals); });
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
    if (format == TableFormat::text || format == TableFormat::markdown)
        return print_aligned(columns_, rows_, format == TableFormat::markdown);
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
