#include <cstring>

#include "checkpoint/holdings.hpp"
#include "checkpoint/transfer.hpp"

namespace lockstep::checkpoint {
namespace {

// A holder's elements [first, last) of a span.
struct Part {
    std::int64_t first, last;
    std::int64_t count() const { return last - first; }
};

Part part_of_span(const SliceRange& piece, const Span& span) {
    return {elements_before(piece, span.first), elements_before(piece, span.first + span.count)};
}

}  // namespace

Distributor::Distributor(const Reading& reading, const Layout& layout, const std::vector<Spread>& spreads,
                         const std::vector<Entry>& entries, cluster::HostGroup& group, std::int64_t elements)
    : reading_(reading),
      layout_(layout),
      spreads_(spreads),
      entries_(entries),
      group_(group),
      rank_(group.rank()),
      rounds_(reading.shares, elements),
      share_(reading.shares[static_cast<std::size_t>(rank_)]),
      wanted_(spreads.size()) {
    for (std::size_t place = 0; place < spreads_.size(); ++place)
        for (const Held& held : spreads_[place])
            for (const Holder& holder : held.holders)
                if (holder.rank == rank_) wanted_[place].push_back({&held, holder.entry});
}

// The span's elements. A block is read with its first span.
const float* Distributor::block_of(const Span& span) {
    const ChecksumBlock& block = share_[span.block];
    auto& data = blocks_[span.block];
    if (!data) {
        data = std::make_unique_for_overwrite<float[]>(block.bytes / sizeof(float));
        const OpenFile& file = reading_.files[reading_.file_of_block[span.block]];
        read_block(file, file.path(), layout_, block, data.get());
    }
    return data.get() + (span.first - static_cast<std::int64_t>(block.first / sizeof(float)));
}

// Reads this rank's spans of the round. Each part of a span is one message to each rank that needs it.
void Distributor::read(int round) {
    const auto spans = spans_of_round(rounds_.spans[static_cast<std::size_t>(rank_)], round);
    if (spans.begin() == spans.end()) return;
    blocks_.erase(blocks_.begin(), blocks_.lower_bound(spans.begin()->block));
    for (const Span& span : spans) {
        const float* values = block_of(span);
        for (const Held& held : spreads_[span.place]) {
            const Part part = part_of_span(held.piece, span);
            if (part.count() == 0) continue;
            const float* packed = values + (element_of_tensor(held.piece, part.first) - span.first);
            if (run_length(held.piece, part.first, part.last) < part.count()) {
                float* to = traffic_.buffer(part.count());
                packed = to;
                for (std::int64_t at = part.first; at < part.last;) {
                    const std::int64_t run = run_length(held.piece, at, part.last);
                    std::memcpy(to, values + (element_of_tensor(held.piece, at) - span.first), Traffic::bytes(run));
                    to += run;
                    at += run;
                }
            }
            for (const Holder& holder : held.holders) {
                if (holder.rank != rank_)
                    traffic_.send(holder.rank, packed, part.count());
                else
                    copy_in(entries_[static_cast<std::size_t>(holder.entry)], part.first, part.count(), packed);
            }
        }
    }
}

void Distributor::prepare_receives(int round) {
    for (int reader = 0; reader < group_.size(); ++reader) {
        if (reader == rank_) continue;
        for (const Span& span : spans_of_round(rounds_.spans[static_cast<std::size_t>(reader)], round))
            for (const auto& [held, number] : wanted_[span.place]) {
                const Part part = part_of_span(held->piece, span);
                if (part.count() == 0) continue;
                const Entry& entry = entries_[static_cast<std::size_t>(number)];
                float* const values = fp32_of(entry);
                float* to = values ? values + part.first : traffic_.buffer(part.count());
                traffic_.receive(reader, to, part.count());
                if (!values) uploads_.push_back({number, part.first, part.count(), to});
            }
    }
}

void Distributor::finish_receives() {
    for (const auto& one : uploads_)
        copy_in(entries_[static_cast<std::size_t>(one.entry)], one.first, one.count, one.values);
    uploads_.clear();
    traffic_ = {};
}

void Distributor::distribute() {
    for (int round = 0; round < rounds_.count; ++round) {
        cluster::together(group_, [&] {
            finish_receives();
            read(round);
            prepare_receives(round);
        });
        group_.exchange(traffic_.receives, traffic_.sends);
    }
    cluster::together(group_, [&] { finish_receives(); });
}

}  // namespace lockstep::checkpoint
