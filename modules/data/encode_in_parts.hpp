// Internal: encode_text for tokenizers with parts(): each document's tokens are those of the document encoded at once.
#pragma once

#include "data/encode.hpp"

namespace lockstep::data {

void encode_in_parts(const TextFiles& text, const Tokenizer& tokenizer, const EncodeOptions& options,
                     const std::function<void(const void* tokens, std::size_t bytes)>& take);

}  // namespace lockstep::data
