// Moving tensors between the ranks that hold them and the ranks that write or read their blocks, in rounds of bounded
// size. Only checkpoint/ includes this.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/layout.hpp"
#include "checkpoint/snapshot.hpp"
#include "checkpoint/spread.hpp"
#include "cluster/agree.hpp"
#include "cluster/host_group.hpp"

namespace lockstep::checkpoint {

// Every rank's share of the file, cut into rounds.
struct Rounds {
    Rounds(const Layout& layout, int ranks, std::int64_t elements);  // at most so many of each share a round
    std::vector<std::vector<Span>> spans;                            // of each rank
    int count = 0;
};

// The messages of one round, and memory for those that are not sent from or received at the place itself.
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

// Brings the blocks that this rank writes together, from its own memory where that holds them, else from other ranks'.
// What it is given outlives it.
class Collector {
  public:
    Collector(const Layout& layout, const std::vector<Spread>& spreads, const std::vector<Entry>& entries,
              cluster::HostGroup& group, std::int64_t elements);
    // Throws a fault error when no rank holds some element of this rank's share.
    void check_cover();
    // Collective, after check_cover() of every rank: this rank's blocks, in `blocks`.
    std::optional<cluster::Failure> collect(Snapshot& blocks);

  private:
    std::vector<Segment> sources_of(const Span& span, int owner) const;
    float* place_of(const Span& span) const;
    void copy_own();
    void prepare_receives(int round);
    void prepare_sends(int round);
    void finish_receives();
    // Copies those of the segments, all of this rank's entries, that lie on devices, or the others, to destination(i).
    template <class Destination>
    void copy(const std::vector<Segment>& segments, bool from_devices, Destination&& destination) const;

    const Layout& layout_;
    const std::vector<Spread>& spreads_;
    const std::vector<Entry>& entries_;
    cluster::HostGroup& group_;
    const int rank_;
    Rounds rounds_;
    std::vector<Block> share_;
    std::vector<bool> holds_;  // each place: whether this rank has any of it
    int foreign_rounds_ = 0;   // up to the last in which this rank gets anything from another
    const Snapshot* collected_ = nullptr;
    Traffic traffic_;
    struct Scattered {
        const float* from;
        float* to;
        std::int64_t count;
    };
    std::vector<Scattered> scattered_;  // what was received, to be copied to its places
};

// Reads this rank's share of the blocks, checks them, and passes them to the ranks that asked for a part.
// What it is given outlives it.
class Distributor {
  public:
    Distributor(const OpenFile& file, const std::string& file_path, const Layout& layout,
                const std::vector<Spread>& spreads, const std::vector<Entry>& entries, cluster::HostGroup& group,
                std::int64_t elements);
    void distribute();  // collective; every rank throws the first failure

  private:
    struct Wanted {
        const Held* held;
        int entry;
    };
    const float* block_of(const Span& span);
    void read(int round);
    void prepare_receives(int round);
    void finish_receives();

    const OpenFile& file_;
    const std::string& file_path_;
    const Layout& layout_;
    const std::vector<Spread>& spreads_;
    const std::vector<Entry>& entries_;
    cluster::HostGroup& group_;
    const int rank_;
    Rounds rounds_;
    std::vector<Block> share_;
    std::map<std::size_t, std::unique_ptr<float[]>> blocks_;  // read, by their number in the share
    std::vector<std::vector<Wanted>> wanted_;                 // of each place, by this rank
    Traffic traffic_;
    struct Upload {
        int entry;
        std::int64_t first, count;
        const float* values;
    };
    std::vector<Upload> uploads_;  // what was received for tensors of a device or of another type
};

}  // namespace lockstep::checkpoint
