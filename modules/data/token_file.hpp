// A token file: what `lockstep pack` writes. HDF5, with the tokens as one contiguous dataset that is read through mmap.
// The format is in docs/data.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "data/mapped_file.hpp"

namespace lockstep::data {

struct TokenFileInfo {
    std::string path, program_version;
    std::string tokenizer_kind, tokenizer_model;  // as make_tokenizer takes them
    std::int64_t vocabulary = 0, token_count = 0, document_count = 0, byte_count = 0;
    double byte_entropy = 0, conditional_entropy = 0;  // nats
    std::uint64_t checksum = 0;                        // XXH3 of the bytes of all tokens
    std::size_t token_width = 0;                       // bytes of a token: 1, 2 or 4
    std::uint64_t offset = 0;                          // of the first token in the file

    std::uint64_t token_bytes() const { return static_cast<std::uint64_t>(token_count) * token_width; }
};

// Whether the file is HDF5 and says that it holds tokens. No such file: usage error.
bool is_token_file(const std::string& path);

// Everything but the tokens. Usage errors: no such file, not a token file, written by a newer program. Damaged errors:
// cut short, a dataset or attribute is missing or of another type, the tokenizer's checksum differs.
TokenFileInfo read_token_file_info(const std::string& path);

// Reads the whole file and compares its checksums; returns the bytes that were checked. Damaged error when they differ.
std::uint64_t verify_token_file(const std::string& path);

class TokenFile {
  public:
    explicit TokenFile(const std::string& path);  // errors as of read_token_file_info
    const TokenFileInfo& info() const { return info_; }
    const std::byte* tokens() const {
        return file_.data() + info_.offset;
    }  // token_count integers of token_width bytes

  private:
    TokenFileInfo info_;
    MappedFile file_;
};

}  // namespace lockstep::data
