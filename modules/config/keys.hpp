// Every key of a run description, once. Internal to config/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/key.hpp"
#include "config/run_description.hpp"

namespace lockstep::config {

// The keys with pointers into `description`, in the order of the documentation. batch.ramp is given a value to point
// into.
std::vector<Key> keys_of(RunDescription& description);
// Of one table of [[model.layers]], and of one of optimizer.groups: their last parts.
std::vector<Key> keys_of(LayerTable& layer);
std::vector<Key> keys_of(ParameterGroup& group);

std::string type_of(const Key& key);           // "integer", "one of "rms", "layer""
std::string value_of(const Key& key);          // as TOML
std::string toml_text(std::string_view text);  // as a TOML string
// As one, or as a list of several.
std::string toml_text(const std::vector<std::string>& texts);
std::string toml_text(const std::vector<std::int64_t>& numbers);  // one, or a list

// Throws a usage error when the number is out of the key's range.
void check_range(const Key& key, double value, const std::string& place);
// Throws a usage error when `value` is not one of the key's words; `place` is where it was found ("" or "file:line: ").
void check_word(const Key& key, const std::string& value, const std::string& place);

bool is_section(const std::string& path, const std::vector<Key>& keys);
// Usage error that names the nearest known key.
[[noreturn]] void refuse_unknown_key(const std::string& path, const std::string& place, const std::vector<Key>& keys);

}  // namespace lockstep::config
