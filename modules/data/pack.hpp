// `lockstep pack`: text files and folders to one token file. Format: docs/data.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::data {

struct PackOptions {
    std::vector<std::string> paths;
    std::string out;
    std::string tokenizer = "bytes";   // "bytes" or a sentencepiece .model file
    std::int64_t train_tokenizer = 0;  // > 0: first train a sentencepiece model of so many pieces on the text
    bool progress = true;              // a status line, on a terminal
    std::size_t batch_bytes = std::size_t{32} << 20;  // of text in memory at a time; changes nothing in the result
};

struct PackResult {
    std::int64_t files = 0, skipped_files = 0, bytes = 0, tokens = 0, vocabulary = 0;
    double byte_entropy = 0;         // H(byte), nats, of the text with byte 0 between files
    double conditional_entropy = 0;  // H(byte | the byte before), nats
    std::uint64_t checksum = 0;      // XXH3 of the bytes of all tokens
};

// Writes options.out beside its name (OUT.tmp, and OUT.tokens.tmp while a sentencepiece model works), syncs it and
// renames it. Needs memory for two batches, whatever the size of the text. Usage errors: no text, an unknown tokenizer,
// a number of pieces that does not suit the text, OUT in a folder that does not exist. Fault error: a full disk;
// nothing is left behind.
PackResult pack(const PackOptions& options);

}  // namespace lockstep::data
