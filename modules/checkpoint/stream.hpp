// Checkpoints whose tensors no rank holds: written and read piece by piece, each rank its share of the file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"

namespace lockstep::checkpoint {

// Gives elements [first, first + count) of a tensor.
using Source = std::function<void(const std::string& path, std::int64_t first, std::int64_t count, float* to)>;
// Takes them; the values are gone when it returns.
using Sink = std::function<void(const TensorInfo& tensor, std::int64_t first, std::int64_t count, const float* values)>;
// Of this rank's share: bytes done and in all.
using StreamProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

// Collective: writes the checkpoint `path` of these tensors, reads it back, and gives it its name. Whatever fails on a
// rank is thrown on all, and nothing is left behind.
void write_from(const std::string& path, const Contents& contents, const std::vector<TensorInfo>& tensors,
                const Source& source, cluster::HostGroup& group, const StreamProgress& progress = {});

// Collective: the tensors of a checkpoint whose path begins with `prefix`. Reads what is asked for and verifies the
// checksums of its blocks; damaged errors are the asking rank's.
Source source_of(const std::string& path, const std::string& prefix, cluster::HostGroup& group);

// Local: passes this rank's share of the tensors from the source to the sink, in runs of at most `most_bytes`. All
// ranks together pass each element once.
void pass_through(const std::vector<TensorInfo>& tensors, const Source& source, std::uint64_t most_bytes,
                  const Sink& sink, const cluster::HostGroup& group, const StreamProgress& progress = {});
// Collective: the same of a checkpoint's tensors, as source_of() has them.
void read_through(const std::string& path, const std::string& prefix, std::uint64_t most_bytes, const Sink& sink,
                  cluster::HostGroup& group, const StreamProgress& progress = {});

// Local: fills entries from elsewhere than a checkpoint.
void fill(const std::vector<Entry>& entries, const Source& source);

// Damaged error for a NaN or an infinity among values of `tensor` in `file`: nothing can be computed with such a model.
void check_finite(const std::string& file, const std::string& tensor, const float* values, std::int64_t count);
void check_finite(const std::string& file, const std::vector<Entry>& entries);

}  // namespace lockstep::checkpoint
