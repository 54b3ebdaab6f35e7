// `lockstep pack`: text files and folders to one token file, or to a pair of files as Megatron-LM reads them. Formats:
// docs/data.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer.hpp"

namespace lockstep::data {

enum class PackFormat { lockstep, megatron };

struct PackOptions {
    std::vector<std::string> paths;
    std::string out;  // a file; for Megatron the prefix of OUT.bin and OUT.idx
    PackFormat format = PackFormat::lockstep;
    std::string jsonl_field = "text";                 // the text of a line of JSON Lines
    std::string tokenizer = "bytes";                  // as for open_tokenizer
    std::shared_ptr<const Tokenizer> kept_tokenizer;  // instead: a checkpoint's
    std::int64_t train_tokenizer = 0;  // > 0: first train a sentencepiece model with this many pieces on the text
    bool progress = true;              // show a status line on terminals
    std::size_t batch_bytes = std::size_t{32} << 20;  // of text in memory at a time; does not affect the result
};

struct PackResult {
    std::int64_t files = 0, skipped_files = 0, bytes = 0, tokens = 0, vocabulary = 0;
    std::int64_t documents = 0, empty_documents = 0;  // the latter are skipped
    double byte_entropy = 0;                          // H(byte), nats, of the text with byte 0 between documents
    double conditional_entropy = 0;                   // H(byte | previous byte), nats
    std::uint64_t checksum = 0;                       // XXH3 of the bytes of all tokens
};

// Writes to temporary files beside options.out (also for the tokens, where their number is known only at the end),
// syncs and renames. Memory: two batches, the longest line of JSON Lines, and for a token file 8 bytes a document,
// whatever the size of the text; with a tokenizer that encodes documents as a whole also the largest document and its
// tokens, and with one that does not split text some 50 bytes for each of its bytes. Usage errors: no text, an unknown
// tokenizer, an unsuitable number of pieces, a missing folder of OUT. Damaged error: JSON Lines that are none. Fault
// error: disk full; nothing is left behind.
PackResult pack(const PackOptions& options);

}  // namespace lockstep::data
