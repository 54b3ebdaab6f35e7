// Values of a TOML text, found and assigned to keys: for run descriptions, their section [plan] and machine files
// alike. Internal to config/, but for the parser, which the analysis uses too.
#pragma once

#include <toml++/toml.h>

#include <cstdint>
#include <string>
#include <vector>

#include "config/keys.hpp"

namespace lockstep::config {

// One value that was given: where, for which key, and, from the command line, its text as typed.
struct Given {
    std::string path, place;
    const toml::node* node;
    std::string typed;
    std::uint32_t line = 0;
    std::string origin = {};  // the file's name
};

// Usage error where a key has so many parts, or a header such a key, that the parser would not survive it; parse_toml()
// calls it.
void check_nesting(std::string_view toml, const std::string& place);
// Usage error that names place, line and column. `place`: "file:" or "--set …: ".
toml::table parse_toml(const std::string& toml, const std::string& place);

// Every leaf below `table`, in the order of the lines. An empty table that is no section, and a table where a key wants
// a value, count as leaves. `origin`: the file's name, or "" for values of the command line, whose place is `place`.
// A table of the path `skipped` is left out.
std::vector<Given> collect(const toml::table& table, const std::string& prefix, const std::string& origin,
                           const std::string& place, const std::vector<Key>& keys, const std::string& skipped);

// The text that was given for a key.
std::string text_value(const Given& given, const Key& key);
// Checks type, words and range, and writes to the key's member. Usage errors.
void assign(const Given& given, const Key& key);

}  // namespace lockstep::config
