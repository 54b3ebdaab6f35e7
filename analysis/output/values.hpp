// Numbers that may be unknown, as cells and as JSON, and how both are printed.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "analysis/metrics/statistics.hpp"
#include "base/table.hpp"

namespace lockstep::analysis {

using Json = nlohmann::ordered_json;

// Nothing where the value is not finite.
Cell known(double value, double factor = 1);
Cell known_whole(double value);  // rounded

// For reading: numbers from 1e15 on, as a damaged or diverged run may have, with four digits instead of all of them.
std::string whole_words(double value);                // "124,298,064", "1.2e+18"
std::string fixed_words(double value, int decimals);  // "86.43", "1.2e+18"
Cell known_fixed(double value, double factor = 1);    // a number that its column's decimals show, or words

Json json_number(double value);
Json json_cell(const Cell& cell);
Json json_interval(const Interval& interval);  // [low, high]

// With a newline at the end. Names that are not UTF-8 lose what is not.
std::string json_text(const Json& json);

// Without the columns that say nothing of any row.
Table without_empty_columns(const Table& table);

// To stdout; throws where it cannot be written.
void print(const std::string& text);

}  // namespace lockstep::analysis
