#include <algorithm>
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

int Reading::readers() const {
    const auto none = std::count_if(shares.begin(), shares.end(), [](const auto& share) { return share.empty(); });
    return std::max(static_cast<int>(shares.size()) - static_cast<int>(none), 1);
}

Reading reading_of(OpenFile file, const Layout& layout, int rank, int ranks) {
    Reading reading;
    reading.shares = shares_of_blocks(layout, ranks);
    reading.file_of_block.resize(reading.shares[static_cast<std::size_t>(rank)].size());
    reading.files.push_back(std::move(file));
    return reading;
}

Distributor::Distributor(const Reading& reading, const Layout& layout, const std::vector<Spread>& spreads,
                         const std::vector<Entry>& entries, cluster::HostGroup& group, std::int64_t elements,
                         std::int64_t most_received)
    : reading_(reading),
      layout_(layout),
      spreads_(spreads),
      entries_(entries),
      group_(group),
      rank_(group.rank()),
      elements_(elements),
      most_received_(most_received),
      rounds_(reading.shares, elements),
      share_(reading.shares[static_cast<std::size_t>(rank_)]),
      blocks_of_file_(reading.files.size()),
      first_of_file_(reading.files.size()),
      readers_(reading.files.size()),
      wanted_(spreads.size()) {
    for (std::size_t block = 0; block < share_.size(); ++block) {
        const std::size_t file = reading_.file_of_block[block];
        if (blocks_of_file_[file].empty()) first_of_file_[file] = block;
        blocks_of_file_[file].push_back(share_[block]);
    }
    for (std::size_t place = 0; place < spreads_.size(); ++place)
        for (const Held& held : spreads_[place].all())
            held.holders.each_entry_of(rank_, [&](int entry) { wanted_[place].push_back({&held, entry}); });
}

// The span's elements, until forget_before().
const float* Distributor::values_of(const Span& span) {
    const std::size_t number = reading_.file_of_block[span.block];
    auto& reader = readers_[number];
    if (!reader) {
        const OpenFile& file = reading_.files[number];
        reader = std::make_unique<ReadAhead>(file, file.path(), layout_, blocks_of_file_[number]);
    }
    return reader->block(span.block - first_of_file_[number]) +
           (span.first - static_cast<std::int64_t>(share_[span.block].first / sizeof(float)));
}

void Distributor::forget_before(std::size_t block) {
    const std::size_t number = reading_.file_of_block[block];
    for (std::size_t earlier = 0; earlier < number; ++earlier) readers_[earlier].reset();
    if (readers_[number]) readers_[number]->forget_before(block - first_of_file_[number]);
}

// Reads this rank's spans of the round. Each part of a span is one message to each rank that needs it.
void Distributor::read(int round) {
    const auto spans = spans_of_round(rounds_.spans[static_cast<std::size_t>(rank_)], round);
    if (spans.begin() == spans.end()) return;
    forget_before(spans.begin()->block);
    for (const Span& span : spans) {
        const float* values = values_of(span);
        spreads_[span.place].each_near(span.first, span.first + span.count, [&](const Held& held) {
            const Part part = part_of_span(held.piece, span);
            if (part.count() == 0) return;
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
            held.holders.each([&](const Holder& holder) {
                if (holder.rank != rank_)
                    traffic_.send(holder.rank, packed, part.count());
                else
                    copy_in(entries_[static_cast<std::size_t>(holder.entry)], part.first, part.count(), packed);
            });
        });
    }
}

template <class Take>
void Distributor::each_wanted(int round, int reader, Take&& take) const {
    if (reader == rank_) return;
    for (const Span& span : spans_of_round(rounds_.spans[static_cast<std::size_t>(reader)], round))
        for (const Wanted& wanted : wanted_[span.place]) {
            const Part part = part_of_span(wanted.held->piece, span);
            if (part.count() > 0) take(wanted, part.first, part.last);
        }
}

// Collective. The ranks from `first` on that read in one turn: as many as no rank receives too much of, but one.
int Distributor::end_of_turn(int round, int first) {
    const int ranks = group_.size();
    if (elements_ * reading_.readers() <= most_received_) return ranks;
    int last = first;
    for (std::int64_t received = 0; last < ranks; ++last) {
        each_wanted(round, last, [&](const Wanted&, std::int64_t from, std::int64_t to) { received += to - from; });
        if (received > most_received_ && last > first) break;
    }
    std::vector<std::int64_t> least = {last};
    group_.all_reduce(least, cluster::Reduce::minimum);
    return static_cast<int>(least[0]);
}

void Distributor::prepare_receives(int round, int first, int last) {
    for (int reader = first; reader < last; ++reader)
        each_wanted(round, reader, [&](const Wanted& wanted, std::int64_t from, std::int64_t to) {
            float* const values = fp32_of(entries_[static_cast<std::size_t>(wanted.entry)]);
            float* const place = values ? values + from : traffic_.buffer(to - from);
            traffic_.receive(reader, place, to - from);
            if (!values) uploads_.push_back({wanted.entry, from, to - from, place});
        });
}

void Distributor::finish_receives() {
    for (const auto& one : uploads_)
        copy_in(entries_[static_cast<std::size_t>(one.entry)], one.first, one.count, one.values);
    uploads_.clear();
    traffic_ = {};
}

void Distributor::distribute() {
    for (int round = 0; round < rounds_.count; ++round)
        for (int first = 0, last = 0; first < group_.size(); first = last) {
            last = end_of_turn(round, first);
            cluster::together(group_, [&] {
                finish_receives();
                if (rank_ >= first && rank_ < last) read(round);
                prepare_receives(round, first, last);
            });
            group_.exchange(traffic_.receives, traffic_.sends);
        }
    cluster::together(group_, [&] { finish_receives(); });
}

}  // namespace lockstep::checkpoint
