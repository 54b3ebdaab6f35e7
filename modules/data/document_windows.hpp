// Internal: windows of a source whose documents are kept apart. The documents, each padded with its last token to a
// multiple of the alignment, stand one after another; windows of `length` tokens tile that padded stream, and what
// remains at its end is dropped. A document cut by the end of a window starts over in the next one.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/sources.hpp"

namespace lockstep::data {

class DocumentWindows {
  public:
    // `sources` with document ends; `length` is a multiple of the alignment. Memory: 8 bytes a document beyond the
    // sources' own, none where the alignment is 1.
    DocumentWindows(std::shared_ptr<const Sources> sources, std::int64_t length, std::int64_t alignment);

    std::int64_t windows() const { return padded_tokens() / length_; }
    std::int64_t documents() const { return static_cast<std::int64_t>(ends().size()); }
    std::int64_t padded_tokens() const { return padded_ends().back(); }
    std::uint64_t checksum() const { return checksum_; }  // of where documents begin and end in the padded stream

    // As Dataset's functions of these names, of a window instead of a sample.
    void fetch(std::int64_t window, std::int32_t* inputs, std::int32_t* targets) const;
    void fetch_documents(std::int64_t window, std::int32_t* starts, std::int32_t* ends) const;
    std::int64_t counted_tokens(std::int64_t window) const;

  private:
    // The part of a document, with its padding, that is in a window.
    struct Piece {
        std::int64_t at = 0, padded = 0;     // its first position in the window, and how many it has
        std::int64_t token = 0, tokens = 0;  // its first token in the sources, and how many are in the window
        bool goes_on = false;                // the document has more tokens behind the window
    };
    template <class Take>
    void for_each_piece(std::int64_t window, Take take) const;

    const std::vector<std::int64_t>& ends() const { return sources_->document_ends(); }
    const std::vector<std::int64_t>& padded_ends() const { return padded_ends_.empty() ? ends() : padded_ends_; }
    std::size_t document_at(std::int64_t padded_position) const;
    std::int64_t counted_before(std::int64_t padded_position) const;

    std::shared_ptr<const Sources> sources_;
    std::int64_t length_;
    std::vector<std::int64_t> padded_ends_;  // empty: as without padding
    std::uint64_t checksum_;
};

}  // namespace lockstep::data
