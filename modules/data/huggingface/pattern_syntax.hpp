// Regular expressions of tokenizer.json, which are in Oniguruma's syntax (Ruby's), in that of PCRE2.
#pragma once

#include <string>

namespace lockstep::data::huggingface {

// The same pattern for PCRE2 with UTF and UCP. What the two understand differently is spelt out (\s, \w, \p{Han}) or
// refused with a usage error that names `key`. Refused also: what looks back or asks for an end of the text (a text is
// divided among threads), and repetition of a repetition, which can take exponential time. Damaged error: what is no
// pattern there either, such as a group that is not closed.
std::string pcre2_syntax(const std::string& pattern, const std::string& key);

}  // namespace lockstep::data::huggingface
