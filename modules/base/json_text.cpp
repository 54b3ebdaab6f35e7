#include "base/json_text.hpp"

#include <cstddef>

namespace lockstep {

bool nests_deeper(std::string_view json, int levels) {
    int depth = 0;
    bool quoted = false;
    for (std::size_t at = 0; at < json.size(); ++at) {
        const char character = json[at];
        if (quoted) {
            if (character == '\\') ++at;
            quoted = character != '"';
        } else if (character == '"') {
            quoted = true;
        } else if (character == '[' || character == '{') {
            if (++depth > levels) return true;
        } else if (character == ']' || character == '}') {
            --depth;
        }
    }
    return false;
}

}  // namespace lockstep
