// Internal: multithreaded tokenization of text files to one token stream, and byte statistics of the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/text_files.hpp"
#include "data/tokenizer.hpp"

namespace lockstep::data {

// "312 of 1,228 MiB (25 %), 95 MiB/s, 9.6 s left": one unit for all three, that of the total.
std::string progress_text(double done_bytes, double total_bytes, double bytes_per_second);

// A status line with progress, rate and time left, updated at most four times a second; cleared at the end.
class Progress {
  public:
    Progress(std::string title, std::uint64_t total_bytes, bool shown);
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    void show(std::uint64_t done_bytes);

  private:
    std::string title_;
    std::uint64_t total_;
    bool shown_;
    double begun_, last_shown_;
};

// Counts bytes and pairs of adjacent bytes of a stream that arrives in parts.
class ByteStatistics {
  public:
    ByteStatistics() : pairs_(256 * 256) {}
    void add(std::string_view bytes);
    double entropy() const;              // per byte, nats
    double conditional_entropy() const;  // per byte given the previous one, nats

  private:
    std::vector<std::uint64_t> pairs_;  // [before][byte]
    std::uint64_t total_ = 0;
    unsigned char first_ = 0, last_ = 0;
};

// The low `width` bytes of each token, little-endian.
void append_tokens(const std::vector<std::int32_t>& tokens, std::size_t width, std::string& out);

struct EncodeOptions {
    std::size_t batch_bytes = std::size_t{32} << 20;  // of text read at a time; does not affect the result
    std::string title = "packing";
    bool progress = true;
    std::size_t part_bytes = std::size_t{64} << 10;  // of a document encoded at a time; does not affect the result
    ByteStatistics* statistics = nullptr;            // of the text with byte 0 between documents
    // Called for each document, before `take` gets it, with the position of its first token in the stream; the boundary
    // before it is not its own.
    std::function<void(std::uint64_t position)> begin_document = {};
};

struct EncodeResult {
    std::uint64_t text_bytes = 0;  // without document boundaries
    std::int64_t documents = 0, empty_documents = 0;
};

// Passes the tokens of all files to `take`, in order, as unsigned integers of token_width() bytes, with the tokenizer's
// boundary between documents. Independent of the number of threads. Errors of TextReader.
EncodeResult encode_text(const TextFiles& text, const Tokenizer& tokenizer, const EncodeOptions& options,
                         const std::function<void(const void* tokens, std::size_t bytes)>& take);

}  // namespace lockstep::data
