// Internal: tokenizers of Hugging Face's tokenizer.json, with byte-level BPE. Throws a usage error in builds without
// PCRE2 and utf8proc.
#pragma once

#include <memory>
#include <string>

#include "data/tokenizer.hpp"

namespace lockstep::data {

// `files` has tokenizer.json and may have tokenizer_config.json and special_tokens_map.json, which name the token
// between documents; others are only kept. `origin` names the tokenizer in errors, which are those of
// read_tokenizer_json.
std::unique_ptr<Tokenizer> make_huggingface(TokenizerFiles files, const std::string& origin);

}  // namespace lockstep::data
