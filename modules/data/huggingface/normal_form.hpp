// What happens to a text before it is split: invalid UTF-8 is replaced, then Unicode's normalization form C (UAX #15).
// Both leave most texts as they are, and then cost one look.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "data/huggingface/text_changes.hpp"

namespace lockstep::data::huggingface {

// U+FFFD for each maximal part of an ill-formed sequence, as Python's errors="replace" and the Unicode Standard (3.9)
// have it. Returns `text`, or `copy` if it differs.
std::string_view replace_damage(std::string_view text, std::string& copy, TextChanges& changes);

// `text` is valid UTF-8. Returns it, or `copy` if it differs. No change begins or ends where the form of the text
// behind depends on what is before.
std::string_view compose(std::string_view text, std::string& copy, TextChanges& changes);

// The form of text[0, n) does not depend on what follows `text`.
std::size_t composed_for_good(std::string_view text);

// The largest position up to `at` that is not inside of a character.
std::size_t whole_characters_before(std::string_view text, std::size_t at);

}  // namespace lockstep::data::huggingface
