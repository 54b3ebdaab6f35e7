// Encoding of a document in parts by several threads, with the tokens of the document encoded at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace lockstep::data {

class PartEncoder {
  public:
    PartEncoder() = default;
    PartEncoder(const PartEncoder&) = delete;
    PartEncoder& operator=(const PartEncoder&) = delete;
    virtual ~PartEncoder() = default;

    // Where encoding continues: a position in the document, and whether a text begins there (the document itself, or
    // what follows a special token).
    struct Place {
        std::size_t at = 0;
        bool fresh = true;
        bool operator==(const Place&) const = default;
    };

    // False: documents are encoded as a whole only.
    virtual bool divides() const = 0;
    // Appends the tokens of the document from `from` to the first end of a token at `end` or behind, or to its end, and
    // moves `from` there. If `from` is not such a place, the tokens are not the document's. Once two calls end at the
    // same place, everything behind it is the same. If `patient` is false it returns false, having added nothing, where
    // it would have to look far beyond `end`. Thread-safe.
    virtual bool encode_part(std::string_view document, Place& from, std::size_t end, bool patient,
                             std::vector<std::int32_t>& tokens) const = 0;
};

}  // namespace lockstep::data
