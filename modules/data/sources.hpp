// Internal: the token stream of a dataset, from whatever sources, as consecutive segments in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "data/mapped_file.hpp"
#include "data/megatron.hpp"
#include "data/text_files.hpp"
#include "data/token_file.hpp"
#include "data/tokenizer.hpp"

namespace lockstep::data {

struct SourceOptions {
    std::vector<std::string> paths;              // as find_inputs takes them
    std::string tokenizer = "bytes";             // of text
    std::shared_ptr<const Tokenizer> kept = {};  // of text, instead
    std::string jsonl_field = "text";
    bool with_document_ends = false;
};

class Sources {
  public:
    // Paths in the given order; adjacent text files and folders are documents of one text. The tokens of JSON Lines are
    // kept in memory and taken off `room`, in bytes; too many for it: usage error. With document ends also 8 bytes a
    // document, and usage errors: token files of older programs and raw .bin files, which do not say where theirs end.
    Sources(const SourceOptions& options, std::uint64_t& room);
    Sources(const Sources&) = delete;
    Sources& operator=(const Sources&) = delete;

    std::int64_t tokens() const { return tokens_; }
    std::int64_t vocabulary() const { return vocabulary_; }
    // Mean, of the text without boundaries between documents; 0: unknown (other programs' token files).
    double bytes_per_token() const { return bytes_known_ ? bytes_ / static_cast<double>(tokens_) : 0; }
    const std::string& tokenizer_kind() const { return tokenizer_kind_; }
    const TokenizerFiles& tokenizer_files() const { return tokenizer_files_; }
    std::uint64_t checksum() const { return checksum_; }
    // Where documents end in the stream, if asked for: strictly ascending, the last one at tokens(). A document has the
    // boundary token behind it; one without tokens is left out.
    const std::vector<std::int64_t>& document_ends() const { return document_ends_; }
    // Tokens [begin, begin + count) of the stream.
    void copy(std::int64_t begin, std::int64_t count, std::int32_t* out) const;

  private:
    struct Segment {
        std::int64_t begin = 0, end = 0;  // in the stream
        const std::byte* data = nullptr;
        std::size_t width = 0;              // bytes per token
        const std::string* path = nullptr;  // named in errors
    };
    void add_token_file(const std::string& path);
    void add_flat_file(const std::string& path);
    void add_megatron(const MegatronPaths& paths);
    void add_raw_tokens(const MappedFile& file, std::uint64_t largest, const std::string& path);
    void add_text(const TextFiles& text, const Tokenizer& tokenizer, std::uint64_t& room);
    void add_bytes(const TextFiles& text);
    void add_encoded(const TextFiles& text, const Tokenizer& tokenizer, std::uint64_t& room);
    void end_document(std::int64_t end);
    void end_documents(const std::vector<std::int64_t>& ends);
    void add_segment(const std::byte* data, std::size_t width, std::uint64_t count, const std::string& path);
    void agree_on_tokenizer(const std::string& kind, const TokenizerFiles& files, std::int64_t vocabulary,
                            const std::string& path);
    void add_to_checksum(std::uint64_t value);

    const bool with_document_ends_;
    std::vector<std::int64_t> document_ends_;
    std::vector<Segment> segments_;
    std::deque<TokenFile> token_files_;
    std::deque<MappedFile> mapped_files_;
    std::deque<MegatronFile> megatron_files_;
    std::deque<std::string> buffers_, names_;  // deques: segments point into them
    std::int64_t tokens_ = 0, vocabulary_ = 0;
    double bytes_ = 0;  // of the text
    bool bytes_known_ = true;
    std::string tokenizer_kind_, first_path_;
    TokenizerFiles tokenizer_files_;
    std::uint64_t checksum_ = 0;
};

}  // namespace lockstep::data
