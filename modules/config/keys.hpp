// Every key of a run description, once: its path, where its value lives, its meaning. Reading, printing, checking
// words, the suggestions for misspelt keys and the documentation all go through this list. Internal to config/.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/run_description.hpp"

namespace lockstep::config {

struct Paths {
    std::vector<std::string>* list;
};
struct PathsOrFraction {
    std::vector<std::string>* list;
    double* fraction;
};
struct CountOrAuto {  // 0 stands for "auto"
    std::int64_t* count;
};
// monostate: read elsewhere.
using Member = std::variant<std::string*, Choice, std::monostate, bool*, std::int64_t*, std::uint64_t*, double*,
                            std::vector<std::string>*, Paths, PathsOrFraction, CountOrAuto>;

struct Key {
    std::string path;  // "model.ttt.gate"
    Member member;
    std::string meaning;
    std::vector<std::string> words;  // the allowed ones of a text; empty: any
    bool required = false;           // has no default of its own
    double least = -std::numeric_limits<double>::max(), most = std::numeric_limits<double>::max();  // of a number
    bool* given = nullptr;  // set when a value is read

    std::string section() const {
        const std::size_t dot = path.rfind('.');
        return dot == std::string::npos ? "" : path.substr(0, dot);
    }
    std::string last_part() const { return path.substr(path.rfind('.') + 1); }
};

// The keys with pointers into `description`, in the order of the documentation. batch.ramp is given a value to point
// into.
std::vector<Key> keys_of(RunDescription& description);

std::string type_of(const Key& key);           // "integer", "one of "rms", "layer""
std::string value_of(const Key& key);          // as TOML
std::string toml_text(std::string_view text);  // as a TOML string
// TOML that reads back to the same values, by sections; `meanings`: as a comment on each line.
std::string print_keys(const std::vector<Key>& keys, bool meanings);

// Throws a usage error when the number is out of the key's range.
void check_range(const Key& key, double value, const std::string& place);
// Throws a usage error when `value` is not one of the key's words; `place` is where it was found ("" or "file:line: ").
void check_word(const Key& key, const std::string& value, const std::string& place);

bool is_section(const std::string& path, const std::vector<Key>& keys);
// Usage error that names the nearest known key.
[[noreturn]] void refuse_unknown_key(const std::string& path, const std::string& place, const std::vector<Key>& keys);

// The preset as its table has it, before resolve(): keys given beside it still decide what follows from them.
ModelDescription preset_values(const std::string& name, const std::string& place);

}  // namespace lockstep::config
