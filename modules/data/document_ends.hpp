// Internal: where the documents of a stream of tokens end: positions in the stream, ascending, the last one where the
// stream ends. A document has the boundary token behind it, and documents without tokens are left out.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::data {

// Adds the document in front of `end`, if it has tokens.
inline void add_document_end(std::vector<std::int64_t>& ends, std::int64_t end) {
    if (end > (ends.empty() ? 0 : ends.back())) ends.push_back(end);
}

}  // namespace lockstep::data
