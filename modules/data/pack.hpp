// `lockstep pack`: text files and folders to one token file. Format: docs/data.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer.hpp"

namespace lockstep::data {

struct PackOptions {
    std::vector<std::string> paths;
    std::string out;
    std::string tokenizer = "bytes";                  // as for open_tokenizer
    std::shared_ptr<const Tokenizer> kept_tokenizer;  // instead: a checkpoint's
    std::int64_t train_tokenizer = 0;  // > 0: first train a sentencepiece model with this many pieces on the text
    bool progress = true;              // show a status line on terminals
    std::size_t batch_bytes = std::size_t{32} << 20;  // of text in memory at a time; does not affect the result
};

struct PackResult {
    std::int64_t files = 0, skipped_files = 0, bytes = 0, tokens = 0, vocabulary = 0;
    double byte_entropy = 0;         // H(byte), nats, of the text with byte 0 between files
    double conditional_entropy = 0;  // H(byte | previous byte), nats
    std::uint64_t checksum = 0;      // XXH3 of the bytes of all tokens
};

// Writes to temporary files beside options.out (OUT.tmp, and OUT.tokens.tmp but with bytes), syncs and renames.
// Memory: two batches, whatever the size of the text. Usage errors: no text, an unknown tokenizer, an unsuitable number
// of pieces, a missing folder of OUT. Fault error: disk full; nothing is left behind.
PackResult pack(const PackOptions& options);

}  // namespace lockstep::data
