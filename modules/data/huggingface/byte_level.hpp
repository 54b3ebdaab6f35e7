// The alphabet of byte-level BPE (GPT-2): a printable character for each byte, in which tokenizer.json spells tokens.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep::data::huggingface {

std::string spelling_of(unsigned char byte);  // UTF-8

// The bytes that a token spells; none if it has a character that stands for no byte.
std::optional<std::string> bytes_spelt(std::string_view token);

}  // namespace lockstep::data::huggingface
