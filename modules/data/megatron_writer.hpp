// Internal: writes Megatron-LM's indexed data sets (format MMIDIDX), whose layout is in docs/data.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "base/open_file.hpp"

namespace lockstep::data {

// As Megatron chooses it: uint16 for vocabularies below 65,500, else int32.
std::size_t megatron_token_width(std::int64_t vocabulary);

class MegatronWriter {
  public:
    // The two files; `given_width`: bytes of the tokens to come. A document has one sequence, or several where it has
    // more than `longest_sequence` tokens.
    MegatronWriter(const std::string& tokens, const std::string& index, std::size_t given_width,
                   std::int64_t vocabulary, std::uint64_t longest_sequence = std::uint64_t{1} << 30);
    // The next document's first token is at this position of all tokens given; everything before belongs to earlier
    // ones.
    void begin_document(std::uint64_t position);
    void take(const void* tokens, std::size_t bytes);
    // Writes the index and syncs both files. Memory: 64 KiB, whatever the number of documents.
    void finish();

    std::uint64_t tokens() const { return given_; }
    std::int64_t documents() const { return static_cast<std::int64_t>(documents_); }
    std::uint64_t checksum() const { return hasher_.digest(); }  // of the bytes as written

  private:
    void end_document(std::uint64_t position);
    void add_length(std::uint64_t length);
    void write_index(const void* data, std::size_t bytes);
    void write_offsets();
    void write_documents();

    OpenFile tokens_, index_;
    Hasher hasher_;
    std::size_t given_width_, width_;
    std::uint64_t longest_sequence_;
    std::uint64_t written_ = 0, index_end_ = 0;  // bytes in the files
    std::uint64_t given_ = 0, begin_ = 0;        // tokens; of the current document
    std::uint64_t sequences_ = 0, documents_ = 0;
    std::vector<std::uint64_t> continuing_;  // sequences that do not begin a document
    std::string part_;                       // of the index, not yet written
};

}  // namespace lockstep::data
