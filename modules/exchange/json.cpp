#include "exchange/json.hpp"

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/json_text.hpp"
#include "base/open_file.hpp"

namespace lockstep::exchange {

namespace {

constexpr std::size_t longest_shown = 80;

std::string bounded(std::string text) {
    if (text.size() <= longest_shown) return text;
    text.resize(longest_shown);
    return text + "…";
}

std::string escaped(const Json& value) {
    std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    // JSON lets it stand as it is.
    for (std::size_t at = 0; (at = text.find('\x7f', at)) != std::string::npos;) text.replace(at, 1, "\\u007f");
    return text;
}

}  // namespace

std::string shown(const Json& value) {
    return bounded(escaped(value));
}

std::string shown_name(std::string_view name) {
    const std::string text = escaped(Json(name));
    return bounded(text.substr(1, text.size() - 2));
}

std::string json_problem(const std::exception& error) {
    constexpr std::size_t longest = 200;
    const std::string text = error.what();
    const std::size_t at = text.find("] ");
    return text.substr(at == std::string::npos ? 0 : at + 2, longest);
}

Json parse_json_object(std::string_view text, const std::string& origin) {
    if (nests_deeper(text)) throw damaged_error("{} nests JSON deeper than {} levels", origin, deepest_json);
    Json parsed;
    try {
        parsed = Json::parse(text);
    } catch (const Json::exception& error) {
        throw damaged_error("{} is not JSON: {}", origin, json_problem(error));
    }
    if (!parsed.is_object()) throw damaged_error("{} is not a JSON object", origin);
    return parsed;
}

Json read_json_object(const std::string& path, std::uint64_t most_bytes) {
    const OpenFile file = OpenFile::for_reading(path);
    const std::uint64_t bytes = file.bytes();
    if (bytes > most_bytes)
        throw damaged_error("{} has {} bytes; at most {} are read", path, with_commas(static_cast<std::int64_t>(bytes)),
                            with_commas(static_cast<std::int64_t>(most_bytes)));
    std::string text(bytes, '\0');
    file.read(text.data(), bytes, 0);
    return parse_json_object(text, path);
}

}  // namespace lockstep::exchange
