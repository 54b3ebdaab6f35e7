// Token files, written by `lockstep pack`: HDF5 with the tokens as one contiguous dataset that is read through mmap.
// Format: docs/data.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "data/mapped_file.hpp"
#include "data/tokenizer_files.hpp"

namespace lockstep::data {

// 1: of bytes, or with one sentencepiece model as /tokenizer_model; 2: with the files of a tokenizer.
inline constexpr std::int64_t first_token_file_version = 1, newest_token_file_version = 2;
// In files of both versions; older programs neither write nor read it.
inline constexpr const char* document_ends_path = "document_ends";

struct TokenFileInfo {
    std::string path, program_version;
    std::string tokenizer_kind;  // with the files, as for make_tokenizer
    TokenizerFiles tokenizer_files;
    std::int64_t vocabulary = 0, token_count = 0, document_count = 0, byte_count = 0;
    double byte_entropy = 0, conditional_entropy = 0;  // nats
    std::uint64_t checksum = 0;                        // XXH3 of the bytes of all tokens
    std::size_t token_width = 0;                       // bytes per token: 1, 2 or 4
    std::uint64_t offset = 0;                          // of the first token in the file
    std::int64_t document_end_count = 0;               // 0: an older lockstep packed it, without document ends

    std::uint64_t token_bytes() const { return static_cast<std::uint64_t>(token_count) * token_width; }
    // Whether a file of so many bytes has all tokens, with numbers of any size.
    bool fits_into(std::uint64_t file_bytes) const {
        return token_count >= 0 && offset <= file_bytes &&
               static_cast<std::uint64_t>(token_count) <= (file_bytes - offset) / token_width;
    }
};

// Whether the file is HDF5 marked as a token file. Missing file: usage error.
bool is_token_file(const std::string& path);

// Everything but the tokens and the document ends. Usage errors: missing, not a token file, written by a newer program.
// Damaged errors: truncated, a dataset or attribute missing or of another type, a wrong tokenizer checksum.
TokenFileInfo read_token_file_info(const std::string& path);

// Where its documents end, in tokens, strictly ascending, the last one token_count: a document has the boundary token
// behind it, and documents without tokens are left out. Usage error: the file does not say. Damaged errors: a wrong
// checksum, other numbers. Memory: 8 bytes a document.
std::vector<std::int64_t> read_document_ends(const TokenFileInfo& info);

// Reads the whole file and verifies its checksums and document ends; returns the bytes checked. Mismatch: damaged
// error.
std::uint64_t verify_token_file(const std::string& path);

class TokenFile {
  public:
    explicit TokenFile(const std::string& path);  // errors as for read_token_file_info
    const TokenFileInfo& info() const { return info_; }
    const std::byte* tokens() const {
        return file_.data() + info_.offset;
    }  // token_count integers of token_width bytes

  private:
    TokenFileInfo info_;
    MappedFile file_;
};

}  // namespace lockstep::data
