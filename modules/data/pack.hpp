// `lockstep pack`: text files and folders to one token file. Format: docs/data.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::data {

struct PackOptions {
    std::vector<std::string> paths;
    std::string out;
    std::string tokenizer = "bytes";   // "bytes" or a sentencepiece .model file
    std::int64_t train_tokenizer = 0;  // > 0: first train a sentencepiece model of so many pieces on the text
    bool progress = true;
};

struct PackResult {
    std::int64_t files = 0, skipped_files = 0, bytes = 0, tokens = 0, vocabulary = 0;
    double byte_entropy = 0;         // H(byte), nats
    double conditional_entropy = 0;  // H(byte | the byte before), nats
    std::uint64_t checksum = 0;
};

PackResult pack(const PackOptions& options);

}  // namespace lockstep::data
