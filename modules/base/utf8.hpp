// Text in UTF-8 that may be cut or damaged.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

struct Character {
    std::uint32_t code = 0;
    std::size_t bytes = 0;  // 0: the text does not begin with a character
};
// `text` must not be empty. Overlong forms, surrogates and what lies beyond U+10FFFF are no characters.
Character first_character(std::string_view text);

// Characters; each byte that belongs to none counts as one.
std::size_t character_count(std::string_view text);

// Where the first byte lies that belongs to no character; npos: all of it is UTF-8.
std::size_t first_damage(std::string_view text);

// How many bytes of `text` to take so that no character at its end is cut.
std::size_t whole_characters(std::string_view text);

}  // namespace lockstep
