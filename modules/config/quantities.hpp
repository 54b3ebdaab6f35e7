// A description file that is a list of named numbers and texts: each with its place in the TOML file, its range and its
// meaning, said once. Reading, printing, fitting and the documentation go through this list.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "config/words.hpp"

namespace lockstep::config {

struct Quantity {
    std::string path;                                                   // "network.gb_per_second"
    std::variant<double*, std::string*, Choice, std::monostate> value;  // monostate: read elsewhere
    std::string meaning;                                                // with its unit
    double least = 0, most = 1e300;                                     // of a number, both allowed
    std::vector<std::string> words = {};                                // allowed texts; empty: any
    bool required = false;                                              // else the default stays
};

// Reads the TOML text into the quantities. Unknown and missing keys, wrong types and numbers out of range are usage
// errors that name `origin` (the file), the line and what is wanted.
// `where`: the table that has them, "" for the whole text; a text without that table gives nothing. `others_too`:
// unknown keys are skipped.
void read_quantities(const std::string& toml, const std::string& origin, std::vector<Quantity>& quantities,
                     const std::string& where = "", bool others_too = false);
// Tables of the list `where` ("plan.models": [[plan.models]]); they are "plan.models[0]" and so on.
std::size_t count_tables(const std::string& toml, const std::string& origin, const std::string& where);

std::string read_text_file(const std::string& path);
void read_quantity_file(const std::string& path, std::vector<Quantity>& quantities);

// TOML that reads back to the same values, one comment a line with the meaning.
std::string quantities_to_toml(const std::vector<Quantity>& quantities);

}  // namespace lockstep::config
