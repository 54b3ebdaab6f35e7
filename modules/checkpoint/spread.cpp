#include "checkpoint/spread.hpp"

#include <limits>
#include <numeric>
#include <optional>
#include <tuple>

namespace lockstep::checkpoint {
namespace {

constexpr std::int64_t least_a_round = std::int64_t{1} << 14;  // avoid messages dominated by latency

// Progress of one holder in a walk along a range.
struct Candidate {
    const Held* held;
    std::int64_t next, last;  // its next element, and the end of its part of the range
};

std::optional<Holder> holder_of(const Held& held, int rank) {
    std::optional<Holder> found;
    held.holders.each_entry_of(rank, [&](int entry) {
        if (!found) found = Holder{rank, entry};
    });
    return found;
}

// The candidate and holder that `owner` receives from.
std::pair<const Candidate*, Holder> chosen(const std::vector<const Candidate*>& covering, int owner) {
    std::int64_t count = 0;
    for (const auto* candidate : covering) {
        if (const auto own = holder_of(*candidate->held, owner)) return {candidate, *own};
        count += candidate->held->holders.count();
    }
    std::int64_t number = owner % count;
    std::size_t one = 0;
    for (; number >= covering.at(one)->held->holders.count(); ++one) number -= covering[one]->held->holders.count();
    return {covering[one], covering[one]->held->holders.at(number)};
}

void append(std::vector<Segment>& segments, const Segment& segment) {
    if (!segments.empty()) {
        Segment& before = segments.back();
        if (before.holder == segment.holder && before.first + before.count == segment.first &&
            before.from + before.count == segment.from) {
            before.count += segment.count;
            return;
        }
    }
    segments.push_back(segment);
}

}  // namespace

SliceRange slice_range(const Shape& shape, int axis, std::int64_t offset, std::int64_t extent, std::int64_t first,
                       std::int64_t count) {
    LOCKSTEP_ASSERT(axis >= 0 && static_cast<std::size_t>(axis) < shape.size());
    LOCKSTEP_ASSERT(offset >= 0 && extent >= 0 && offset + extent <= shape[static_cast<std::size_t>(axis)]);
    const auto behind = std::accumulate(shape.begin() + axis + 1, shape.end(), std::int64_t{1}, std::multiplies<>());
    const std::int64_t all = element_count(shape), row = shape[static_cast<std::size_t>(axis)] * behind;
    LOCKSTEP_ASSERT(first >= 0 && count >= 0 && (count == 0 || first + count <= all / row * extent * behind));
    if (count == 0) return {};
    const SliceRange piece = {row, offset * behind, extent * behind, first, count};
    if (run_length(piece, 0, count) < count) return piece;
    return {all, element_of_tensor(piece, 0), count, 0, count};
}

void Holders::add(const Holder& holder) {
    ++count_;
    if (!runs_.empty() && runs_.back().first.entry == holder.entry) {
        Run& run = runs_.back();
        const int distance = holder.rank - run.first.rank;
        if (run.count == 1) run.stride = distance;
        if (distance > 0 && distance == run.stride * run.count) {
            ++run.count;
            return;
        }
        if (run.count == 1) run.stride = 0;
    }
    runs_.push_back({holder});
}

Holder Holders::at(std::int64_t number) const {
    std::size_t run = 0;
    for (; number >= runs_.at(run).count; ++run) number -= runs_[run].count;
    return runs_[run].at(static_cast<int>(number));
}

void Spread::add(const SliceRange& piece, const Holder& holder) {
    if (piece.count == 0) return;
    const auto key = [](const SliceRange& of) {
        return std::tuple(element_of_tensor(of, 0), of.count, of.row, of.start, of.width);
    };
    const auto found = std::lower_bound(held_.begin(), held_.end(), key(piece),
                                        [&](const Held& held, const auto& wanted) { return key(held.piece) < wanted; });
    if (found != held_.end() && found->piece == piece) return found->holders.add(holder);
    const auto at = ends_.begin() + (found - held_.begin());
    held_.insert(found, {piece, {}})->holders.add(holder);
    const std::int64_t end = element_of_tensor(piece, piece.count - 1) + 1, before = at == ends_.begin() ? 0 : at[-1];
    for (auto one = ends_.insert(at, before); one != ends_.end() && *one < end; ++one) *one = end;
}

std::vector<Segment> sources(const Spread& spread, std::int64_t first, std::int64_t last, int owner) {
    std::vector<Candidate> candidates;
    std::vector<Segment> segments;
    spread.each_near(first, last, [&](const Held& held) {
        const Candidate candidate = {&held, elements_before(held.piece, first), elements_before(held.piece, last)};
        if (segments.empty() && candidate.last - candidate.next == last - first)
            if (const auto own = holder_of(held, owner)) segments = {{first, last - first, *own, candidate.next}};
        if (candidate.next < candidate.last) candidates.push_back(candidate);
    });
    if (!segments.empty()) return segments;
    std::vector<const Candidate*> covering;
    for (std::int64_t at = first; at < last;) {
        // Up to the next element at which any holder begins or ends.
        std::int64_t until = last;
        covering.clear();
        for (auto& candidate : candidates) {
            const SliceRange& piece = candidate.held->piece;
            candidate.next = elements_before(piece, at);
            if (candidate.next >= candidate.last) continue;
            const std::int64_t start = element_of_tensor(piece, candidate.next);
            if (start == at) {
                covering.push_back(&candidate);
                until = std::min(until, at + run_length(piece, candidate.next, candidate.last));
            } else {
                until = std::min(until, start);
            }
        }
        if (!covering.empty()) {
            const auto [candidate, holder] = chosen(covering, owner);
            append(segments, {at, until - at, holder, candidate->next});
        }
        at = until;
    }
    return segments;
}

std::vector<Span> cut_into_rounds(const std::vector<ChecksumBlock>& share, std::int64_t most) {
    std::vector<Span> spans;
    std::int64_t used = 0;
    int round = 0;
    for (std::size_t block = 0; block < share.size(); ++block) {
        const auto count = static_cast<std::int64_t>(share[block].bytes / sizeof(float));
        const auto start = static_cast<std::int64_t>(share[block].first / sizeof(float));
        for (std::int64_t first = 0; first < count;) {
            if (used == most || (first == 0 && used > 0 && used + std::min(count, most) > most)) {
                ++round;
                used = 0;
            }
            const std::int64_t now = std::min(count - first, most - used);
            spans.push_back({block, share[block].place, start + first, now, round});
            first += now;
            used += now;
        }
    }
    return spans;
}

std::int64_t elements_a_round(int ranks) {
    return std::max(elements_in_flight / ranks, least_a_round);
}

Spans spans_of_round(const std::vector<Span>& spans, int round) {
    const auto [first, last] = std::equal_range(spans.begin(), spans.end(), Span{0, 0, 0, 0, round},
                                                [](const Span& a, const Span& b) { return a.round < b.round; });
    return {first, last};
}

}  // namespace lockstep::checkpoint
