// Byte-pair encoding of one piece of text: its bytes, merged by rank. Sennrich, Haddow, Birch: Neural Machine
// Translation of Rare Words with Subword Units, 2016.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/huggingface/tokenizer_json.hpp"

namespace lockstep::data::huggingface {

// The tokens of pieces that were encoded before; emptied when it is full.
class PieceCache {
  public:
    PieceCache();
    // Where the piece's tokens are; none: it is not there.
    struct Tokens {
        const std::int32_t* data = nullptr;
        std::size_t count = 0;
    };
    Tokens find(std::string_view piece, std::uint64_t hash) const;
    void add(std::string_view piece, std::uint64_t hash, const std::int32_t* tokens, std::size_t count);

    static constexpr std::size_t longest_piece = 64;

  private:
    struct Slot {
        std::uint64_t hash = 0;
        std::uint32_t piece = 0, tokens = 0;  // where they begin
        std::uint16_t bytes = 0, count = 0;   // bytes 0: the slot is free
    };
    std::vector<Slot> slots_;
    std::string pieces_;
    std::vector<std::int32_t> tokens_;
    std::size_t used_ = 0;
};

class PairEncoder {
  public:
    explicit PairEncoder(const TokenizerJson& json);

    // One per thread.
    struct Scratch {
        struct Symbol {
            std::int32_t token = 0;
            std::int32_t before = -1, behind = -1;
            bool gone = false;
        };
        struct Candidate {
            std::uint64_t order = 0;  // rank, then place
            std::int32_t merged = 0;
        };
        PieceCache cache;
        std::vector<Symbol> symbols;
        std::vector<Candidate> candidates;  // a heap
    };
    // Appends the piece's tokens. More than 1 GiB: usage error.
    void encode(std::string_view piece, Scratch& scratch, std::vector<std::int32_t>& tokens) const;

    int unknown_bytes() const;  // how many of the 256 have no token

  private:
    struct Pair {
        std::uint64_t tokens = 0;  // left and right
        std::uint32_t rank = 0;
        std::int32_t merged = -1;  // -1: the slot is free
    };
    const Pair* find(std::int32_t left, std::int32_t right) const;
    void add_pair(const Merge& merge, std::uint32_t rank);
    void take_symbols(std::string_view piece, std::vector<Scratch::Symbol>& symbols) const;
    void propose(Scratch& scratch, std::int32_t place) const;
    void merge_all(Scratch& scratch) const;

    std::array<std::int32_t, 256> bytes_{};                // their tokens; -1: none
    std::vector<Pair> pairs_;                              // a hash table
    std::unordered_map<std::string, std::int32_t> whole_;  // of tokenizers that ignore merges
    std::size_t longest_whole_ = 0;
    std::int32_t unknown_ = -1;
    bool fuses_unknown_ = false;
};

}  // namespace lockstep::data::huggingface
