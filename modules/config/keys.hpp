// Every key of a run description, once: its path, where its value lives, its meaning. Reading, printing, checking
// words, the suggestions for misspelt keys and the documentation all go through this list. Internal to config/.
#pragma once

#include <cstdint>
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
using Member = std::variant<std::string*, Choice, bool*, std::int64_t*, std::uint64_t*, double*,
                            std::vector<std::string>*, Paths, PathsOrFraction, CountOrAuto>;

struct Key {
    std::string path;  // "model.ttt.gate"
    Member member;
    std::string meaning;
    std::vector<std::string> words;  // the allowed ones of a text; empty: any
    bool required = false;           // has no default of its own

    std::string section() const { return path.substr(0, path.rfind('.')); }
    std::string last_part() const { return path.substr(path.rfind('.') + 1); }
};

// The keys with pointers into `description`, in the order of the documentation. batch.ramp is given a value to point
// into.
std::vector<Key> keys_of(RunDescription& description);

std::string type_of(const Key& key);           // "integer", "one of "rms", "layer""
std::string value_of(const Key& key);          // as TOML
std::string toml_text(std::string_view text);  // as a TOML string

// Throws a usage error when `value` is not one of the key's words; `place` is where it was found ("" or "file:line: ").
void check_word(const Key& key, const std::string& value, const std::string& place);

// The preset as its table has it, before resolve(): keys given beside it still decide what follows from them.
ModelDescription preset_values(const std::string& name, const std::string& place);

}  // namespace lockstep::config
