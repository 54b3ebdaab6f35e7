// One key of a TOML file that people write: its path, where its value lives, its range and its meaning, said once.
// Reading, printing, suggestions for misspelt keys, fitting and the documentation go through lists of keys: run
// descriptions, machine descriptions and what a plan is asked.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "config/weighted_paths.hpp"
#include "config/words.hpp"

namespace lockstep::config {

// Texts, or tables of texts with weights; never both.
struct PathsOrMixture {
    std::vector<std::string>* list;
    std::vector<WeightedPaths>* mixture;
};
struct PathsOrFraction {
    std::vector<std::string>* list;
    double* fraction;
};
struct CountOrAuto {
    std::int64_t* count;
    std::int64_t automatic = 0;  // stands for "auto"
    std::int64_t least = 1;
};
// true, false, or a word for more than true: a Choice whose first two words are "false" and "true".
struct SwitchOrWord {
    Choice choice;
};
// One text, or a list of them; never empty.
struct TextOrList {
    std::vector<std::string>* list;
};
// One integer, or a list of them; never empty. Each lies in the key's range.
struct CountOrList {
    std::vector<std::int64_t>* list;
};
struct LayerTable;
// How many layers there are, or a table for each kind of them.
struct CountOrLayers {
    std::int64_t* count;
    std::vector<LayerTable>* tables;
};
struct ParameterGroup;
// Tables, possibly none.
struct ListOfGroups {
    std::vector<ParameterGroup>* list;
};
// monostate: read elsewhere.
using Member = std::variant<std::string*, Choice, std::monostate, bool*, std::int64_t*, std::uint64_t*, double*,
                            std::vector<std::string>*, TextOrList, CountOrList, PathsOrMixture, PathsOrFraction,
                            CountOrAuto, SwitchOrWord, CountOrLayers, ListOfGroups>;

struct Key {
    std::string path;  // "model.ttt.gate"
    Member member;
    std::string meaning;                                                                            // with its unit
    double least = -std::numeric_limits<double>::max(), most = std::numeric_limits<double>::max();  // of a number
    std::vector<std::string> words = {};  // the allowed ones of a text; empty: any
    bool required = false;                // has no default
    bool* given = nullptr;                // set when a value is read
    bool later = false;                   // resolved descriptions of older versions lack it and mean its default

    std::string section() const {
        const std::size_t dot = path.rfind('.');
        return dot == std::string::npos ? "" : path.substr(0, dot);
    }
    std::string last_part() const { return path.substr(path.rfind('.') + 1); }
};
inline Key required(Key key) {
    key.required = true;
    return key;
}
inline Key later(Key key) {
    key.later = true;
    return key;
}
inline Key one_of(std::vector<std::string> words, Key key) {
    key.words = std::move(words);
    return key;
}

// Reads the TOML text into the keys. Unknown and missing keys, wrong types and numbers out of range are usage errors
// that name `origin` (the file), the line and what is wanted.
// `where`: the table that has them, "" for the whole text; a text without that table gives nothing. `others_too`:
// unknown keys are skipped.
void read_keys(const std::string& toml, const std::string& origin, std::vector<Key> keys, const std::string& where = "",
               bool others_too = false);
// Tables of the list `where` ("plan.models": [[plan.models]]); they are "plan.models[0]" and so on.
std::size_t count_tables(const std::string& toml, const std::string& origin, const std::string& where);

// TOML that reads back to the same values, by sections; `meanings`: as a comment on each line.
std::string print_keys(const std::vector<Key>& keys, bool meanings);

}  // namespace lockstep::config
