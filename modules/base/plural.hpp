// Plural endings.
#pragma once

namespace lockstep {

// "" for one, else the plural ending: fmt::format("{} rank{}", ranks, plural(ranks)).
template <class Count>
constexpr const char* plural(Count count, const char* ending = "s") {
    return count == Count{1} ? "" : ending;
}

}  // namespace lockstep
