// Endings of counted nouns.
#pragma once

namespace lockstep {

// "" for one, else the ending of the plural: fmt::format("{} rank{}", ranks, plural(ranks)).
template <class Count>
constexpr const char* plural(Count count, const char* ending = "s") {
    return count == Count{1} ? "" : ending;
}

}  // namespace lockstep
