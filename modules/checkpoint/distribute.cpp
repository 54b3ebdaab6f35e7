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

Distributor::Distributor(const OpenFile& file, const std::string& file_path, const Layout& layout,
                         const std::vector<Spread>& spreads, const std::vector<Entry>& entries,
                         cluster::HostGroup& group, std::int64_t elements)
    : file_(file),
      file_path_(file_path),
      layout_(layout),
      spreads_(spreads),
      entries_(entries),
      group_(group),
      rank_(group.rank()),
      rounds_(layout, group.size(), elements),
      share_(share_of_blocks(layout, rank_, group.size())),
      wanted_(spreads.size()) {
    for (std::size_t place = 0; place < spreads_.size(); ++place)
        for (const Held& held : spreads_[place])
            for (const Holder& holder : held.holders)
                if (holder.rank == rank_) wanted_[place].push_back({&held, holder.entry});
}

// Reads this rank's spans of the round. Each part of a span is one message to each rank that needs it.
void Distributor::read(int round) {
    const auto spans = spans_of_round(rounds_.spans[static_cast<std::size_t>(rank_)], round);
    if (spans.begin() == spans.end()) return;
    if (!reader_) reader_.emplace(file_, file_path_, layout_, share_);  // here, where all ranks learn of an error
    reader_->forget_before(spans.begin()->block);
    for (const Span& span : spans) {
        const float* values = reader_->block(span.block) +
                              (span.first - static_cast<std::int64_t>(share_[span.block].first / sizeof(float)));
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
