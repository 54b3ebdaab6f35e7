// JSON from files that other programs wrote. Whatever is wrong with one is a damaged error that names the file.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lockstep::exchange {

using Json = nlohmann::ordered_json;

constexpr int deepest_json = 64;  // nested objects and arrays; more is refused before it takes memory

// An object. `origin` names the text in errors.
Json parse_json_object(std::string_view text, const std::string& origin);
// From a file of at most `most_bytes`. Missing: usage error.
Json read_json_object(const std::string& path, std::uint64_t most_bytes);

// What nlohmann says, without its prefix and not too long.
std::string json_problem(const std::exception& error);

}  // namespace lockstep::exchange
