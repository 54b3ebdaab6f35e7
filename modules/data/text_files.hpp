// Internal: which files are text, and their bytes in an order and division that depend only on the files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/open_file.hpp"
#include "data/json_lines.hpp"

namespace lockstep::data {

struct TextFile {
    std::string path;
    std::uint64_t bytes = 0;  // on disk
    bool json_lines = false;  // many documents, perhaps compressed; else the file is one document
};

struct TextFiles {
    std::vector<TextFile> files;  // nonempty, and so is each file
    std::int64_t skipped = 0;     // not text, or empty
    std::string field = "text";   // of JSON Lines
    std::uint64_t bytes() const;  // on disk; without JSON Lines, of the text without document boundaries
    bool has_json_lines() const;  // the text's bytes and documents are known only when it was read
};

// Files as named; folders recursively, in byte order of relative paths. Text means no NUL byte in the first 64 KiB, or
// JSON Lines by name (is_json_lines). Hidden entries are skipped; links are followed, and each folder is read once.
// Usage errors: a missing path, a named file that is not text, a folder without text, no text at all.
TextFiles collect_text_files(const std::vector<std::string>& paths, const std::string& field = "text");
// Whether the folder has a file that collect_text_files would take.
bool has_text_files(const std::string& folder);

// At most 64 KiB of a document, tokenized independently. Ends before a newline if possible.
struct TextSpan {
    std::size_t begin = 0, end = 0;  // in TextBatch::bytes
    bool starts_document = false;
};

struct TextBatch {
    std::string bytes;            // documents with one byte 0 between them
    std::vector<TextSpan> spans;  // everything but the boundaries
};

// The text in batches of about `batch_bytes` bytes. The spans do not depend on `batch_bytes`. Errors of JsonLines;
// usage errors: a file that changes, JSON Lines without any text.
class TextReader {
  public:
    TextReader(const TextFiles& text, std::size_t batch_bytes) : text_(text), batch_bytes_(batch_bytes) {}
    bool next(TextBatch& batch);  // false: the end
    // So far:
    std::uint64_t consumed() const;  // bytes of the files on disk
    std::int64_t documents() const { return documents_; }
    std::int64_t empty_documents() const { return empty_documents_; }  // skipped, in JSON Lines
    std::uint64_t text_bytes() const { return text_bytes_; }           // without document boundaries

  private:
    bool begin_document(TextBatch& batch);
    void end_document();
    void read_more(TextBatch& batch);
    void read_file(const TextFile& file, TextBatch& batch);
    void cut_spans(TextBatch& batch);

    const TextFiles& text_;
    std::size_t batch_bytes_;
    std::size_t file_ = 0;          // current file
    std::uint64_t done_files_ = 0;  // bytes on disk of those before it
    std::uint64_t offset_ = 0;      // of the next byte in it
    OpenFile open_;
    std::optional<JsonLines> lines_;
    std::string line_;            // the current document of lines_
    std::size_t span_begin_ = 0;  // of the next span in the batch
    bool in_document_ = false;
    bool span_starts_document_ = true;
    bool document_complete_ = false;  // the batch has the document's last byte
    std::string carried_;             // the incomplete span of the previous batch
    std::int64_t documents_ = 0, empty_documents_ = 0;
    std::uint64_t text_bytes_ = 0;
};

}  // namespace lockstep::data
