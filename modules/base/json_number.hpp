// Numbers of JSON from outside. A conversion of one that the type cannot hold, such as 1e300, is undefined.
#pragma once

#include <cstdint>
#include <utility>

namespace lockstep {

// Whether the value is a whole number, written as one, that the type holds. `Json`: of nlohmann's.
template <class Integer, class Json>
bool is_whole(const Json& value) {
    if (value.is_number_unsigned()) return std::in_range<Integer>(value.template get<std::uint64_t>());
    return value.is_number_integer() && std::in_range<Integer>(value.template get<std::int64_t>());
}

}  // namespace lockstep
