// Moves tensors between the ranks that hold them and the ranks that write or read their blocks, in rounds of bounded
// size. Only checkpoint/ includes this.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/layout.hpp"
#include "checkpoint/read_ahead.hpp"
#include "checkpoint/snapshot.hpp"
#include "checkpoint/spread.hpp"
#include "cluster/agree.hpp"
#include "cluster/host_group.hpp"

namespace lockstep::checkpoint {

struct Holdings;

// The places of the layout that are named, in file order, with their holders in `spreads`. Usage error for a checkpoint
// of another model.
Layout selected(const std::string& path, const Layout& layout, Holdings holdings, std::vector<Spread>& spreads);

// Every rank's share of the file, cut into rounds.
struct Rounds {
    Rounds(const Layout& layout, int ranks, std::int64_t elements);  // elements: the most of each share per round
    Rounds(const std::vector<std::vector<ChecksumBlock>>& shares, std::int64_t elements);
    std::vector<std::vector<Span>> spans;  // per rank
    int count = 0;
};

// The messages of one round, and buffers for those not sent from or received in place.
struct Traffic {
    std::vector<cluster::HostMessage> receives, sends;
    std::vector<std::unique_ptr<float[]>> buffers;

    float* buffer(std::int64_t count) {
        buffers.push_back(std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(count)));
        return buffers.back().get();
    }
    void receive(int from, float* data, std::int64_t count) { receives.push_back({from, data, bytes(count)}); }
    void send(int to, const float* data, std::int64_t count) {
        sends.push_back({to, const_cast<float*>(data), bytes(count)});
    }
    static std::size_t bytes(std::int64_t count) { return static_cast<std::size_t>(count) * sizeof(float); }
};

// Assembles the blocks that this rank writes, from its own memory where it holds them, else from other ranks'. Its
// arguments must outlive it.
class Collector {
  public:
    Collector(const Layout& layout, const std::vector<Spread>& spreads, const std::vector<Entry>& entries,
              cluster::HostGroup& group, std::int64_t elements);
    // Throws a fault error if no rank holds some element of this rank's share.
    void check_cover();
    // Collective, after check_cover() on every rank: fills `blocks`. With values left in place, what this rank holds as
    // fp32 in its own memory stays there, as live parts.
    std::optional<cluster::Failure> collect(Snapshot& blocks, Values values = Values::copied);

  private:
    bool holds_some_of(const Span& span) const;
    std::vector<Segment> sources_of(const Span& span, int owner) const;
    float* place_of(const Span& span) const;
    bool stays(const Segment& segment) const;
    std::vector<LiveParts> live_parts() const;
    void copy_own();
    void prepare_receives(int round);
    void prepare_sends(int round);
    void finish_receives();
    // Copies this rank's own segments, those in device memory or the others, to destination(i).
    template <class Destination>
    void copy(const std::vector<Segment>& segments, bool from_devices, Destination&& destination) const;

    const Layout& layout_;
    const std::vector<Spread>& spreads_;
    const std::vector<Entry>& entries_;
    cluster::HostGroup& group_;
    const int rank_;
    Rounds rounds_;
    std::vector<ChecksumBlock> share_;
    std::vector<std::vector<SliceRange>> own_;  // per place: what this rank holds of it
    int foreign_rounds_ = 0;                    // up to the last one in which this rank receives
    const Snapshot* collected_ = nullptr;
    Values values_ = Values::copied;
    Traffic traffic_;
    struct Scattered {
        const float* from;
        float* to;
        std::int64_t count;
    };
    std::vector<Scattered> scattered_;  // received, still to be copied into place
};

// Which rank reads which blocks, and from which files this rank does.
struct Reading {
    std::vector<std::vector<ChecksumBlock>> shares;  // per rank
    std::vector<OpenFile> files;                     // of this rank, in the order in which it reads them
    std::vector<std::size_t> file_of_block;          // per block of this rank's share
    int readers() const;                             // ranks whose share is not empty; 1 at least
};
// Every rank reads about as many bytes of one file.
Reading reading_of(OpenFile file, const Layout& layout, int rank, int ranks);

// Reads and verifies this rank's share of the blocks and sends the parts to the ranks that need them. Its arguments
// must outlive it.
class Distributor {
  public:
    Distributor(const Reading& reading, const Layout& layout, const std::vector<Spread>& spreads,
                const std::vector<Entry>& entries, cluster::HostGroup& group, std::int64_t elements,
                std::int64_t most_received = elements_in_flight);
    void distribute();  // collective; every rank throws the first failure

  private:
    struct Wanted {
        const Held* held;
        int entry;
    };
    const float* values_of(const Span& span);
    void forget_before(std::size_t block);
    void read(int round);
    // Calls take(wanted, first, last) for each part that this rank wants of what another one reads in a round: elements
    // [first, last) of what it holds.
    template <class Take>
    void each_wanted(int round, int reader, Take&& take) const;
    int end_of_turn(int round, int first);
    void prepare_receives(int round, int first, int last);  // of what these ranks read
    void finish_receives();

    const Reading& reading_;
    const Layout& layout_;
    const std::vector<Spread>& spreads_;
    const std::vector<Entry>& entries_;
    cluster::HostGroup& group_;
    const int rank_;
    const std::int64_t elements_, most_received_;
    Rounds rounds_;
    const std::vector<ChecksumBlock>& share_;
    std::vector<std::vector<ChecksumBlock>> blocks_of_file_;
    std::vector<std::size_t> first_of_file_;           // block of the share
    std::vector<std::unique_ptr<ReadAhead>> readers_;  // per file, while it is read
    std::vector<std::vector<Wanted>> wanted_;          // per place, by this rank
    Traffic traffic_;
    struct Upload {
        int entry;
        std::int64_t first, count;
        const float* values;
    };
    std::vector<Upload> uploads_;  // received for device tensors or other types
};

}  // namespace lockstep::checkpoint
