// JSON texts from outside.
#pragma once

#include <string_view>

namespace lockstep {

// Of objects and arrays. The parser survives any depth, but copying, comparing and printing its result recurse.
inline constexpr int deepest_json = 64;
bool nests_deeper(std::string_view json, int levels = deepest_json);

// `Json`: of nlohmann's. Discarded where the text is not JSON or nests deeper than deepest_json.
template <class Json>
Json parse_json(std::string_view text) {
    return nests_deeper(text) ? Json(Json::value_t::discarded) : Json::parse(text, nullptr, false);
}

}  // namespace lockstep
