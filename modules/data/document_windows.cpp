#include "data/document_windows.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"

namespace lockstep::data {
namespace {

std::int64_t begin_of(const std::vector<std::int64_t>& ends, std::size_t document) {
    return document == 0 ? 0 : ends[document - 1];
}

std::uint64_t hash_of(const std::vector<std::int64_t>& numbers) {
    return hash64(numbers.data(), numbers.size() * sizeof numbers[0]);
}

}  // namespace

DocumentWindows::DocumentWindows(std::shared_ptr<const Sources> sources, std::int64_t length, std::int64_t alignment)
    : sources_(std::move(sources)), length_(length) {
    LOCKSTEP_ASSERT(alignment >= 1 && length >= 1 && length % alignment == 0 && !ends().empty());
    if (alignment > 1) {
        padded_ends_.reserve(ends().size());
        std::int64_t padded = 0, before = 0;
        for (const std::int64_t end : ends()) {
            padded += (end - before + alignment - 1) / alignment * alignment;
            before = end;
            padded_ends_.push_back(padded);
        }
    }
    const std::array<std::uint64_t, 2> both = {hash_of(ends()), hash_of(padded_ends())};
    checksum_ = hash64(both.data(), sizeof both);
}

std::size_t DocumentWindows::document_at(std::int64_t padded_position) const {
    const auto& padded = padded_ends();
    return static_cast<std::size_t>(std::upper_bound(padded.begin(), padded.end(), padded_position) - padded.begin());
}

// Windows and documents begin at multiples of the alignment, and padding is shorter: no window begins within padding.
template <class Take>
void DocumentWindows::for_each_piece(std::int64_t window, Take take) const {
    LOCKSTEP_ASSERT(window >= 0 && window < windows());
    const std::int64_t begin = window * length_;
    std::size_t document = document_at(begin);
    for (std::int64_t at = 0; at < length_; ++document) {
        Piece piece;
        piece.at = at;
        piece.padded = std::min(padded_ends()[document] - begin, length_) - at;
        const std::int64_t within = begin + at - begin_of(padded_ends(), document);
        piece.token = begin_of(ends(), document) + within;
        piece.tokens = std::min(ends()[document] - piece.token, piece.padded);
        piece.goes_on = piece.token + piece.tokens < ends()[document];
        take(piece);
        at += piece.padded;
    }
}

void DocumentWindows::fetch(std::int64_t window, std::int32_t* inputs, std::int32_t* targets) const {
    for_each_piece(window, [&](const Piece& piece) {
        std::int32_t *in = inputs + piece.at, *out = targets + piece.at;
        sources_->copy(piece.token, piece.tokens, in);
        std::copy(in + 1, in + piece.tokens, out);
        if (piece.goes_on)
            sources_->copy(piece.token + piece.tokens, 1, out + piece.tokens - 1);
        else
            std::fill(out + piece.tokens - 1, out + piece.padded, -1);
        std::fill(in + piece.tokens, in + piece.padded, in[piece.tokens - 1]);
    });
}

void DocumentWindows::fetch_documents(std::int64_t window, std::int32_t* starts, std::int32_t* ends) const {
    for_each_piece(window, [&](const Piece& piece) {
        const std::int64_t end = piece.at + piece.padded;
        std::fill(starts + piece.at, starts + end, static_cast<std::int32_t>(piece.at));
        std::fill(ends + piece.at, ends + end, static_cast<std::int32_t>(end));
    });
}

std::int64_t DocumentWindows::counted_tokens(std::int64_t window) const {
    LOCKSTEP_ASSERT(window >= 0 && window < windows());
    return counted_before((window + 1) * length_) - counted_before(window * length_);
}

// Every token of a document has a target but its last one.
std::int64_t DocumentWindows::counted_before(std::int64_t padded_position) const {
    const std::size_t document = document_at(padded_position);
    const std::int64_t begin = begin_of(ends(), document);
    const std::int64_t of_earlier = begin - static_cast<std::int64_t>(document);
    if (document == ends().size()) return of_earlier;
    const std::int64_t within = padded_position - begin_of(padded_ends(), document);
    return of_earlier + std::min(within, ends()[document] - begin - 1);
}

}  // namespace lockstep::data
