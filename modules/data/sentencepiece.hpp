// Inside the module: sentencepiece models, used and trained. Without sentencepiece in the build both throw a usage
// error.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/text_files.hpp"
#include "data/tokenizer.hpp"

namespace lockstep::data {

// `origin` names the model in errors. A model that cannot be read: damaged error.
std::unique_ptr<Tokenizer> make_sentencepiece(const std::string& model, const std::string& origin);

// A BPE model of `pieces` pieces with a piece for every byte, from at most 32 MiB of the text taken evenly from all of
// it. The same text gives the same model. A number of pieces that does not suit the text: usage error.
std::string train_sentencepiece(const TextFiles& text, std::int64_t pieces, bool progress);

}  // namespace lockstep::data
