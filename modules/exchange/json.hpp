// JSON from files that other programs wrote. Whatever is wrong with one is a damaged error that names the file.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lockstep::exchange {

using Json = nlohmann::json;  // with sorted keys, as transformers writes them

// An object, which nests at most deepest_json levels. `origin` names the text in errors.
Json parse_json_object(std::string_view text, const std::string& origin);
// From a file of at most `most_bytes`. Missing: usage error.
Json read_json_object(const std::string& path, std::uint64_t most_bytes);

// For sentences: a value of a file, or a name in it, in printable ASCII and cut after 80 characters. A name has no
// quotes.
std::string shown(const Json& value);
std::string shown_name(std::string_view name);

// What nlohmann says, without its prefix and not too long.
std::string json_problem(const std::exception& error);

}  // namespace lockstep::exchange
