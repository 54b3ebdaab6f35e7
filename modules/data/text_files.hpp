// Inside the module: which files are text, and their bytes in an order and in pieces that depend on nothing but the
// files.
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
    std::vector<TextFile> files;  // never empty, none of them empty
    std::int64_t skipped = 0;     // not text, or empty
    std::uint64_t bytes() const;  // of the text, without boundaries between documents
};

// Files as named, folders with all below them in byte order of the paths inside the folder. Text is what has no NUL
// byte in its first 64 KiB. Hidden entries of folders are passed over; links are followed, and a folder reached again
// is not read again. Usage errors: no such path, a named file that is not text, a folder without text, no text at all.
TextFiles collect_text_files(const std::vector<std::string>& paths);

// A part of a document of at most 64 KiB that is tokenized on its own. It ends before a newline where there is one.
struct Piece {
    std::size_t begin = 0, end = 0;  // in TextBatch::bytes
    bool starts_document = false;
};

struct TextBatch {
    std::string bytes;          // documents with one byte 0 between them
    std::vector<Piece> pieces;  // all of `bytes` but the boundaries
};

// The text as batches of about `batch_bytes` bytes. Where pieces begin and end does not depend on `batch_bytes`.
class TextReader {
  public:
    TextReader(const TextFiles& text, std::size_t batch_bytes) : files_(text.files), batch_bytes_(batch_bytes) {}
    bool next(TextBatch& batch);  // false: there is no more

  private:
    void read_more(TextBatch& batch);
    void cut_pieces(TextBatch& batch);

    const std::vector<TextFile>& files_;
    std::size_t batch_bytes_;
    std::size_t file_ = 0;      // the file being read
    std::uint64_t offset_ = 0;  // of the next byte in it
    OpenFile open_;
    std::size_t piece_begin_ = 0;  // where the next piece begins in the batch
    bool piece_starts_document_ = true;
    bool document_complete_ = false;  // the batch holds the document's last byte
    std::string carried_;             // the begun piece of the batch before
};

}  // namespace lockstep::data
