#include <algorithm>
#include <cstring>

#include "checkpoint/holdings.hpp"
#include "checkpoint/transfer.hpp"
#include "device/parallel.hpp"

namespace lockstep::checkpoint {

Rounds::Rounds(const Layout& layout, int ranks, std::int64_t elements)
    : Rounds(shares_of_blocks(layout, ranks), elements) {}

Rounds::Rounds(const std::vector<std::vector<ChecksumBlock>>& shares, std::int64_t elements) {
    for (const auto& share : shares) {
        spans.push_back(cut_into_rounds(share, elements));
        if (!spans.back().empty()) count = std::max(count, spans.back().back().round + 1);
    }
}

Collector::Collector(const Layout& layout, const std::vector<Spread>& spreads, const std::vector<Entry>& entries,
                     cluster::HostGroup& group, std::int64_t elements)
    : layout_(layout),
      spreads_(spreads),
      entries_(entries),
      group_(group),
      rank_(group.rank()),
      rounds_(layout, group.size(), elements),
      share_(share_of_blocks(layout, rank_, group.size())) {
    own_.resize(spreads_.size());
    for (std::size_t place = 0; place < spreads_.size(); ++place)
        for (const Held& held : spreads_[place].all())
            held.holders.each_entry_of(rank_, [&](int) { own_[place].push_back(held.piece); });
}

bool Collector::holds_some_of(const Span& span) const {
    const auto& own = own_[span.place];
    return std::any_of(own.begin(), own.end(), [&](const SliceRange& piece) {
        return elements_before(piece, span.first) < elements_before(piece, span.first + span.count);
    });
}

std::vector<Segment> Collector::sources_of(const Span& span, int owner) const {
    return sources(spreads_[span.place], span.first, span.first + span.count, owner);
}

float* Collector::place_of(const Span& span) const {
    const auto first_of_block = static_cast<std::int64_t>(share_[span.block].first / sizeof(float));
    return collected_->block(span.block) + span.first - first_of_block;
}

void Collector::check_cover() {
    for (const Span& span : rounds_.spans[static_cast<std::size_t>(rank_)]) {
        std::int64_t next = span.first;
        const auto fail_before = [&](std::int64_t element) {
            if (next < element)
                throw fault_error("cannot write the checkpoint: no rank holds elements {} to {} of {}", next, element,
                                  layout_.places[span.place].path);
        };
        for (const Segment& segment : sources_of(span, rank_)) {
            fail_before(segment.first);
            next = segment.first + segment.count;
            if (segment.holder.rank != rank_) foreign_rounds_ = span.round + 1;
        }
        fail_before(span.first + span.count);
    }
}

template <class Destination>
void Collector::copy(const std::vector<Segment>& segments, bool from_devices, Destination&& destination) const {
    struct Part {  // of a device tensor: the range that the segments span, copied as one
        std::int64_t first, last;
        int segments = 0;
        std::unique_ptr<float[]> values;
    };
    std::map<int, Part> parts;
    for (std::size_t i = 0; i < segments.size(); ++i) {
        const Segment& segment = segments[i];
        const Entry& entry = entries_[static_cast<std::size_t>(segment.holder.entry)];
        if ((entry.device != nullptr) != from_devices) continue;
        const std::int64_t last = segment.from + segment.count;
        if (!from_devices) {
            copy_out(entry, segment.from, segment.count, destination(i));
            continue;
        }
        auto& part = parts.try_emplace(segment.holder.entry, Part{segment.from, last, 0, nullptr}).first->second;
        part.first = std::min(part.first, segment.from);
        part.last = std::max(part.last, last);
        ++part.segments;
    }
    for (std::size_t i = 0; i < segments.size(); ++i) {
        const Segment& segment = segments[i];
        const auto found = parts.find(segment.holder.entry);
        if (found == parts.end()) continue;
        const Entry& entry = entries_[static_cast<std::size_t>(segment.holder.entry)];
        auto& part = found->second;
        if (part.segments == 1) {
            copy_out(entry, segment.from, segment.count, destination(i));
            continue;
        }
        const std::int64_t count = part.last - part.first;
        if (!part.values) {
            part.values = std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(count));
            copy_out(entry, part.first, count, part.values.get());
        }
        std::memcpy(destination(i), part.values.get() + (segment.from - part.first), Traffic::bytes(segment.count));
    }
}

// It need not be copied.
bool Collector::stays(const Segment& segment) const {
    return values_ == Values::left_in_place && segment.holder.rank == rank_ &&
           fp32_of(entries_[static_cast<std::size_t>(segment.holder.entry)]) != nullptr;
}

std::vector<LiveParts> Collector::live_parts() const {
    std::vector<LiveParts> live(share_.size());
    for (const Span& span : rounds_.spans[static_cast<std::size_t>(rank_)]) {
        if (!holds_some_of(span)) continue;
        LiveParts& parts = live[span.block];
        for (const Segment& segment : sources_of(span, rank_)) {
            if (!stays(segment)) continue;
            const LivePart part = {segment.first - static_cast<std::int64_t>(share_[span.block].first / sizeof(float)),
                                   segment.count,
                                   fp32_of(entries_[static_cast<std::size_t>(segment.holder.entry)]) + segment.from};
            LivePart* before = parts.empty() ? nullptr : &parts.back();
            if (before && before->first + before->count == part.first && before->values + before->count == part.values)
                before->count += part.count;
            else
                parts.push_back(part);
        }
    }
    return live;
}

void Collector::copy_own() {
    const auto& spans = rounds_.spans[static_cast<std::size_t>(rank_)];
    const auto copy_span = [&](const Span& span, bool from_devices) {
        if (!holds_some_of(span)) return;
        auto segments = sources_of(span, rank_);
        std::erase_if(segments, [&](const Segment& segment) { return segment.holder.rank != rank_ || stays(segment); });
        copy(segments, from_devices, [&](std::size_t i) { return place_of(span) + segments[i].first - span.first; });
    };
    parallel_for(static_cast<std::int64_t>(spans.size()), 1, [&](std::int64_t first, std::int64_t last, int) {
        for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(last); ++i)
            copy_span(spans[i], false);
    });
    for (const Span& span : spans) copy_span(span, true);
}

// One message per span and sending rank, its segments in tensor order.
void Collector::prepare_receives(int round) {
    for (const Span& span : spans_of_round(rounds_.spans[static_cast<std::size_t>(rank_)], round)) {
        struct Message {
            std::int64_t count = 0;
            int segments = 0;
            float* values = nullptr;
        };
        std::map<int, Message> messages;
        const auto segments = sources_of(span, rank_);
        for (const Segment& segment : segments) {
            if (segment.holder.rank == rank_) continue;
            auto& message = messages[segment.holder.rank];
            message.count += segment.count;
            ++message.segments;
        }
        for (const Segment& segment : segments) {
            if (segment.holder.rank == rank_) continue;
            float* to = place_of(span) + segment.first - span.first;
            auto& message = messages[segment.holder.rank];
            if (message.segments == 1) {
                traffic_.receive(segment.holder.rank, to, segment.count);
                continue;
            }
            if (!message.values) {
                message.values = traffic_.buffer(message.count);
                traffic_.receive(segment.holder.rank, message.values, message.count);
            }
            scattered_.push_back({message.values, to, segment.count});
            message.values += segment.count;
        }
    }
}

void Collector::prepare_sends(int round) {
    for (int owner = 0; owner < group_.size(); ++owner) {
        if (owner == rank_) continue;
        for (const Span& span : spans_of_round(rounds_.spans[static_cast<std::size_t>(owner)], round)) {
            if (!holds_some_of(span)) continue;
            auto segments = sources_of(span, owner);
            std::erase_if(segments, [&](const Segment& segment) { return segment.holder.rank != rank_; });
            if (segments.empty()) continue;
            const Entry& entry = entries_[static_cast<std::size_t>(segments[0].holder.entry)];
            const float* values = fp32_of(entry);
            if (segments.size() == 1 && values) {
                traffic_.send(owner, values + segments[0].from, segments[0].count);
                continue;
            }
            std::vector<std::int64_t> places;
            std::int64_t count = 0;
            for (const Segment& segment : segments) {
                places.push_back(count);
                count += segment.count;
            }
            float* message = traffic_.buffer(count);
            for (const bool from_devices : {false, true})
                copy(segments, from_devices, [&](std::size_t i) { return message + places[i]; });
            traffic_.send(owner, message, count);
        }
    }
}

void Collector::finish_receives() {
    for (const auto& one : scattered_) std::memcpy(one.to, one.from, Traffic::bytes(one.count));
    scattered_.clear();
    traffic_ = {};
}

std::optional<cluster::Failure> Collector::collect(Snapshot& blocks, Values values) {
    using cluster::agree;
    using cluster::caught;
    auto failure = agree(caught([&] {
                             values_ = values;
                             blocks = Snapshot(share_, live_parts());
                             collected_ = &blocks;
                             copy_own();
                         }),
                         group_);
    if (failure) return failure;
    const auto rounds = static_cast<int>(group_.all_maximum(foreign_rounds_));
    for (int round = 0; round < rounds; ++round) {
        failure = agree(caught([&] {
                            finish_receives();
                            prepare_receives(round);
                            prepare_sends(round);
                        }),
                        group_);
        if (failure) return failure;
        group_.exchange(traffic_.receives, traffic_.sends);
    }
    finish_receives();
    return std::nullopt;
}

}  // namespace lockstep::checkpoint
