// Sequences that several documents share: the tokens of one document are a piece, scanned as a sequence of its own. A
// block walks over the pieces of its sequence and reads where they begin and end from device memory, so that no launch
// depends on the documents.
#pragma once

#include "kernels/cuda/documents.hpp"
#include "kernels/cuda/ttt.hpp"

namespace lockstep::kernels::cuda {

struct TttPiece {
    int begin, length;  // of the operation's tokens
    bool carried;       // whether it starts from TttPieces::initial; else from what sequences start from
};

struct TttPieces {
    DocumentPlaces documents;
    int length = 0;                   // tokens of a sequence
    TttModels initial{}, dinitial{};  // may be null; not set where a sequence is one piece

    TttPieces() = default;
    explicit TttPieces(const TttArguments& arguments)
        : documents(arguments.shape.documents), length(static_cast<int>(arguments.shape.length)) {
        if (joined()) return;
        initial = TttModels(arguments.initial);
        dinitial = TttModels(arguments.dinitial);
    }

    __host__ __device__ bool joined() const { return documents.starts == nullptr; }
    // The piece that begins with a token.
    __device__ TttPiece from(std::int64_t sequence, int begin) const {
        if (joined()) return {0, length, false};
        const int end = documents.end(sequence, begin);
        return {begin, (end < length ? end : length) - begin, carried(sequence, begin)};
    }
    // The piece that ends before a token.
    __device__ TttPiece before(std::int64_t sequence, int end) const {
        if (joined()) return {0, length, false};
        const int start = documents.begin(sequence, end - 1), begin = start > 0 ? start : 0;
        return {begin, end - begin, carried(sequence, begin)};
    }

  private:
    __device__ bool carried(std::int64_t sequence, int begin) const {
        return begin == 0 && initial.weight1 && documents.begin(sequence, 0) < 0;
    }
};

// Chosen pointer by pointer: a reference to a kernel's parameter would put all parameters into local memory.
__device__ inline TttModels ttt_choose(bool first, const TttModels& a, const TttModels& b) {
    TttModels chosen;
    chosen.weight1 = first ? a.weight1 : b.weight1;
    chosen.bias1 = first ? a.bias1 : b.bias1;
    chosen.weight2 = first ? a.weight2 : b.weight2;
    chosen.bias2 = first ? a.bias2 : b.bias2;
    return chosen;
}

// Of a sequence's saved states, how many places lie before those of a piece, if states are saved at least `tokens`
// apart: the token before which a state is saved gives it a place of its own.
__device__ inline int ttt_saved_before(const TttPiece& piece, int tokens) {
    return piece.begin / tokens;
}

}  // namespace lockstep::kernels::cuda
