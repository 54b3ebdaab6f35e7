// What the ranks tell each other of the tensors they hold. Only checkpoint/ includes this.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/layout.hpp"
#include "checkpoint/spread.hpp"
#include "cluster/host_group.hpp"

namespace lockstep::checkpoint {

Piece piece_of(const Entry& entry);
// The entry's elements where they lie, if that is the process's memory and they are fp32; else null.
float* fp32_of(const Entry& entry);
// Neighbouring elements of the entry to memory of the process, and from it.
void copy_out(const Entry& entry, std::int64_t first, std::int64_t count, float* to);
void copy_in(const Entry& entry, std::int64_t first, std::int64_t count, const float* from);

// Collective: the tensors that any rank names, by path. Two shapes for one path: fault error on every rank.
std::vector<TensorInfo> union_of_tensors(const std::vector<Entry>& entries, cluster::HostGroup& group);

// All ranks' entries, seen from a file's places.
struct Holdings {
    explicit Holdings(std::size_t places) : spreads(places), named(places) {}
    std::vector<Spread> spreads;                // of each place
    std::vector<bool> named;                    // each place: by any rank, though it may hold nothing of it
    std::map<std::size_t, Shape> other_shapes;  // places that the first such rank gives another shape
    std::vector<std::string> not_there;         // paths that the file does not have, in the order of ranks and entries
};
// Collective; the same on every rank.
Holdings gather_holdings(const std::vector<Place>& places, const std::vector<Entry>& entries,
                         cluster::HostGroup& group);

// The two halves of it: one rank's entries as bytes, which say where they end, and all ranks' bytes read.
std::string holdings_to_bytes(const std::vector<Place>& places, const std::vector<Entry>& entries);
Holdings holdings_from_bytes(const std::vector<Place>& places, std::string_view bytes);

}  // namespace lockstep::checkpoint
