#include "data/huggingface/pair_encoder.hpp"

#include <algorithm>
#include <bit>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "data/huggingface/byte_level.hpp"

namespace lockstep::data::huggingface {
namespace {

constexpr std::size_t cache_slots = std::size_t{1} << 16, most_cached = cache_slots / 2;

// Places of symbols are numbers of 32 bits with a sign.
constexpr std::size_t most_piece_bytes = std::size_t{1} << 30;

std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) | static_cast<std::uint32_t>(right);
}

// Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014: its finalizer.
std::uint64_t mixed(std::uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

// The smallest is first.
bool later(const PairEncoder::Scratch::Candidate& a, const PairEncoder::Scratch::Candidate& b) {
    return a.order > b.order;
}

}  // namespace

PieceCache::PieceCache() : slots_(cache_slots) {}

PieceCache::Tokens PieceCache::find(std::string_view piece, std::uint64_t hash) const {
    for (std::size_t at = hash % cache_slots; slots_[at].bytes > 0; at = (at + 1) % cache_slots) {
        const Slot& slot = slots_[at];
        if (slot.hash == hash && std::string_view(pieces_).substr(slot.piece, slot.bytes) == piece)
            return {tokens_.data() + slot.tokens, slot.count};
    }
    return {};
}

void PieceCache::add(std::string_view piece, std::uint64_t hash, const std::int32_t* tokens, std::size_t count) {
    if (used_ == most_cached) {
        std::fill(slots_.begin(), slots_.end(), Slot());
        pieces_.clear();
        tokens_.clear();
        used_ = 0;
    }
    std::size_t at = hash % cache_slots;
    while (slots_[at].bytes > 0) at = (at + 1) % cache_slots;
    slots_[at] = {hash, static_cast<std::uint32_t>(pieces_.size()), static_cast<std::uint32_t>(tokens_.size()),
                  static_cast<std::uint16_t>(piece.size()), static_cast<std::uint16_t>(count)};
    pieces_.append(piece);
    tokens_.insert(tokens_.end(), tokens, tokens + count);
    ++used_;
}

PairEncoder::PairEncoder(const TokenizerJson& json) : unknown_(json.unknown), fuses_unknown_(json.fuses_unknown) {
    for (std::size_t byte = 0; byte < bytes_.size(); ++byte) {
        const auto found = json.vocabulary.find(spelling_of(static_cast<unsigned char>(byte)));
        bytes_[byte] = found == json.vocabulary.end() ? -1 : found->second;
    }
    pairs_.resize(std::bit_ceil(2 * json.merges.size() + 1));
    for (std::size_t rank = 0; rank < json.merges.size(); ++rank)
        add_pair(json.merges[rank], static_cast<std::uint32_t>(rank));
    if (!json.ignores_merges) return;
    for (const auto& [token, id] : json.vocabulary)
        if (const auto bytes = bytes_spelt(token)) {
            whole_.emplace(*bytes, id);
            longest_whole_ = std::max(longest_whole_, bytes->size());
        }
}

int PairEncoder::unknown_bytes() const {
    return static_cast<int>(std::count(bytes_.begin(), bytes_.end(), -1));
}

void PairEncoder::add_pair(const Merge& merge, std::uint32_t rank) {
    const std::uint64_t tokens = pair_of(merge.left, merge.right);
    std::size_t at = mixed(tokens) & (pairs_.size() - 1);
    while (pairs_[at].merged >= 0 && pairs_[at].tokens != tokens) at = (at + 1) & (pairs_.size() - 1);
    pairs_[at] = {tokens, rank, merge.merged};  // of equal ones the last counts
}

const PairEncoder::Pair* PairEncoder::find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t tokens = pair_of(left, right);
    for (std::size_t at = mixed(tokens) & (pairs_.size() - 1); pairs_[at].merged >= 0;
         at = (at + 1) & (pairs_.size() - 1))
        if (pairs_[at].tokens == tokens) return &pairs_[at];
    return nullptr;
}

void PairEncoder::encode(std::string_view piece, Scratch& scratch, std::vector<std::int32_t>& tokens) const {
    if (piece.size() > most_piece_bytes)
        throw usage_error("the tokenizer leaves a piece of {} bytes unsplit; the limit is {}", piece.size(),
                          most_piece_bytes);
    if (piece.size() == 1 && bytes_[static_cast<unsigned char>(piece.front())] >= 0 && whole_.empty()) {
        tokens.push_back(bytes_[static_cast<unsigned char>(piece.front())]);
        return;
    }
    const bool cached = piece.size() <= PieceCache::longest_piece;
    const std::uint64_t hash = cached ? hash64(piece.data(), piece.size()) : 0;
    if (cached)
        if (const auto known = scratch.cache.find(piece, hash); known.data) {
            tokens.insert(tokens.end(), known.data, known.data + known.count);
            return;
        }
    const std::size_t before = tokens.size();
    const auto whole = piece.size() <= longest_whole_ ? whole_.find(std::string(piece)) : whole_.end();
    if (whole != whole_.end()) {
        tokens.push_back(whole->second);
    } else {
        take_symbols(piece, scratch.symbols);
        merge_all(scratch);
        for (const auto& symbol : scratch.symbols)
            if (!symbol.gone) tokens.push_back(symbol.token);
    }
    if (cached) scratch.cache.add(piece, hash, tokens.data() + before, tokens.size() - before);
}

// Bytes without a token become the unknown one or, without that, nothing.
void PairEncoder::take_symbols(std::string_view piece, std::vector<Scratch::Symbol>& symbols) const {
    symbols.clear();
    bool after_unknown = false;
    const auto add = [&](std::int32_t token) {
        const auto place = static_cast<std::int32_t>(symbols.size());
        if (place > 0) symbols.back().behind = place;
        symbols.push_back({token, place - 1, -1, false});
    };
    for (const char byte : piece) {
        const std::int32_t token = bytes_[static_cast<unsigned char>(byte)];
        const bool unknown = token < 0;
        if (!unknown)
            add(token);
        else if (unknown_ >= 0 && !(after_unknown && fuses_unknown_))
            add(unknown_);
        after_unknown = unknown;
    }
}

void PairEncoder::propose(Scratch& scratch, std::int32_t place) const {
    const auto& left = scratch.symbols[static_cast<std::size_t>(place)];
    const Pair* pair = find(left.token, scratch.symbols[static_cast<std::size_t>(left.behind)].token);
    if (!pair) return;
    scratch.candidates.push_back({pair_of(static_cast<std::int32_t>(pair->rank), place), pair->merged});
    std::push_heap(scratch.candidates.begin(), scratch.candidates.end(), later);
}

void PairEncoder::merge_all(Scratch& scratch) const {
    auto& symbols = scratch.symbols;
    auto& candidates = scratch.candidates;
    candidates.clear();
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) propose(scratch, static_cast<std::int32_t>(i));
    while (!candidates.empty()) {
        std::pop_heap(candidates.begin(), candidates.end(), later);
        const Scratch::Candidate best = candidates.back();
        candidates.pop_back();
        const auto place = static_cast<std::int32_t>(best.order & 0xFFFFFFFFu);
        auto& left = symbols[static_cast<std::size_t>(place)];
        if (left.gone || left.behind < 0) continue;
        auto& right = symbols[static_cast<std::size_t>(left.behind)];
        const Pair* pair = find(left.token, right.token);
        if (!pair || pair->merged != best.merged) continue;  // one of the two was merged meanwhile
        left.token = best.merged;
        left.behind = right.behind;
        right.gone = true;
        if (left.behind >= 0) symbols[static_cast<std::size_t>(left.behind)].before = place;
        if (left.before >= 0) propose(scratch, left.before);
        if (left.behind >= 0) propose(scratch, place);
    }
}

}  // namespace lockstep::data::huggingface
