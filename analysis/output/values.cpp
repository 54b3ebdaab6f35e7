#include "analysis/output/values.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/format.hpp"

namespace lockstep::analysis {
namespace {

constexpr double largest = 1e15;  // doubles below it still resolve 1

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

Json json_validation(const std::optional<Validation>& validation) {
    if (!validation) return nullptr;
    return {{"step", validation->step},
            {"loss", json_number(validation->loss)},
            {"bits_per_byte", json_number(validation->bits_per_byte)},
            {"tokens", validation->tokens}};
}

std::string json_text(const Json& json, int indent) {
    return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::vector<Column> columns_named(std::initializer_list<const char*> names) {
    std::vector<Column> columns;
    for (const char* name : names) columns.push_back({name, ""});
    return columns;
}

Table without_empty_columns(const Table& table) {
    std::vector<Field<std::vector<Cell>>> fields;
    for (std::size_t c = 0; c < table.columns().size(); ++c)
        fields.push_back({table.columns()[c], [c](const std::vector<Cell>& row) { return row[c]; }, true});
    return table_of(table.rows(), fields);
}

void print(const std::string& text) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
        throw fault_error("the output cannot be written: {}", system_error_text());
}

void add_format_option(CLI::App& command, std::string& format, const std::string& of) {
    command.add_option("--format", format, of + "text, markdown, csv or json")
        ->check(CLI::IsMember({"text", "markdown", "csv", "json"}))
        ->capture_default_str();
}

}  // namespace lockstep::analysis
