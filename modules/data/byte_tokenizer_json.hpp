// Internal: the tokenizer "bytes" as a tokenizer.json, for other programs: no merges, and each byte is the token of its
// number.
#pragma once

#include <string>

namespace lockstep::data {

std::string byte_tokenizer_json();
// Whether a file says the same, in whatever order and spacing.
bool is_byte_tokenizer_json(const std::string& text);

}  // namespace lockstep::data
