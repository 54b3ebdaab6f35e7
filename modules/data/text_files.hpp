// Internal: which files are text, and their bytes in an order and division that depend only on the files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/open_file.hpp"

namespace lockstep::data {

struct TextFile {
    std::string path;
    std::uint64_t bytes = 0;
};

struct TextFiles {
    std::vector<TextFile> files;  // nonempty, and so is each file
    std::int64_t skipped = 0;     // not text, or empty
    std::uint64_t bytes() const;  // of text, without document boundaries
};

// Files as named; folders recursively, in byte order of relative paths. Text means no NUL byte in the first 64 KiB.
// Hidden entries are skipped; links are followed, and each folder is read once. Usage errors: a missing path, a named
// file that is not text, a folder without text, no text at all.
TextFiles collect_text_files(const std::vector<std::string>& paths);

// At most 64 KiB of a document, tokenized independently. Ends before a newline if possible.
struct TextSpan {
    std::size_t begin = 0, end = 0;  // in TextBatch::bytes
    bool starts_document = false;
};

struct TextBatch {
    std::string bytes;            // documents with one byte 0 between them
    std::vector<TextSpan> spans;  // everything but the boundaries
};

// The text in batches of about `batch_bytes` bytes. The spans do not depend on `batch_bytes`.
class TextReader {
  public:
    TextReader(const TextFiles& text, std::size_t batch_bytes) : files_(text.files), batch_bytes_(batch_bytes) {}
    bool next(TextBatch& batch);  // false: the end

  private:
    void read_more(TextBatch& batch);
    void cut_spans(TextBatch& batch);

    const std::vector<TextFile>& files_;
    std::size_t batch_bytes_;
    std::size_t file_ = 0;      // current file
    std::uint64_t offset_ = 0;  // of the next byte in it
    OpenFile open_;
    std::size_t span_begin_ = 0;  // of the next span in the batch
    bool span_starts_document_ = true;
    bool document_complete_ = false;  // the batch has the document's last byte
    std::string carried_;             // the incomplete span of the previous batch
};

}  // namespace lockstep::data
