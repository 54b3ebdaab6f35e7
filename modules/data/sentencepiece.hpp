// Internal: sentencepiece models, loading and training. Both throw a usage error in builds without sentencepiece.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/text_files.hpp"
#include "data/tokenizer.hpp"

namespace lockstep::data {

// `origin` names the model in errors. An unreadable model: damaged error.
std::unique_ptr<Tokenizer> make_sentencepiece(const std::string& model, const std::string& origin);

// Trains a BPE model with `pieces` pieces, including one per byte, on at most 32 MiB sampled evenly from the text.
// Deterministic. An unsuitable number of pieces: usage error.
std::string train_sentencepiece(const TextFiles& text, std::int64_t pieces, bool progress);

}  // namespace lockstep::data
