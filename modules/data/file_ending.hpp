// Internal: what a file is by the end of its name.
#pragma once

#include <string_view>

namespace lockstep::data {

// Whether the path ends so, with something before it.
inline bool has_ending(std::string_view path, std::string_view ending) {
    return path.size() > ending.size() && path.ends_with(ending);
}

}  // namespace lockstep::data
