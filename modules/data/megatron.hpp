// Internal: Megatron-LM's indexed data sets. PREFIX.bin has the tokens of all sequences, PREFIX.idx says where each
// begins and which make a document. Both of its formats are read: MMIDIDX, and the older TNTIDX. Layout: docs/data.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/mapped_file.hpp"

namespace lockstep::data {

struct MegatronPaths {
    std::string tokens, index;
};

// The pair that `path` means: one of its files, or PREFIX where nothing has that name. None: a .bin file without an
// .idx beside it, any other path. Usage error: an .idx file without its .bin.
std::optional<MegatronPaths> find_megatron(const std::string& path);

class MegatronFile {
  public:
    // Consecutive tokens of the .bin file, in the order of the index; one run unless the index jumps.
    struct Run {
        std::uint64_t offset = 0;  // of the first token, bytes
        std::uint64_t tokens = 0;
    };

    // Reads the index; tokens stay on disk. Damaged errors: an index that is truncated, inconsistent, or names bytes
    // that the .bin file lacks. Usage errors: numbers that are no integers, multimodal data. Memory: 16 bytes per run,
    // and with document ends 8 bytes a document.
    explicit MegatronFile(const MegatronPaths& paths, bool with_document_ends = false);

    const MappedFile& file() const { return file_; }
    std::size_t width() const { return width_; }  // bytes per token: 1, 2, 4 or 8
    bool has_sign() const { return has_sign_; }   // of the type; a token is never negative
    const std::vector<Run>& runs() const { return runs_; }
    std::uint64_t tokens() const { return tokens_; }
    std::uint64_t sequences() const { return sequences_; }
    std::uint64_t documents() const { return documents_; }
    // The token with which all of up to 1024 documents, evenly spread, end.
    std::optional<std::int64_t> document_end() const { return document_end_; }
    // Where they end in the stream of tokens, if asked for; without those that have none.
    const std::vector<std::int64_t>& document_ends() const { return document_ends_; }
    std::uint64_t unused_bytes() const { return unused_bytes_; }  // at the end of the .bin file

  private:
    class Index;
    void read_mapped_format(const Index& index);
    void read_older_format(const Index& index);
    void set_type(const Index& index, std::uint64_t code);
    void add_sequence(const Index& index, std::uint64_t number, std::uint64_t offset, std::uint64_t tokens);
    void check_documents(const Index& index, std::uint64_t at, std::uint64_t count);
    template <class LastToken>
    void find_document_end(const Index& index, std::uint64_t at, LastToken last_token);
    template <class Tokens>
    void find_document_ends(const Index& index, std::uint64_t at, Tokens tokens_of);
    std::int64_t token_at(std::uint64_t offset) const;

    MappedFile file_;
    std::string path_;
    std::size_t width_ = 0;
    bool has_sign_ = false;
    std::vector<Run> runs_;
    std::uint64_t tokens_ = 0, sequences_ = 0, documents_ = 0, end_ = 0, unused_bytes_ = 0;
    std::optional<std::int64_t> document_end_;
    bool with_document_ends_;
    std::vector<std::int64_t> document_ends_;
};

}  // namespace lockstep::data
