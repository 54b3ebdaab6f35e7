#include "analysis/output/values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/error.hpp"
#include "base/format.hpp"

namespace lockstep::analysis {
namespace {

constexpr double largest = 1e15;  // what a double still counts by ones

}  // namespace

Cell known(double value, double factor) {
    if (std::isfinite(value)) return value * factor;
    return {};
}

Cell known_whole(double value) {
    if (std::isfinite(value) && std::abs(value) < largest) return static_cast<std::int64_t>(std::llround(value));
    return {};
}

std::string whole_words(double value) {
    return std::abs(value) < largest ? with_commas(std::llround(value)) : fmt::format("{:.4g}", value);
}

std::string fixed_words(double value, int decimals) {
    return std::abs(value) < largest ? fmt::format("{:.{}f}", value, decimals) : fmt::format("{:.4g}", value);
}

Cell known_fixed(double value, double factor) {
    if (std::abs(value * factor) < largest || !std::isfinite(value)) return known(value, factor);
    return fmt::format("{:.4g}", value * factor);
}

Json json_number(double value) {
    return std::isfinite(value) ? Json(value) : Json(nullptr);
}

Json json_cell(const Cell& cell) {
    if (const auto* whole = std::get_if<std::int64_t>(&cell)) return *whole;
    if (const auto* number = std::get_if<double>(&cell)) return json_number(*number);
    if (const auto* words = std::get_if<std::string>(&cell)) return *words;
    return nullptr;
}

Json json_interval(const Interval& interval) {
    return interval.known() ? Json{interval.low, interval.high} : Json(nullptr);
}

std::string json_text(const Json& json) {
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Table without_empty_columns(const Table& table) {
    std::vector<std::size_t> kept;
    std::vector<Column> columns;
    for (std::size_t c = 0; c < table.columns().size(); ++c)
        if (std::any_of(table.rows().begin(), table.rows().end(),
                        [&](const auto& row) { return !std::holds_alternative<std::monostate>(row[c]); })) {
            kept.push_back(c);
            columns.push_back(table.columns()[c]);
        }
    Table shorter(columns);
    for (const auto& row : table.rows()) {
        std::vector<Cell> cells;
        for (const std::size_t c : kept) cells.push_back(row[c]);
        shorter.add_row(std::move(cells));
    }
    return shorter;
}

void print(const std::string& text) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
        throw fault_error("the output cannot be written: {}", system_error_text());
}

}  // namespace lockstep::analysis
