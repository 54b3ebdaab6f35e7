// Exchange of which rank holds which tensors. Only checkpoint/ includes this.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/layout.hpp"
#include "checkpoint/spread.hpp"
#include "cluster/distinct_texts.hpp"
#include "cluster/host_group.hpp"

namespace lockstep::checkpoint {

SliceRange slice_range(const Entry& entry);
// The entry's data, if it is fp32 in host memory; else null.
float* fp32_of(const Entry& entry);
// Copies a run of the entry's elements to host memory, and from it.
void copy_out(const Entry& entry, std::int64_t first, std::int64_t count, float* to);
void copy_in(const Entry& entry, std::int64_t first, std::int64_t count, const float* from);

// Collective: all tensors named by any rank, by path. Two shapes for one path: fault error on every rank.
std::vector<TensorInfo> union_of_tensors(const std::vector<Entry>& entries, cluster::HostGroup& group);

// All ranks' entries, matched to the places of a file.
struct Holdings {
    explicit Holdings(std::size_t places) : spreads(places), named(places) {}
    std::vector<Spread> spreads;                // per place
    std::vector<bool> named;                    // per place: whether any rank names it, even if it holds nothing of it
    std::map<std::size_t, Shape> other_shapes;  // places to which a rank gives another shape, the first such
    std::vector<std::string> not_there;         // paths that the file lacks, in the order of ranks and entries
};
// Collective; identical on every rank. What each rank receives grows with the ranks, by some hundred bytes for each:
// replicas say the same in most of the texts below, and only hashes of those are sent.
Holdings gather_holdings(const std::vector<Place>& places, const std::vector<Entry>& entries,
                         cluster::HostGroup& group);

// Its two halves. What one rank says of its entries: a text of what they are called, then texts of which parts it
// holds, each of the next 256 entries.
std::vector<std::string> holdings_to_texts(const std::vector<Place>& places, const std::vector<Entry>& entries);
Holdings holdings_from_texts(const std::vector<Place>& places, const cluster::DistinctTexts& all);

}  // namespace lockstep::checkpoint
