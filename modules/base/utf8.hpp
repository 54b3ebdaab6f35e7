// UTF-8 text that may be truncated or damaged.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

struct Character {
    std::uint32_t code = 0;
    std::size_t bytes = 0;  // 0: not a valid character
};
// `text` must not be empty. Overlong forms, surrogates and code points beyond U+10FFFF are invalid.
Character first_character(std::string_view text);

// Characters; each invalid byte counts as one.
std::size_t character_count(std::string_view text);

// Position of the first invalid byte; npos: none.
std::size_t first_damage(std::string_view text);

// The length of the prefix that ends on a character boundary.
std::size_t whole_characters(std::string_view text);

}  // namespace lockstep
