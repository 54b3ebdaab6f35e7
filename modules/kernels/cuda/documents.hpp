// Where a token's document begins and ends, as kernels read it.
#pragma once

#include <cstdint>

#include "kernels/backend.hpp"

namespace lockstep::kernels::cuda {

struct DocumentPlaces {
    const int *starts = nullptr, *ends = nullptr;  // of the first sequence's first token; null: documents are joined
    std::int64_t positions = 0;                    // from a sequence to the next
    int first = 0;                                 // position of the first token

    DocumentPlaces() = default;
    explicit DocumentPlaces(const Documents& documents) {
        if (documents.joined()) return;
        starts = documents.starts.as<std::int32_t>() + documents.first_position;
        ends = documents.ends.as<std::int32_t>() + documents.first_position;
        positions = documents.starts.size(1);
        first = static_cast<int>(documents.first_position);
    }
    // Of a token's document, counted from the first token: its first, and the one behind its last.
    __device__ int begin(std::int64_t sequence, int token) const {
        return starts[sequence * positions + token] - first;
    }
    __device__ int end(std::int64_t sequence, int token) const { return ends[sequence * positions + token] - first; }
};

}  // namespace lockstep::kernels::cuda
