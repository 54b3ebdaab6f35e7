// A model where it is stored: a checkpoint, or a folder in the Hugging Face layout. A checkpoint may hold adapters
// alone (checkpoint.adapters_alone); its base, the model that they were trained on, is then stored elsewhere.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/stream.hpp"
#include "cluster/host_group.hpp"
#include "exchange/folder.hpp"

namespace lockstep::exchange {

// Elements [first, first + count) of a parameter; the values are gone when it returns.
using ParameterSink =
    std::function<void(const std::string& name, std::int64_t first, std::int64_t count, const float* values)>;

class StoredModel {
  public:
    // Local. Opens and checks all but the tensors' values, with the errors of a folder or a checkpoint.
    explicit StoredModel(std::string path);

    const std::string& path() const { return path_; }
    const std::optional<Folder>& folder() const { return folder_; }
    const checkpoint::Contents& contents() const { return contents_; }
    bool has_adapters_alone() const { return !contents_.state.base.empty(); }

    // Collective. Fills the entries. Damaged error for a value that is not finite.
    void load(const std::vector<checkpoint::Entry>& entries, cluster::HostGroup& group) const;
    // Collective. Likewise those that take_base_entries() took; adapters that are stored here too are skipped.
    void load_as_base(std::vector<checkpoint::Entry> entries, cluster::HostGroup& group) const;
    // Collective. Elements of "parameters/NAME", in fp32; not longer than this. Damaged error as load().
    checkpoint::Source source(cluster::HostGroup& group) const;
    // Collective. Passes every element of the parameters, adapters left out, to the sink of one rank; errors as load().
    void read_through(const ParameterSink& sink, cluster::HostGroup& group,
                      const checkpoint::StreamProgress& progress = {}) const;
    // Collective. Of the parameters in fp32, adapters left out: 16 hexadecimal digits, independent of how they are
    // stored (checkpoints/README.md).
    std::string checksum(cluster::HostGroup& group, const checkpoint::StreamProgress& progress = {}) const;

  private:
    std::vector<checkpoint::TensorInfo> base_tensors() const;

    std::string path_;
    std::optional<Folder> folder_;
    checkpoint::Contents contents_;
};

// Of a parameter other than an adapter.
bool is_of_base(const checkpoint::Entry& entry);
// Takes these out of `entries`.
std::vector<checkpoint::Entry> take_base_entries(std::vector<checkpoint::Entry>& entries);

// Collective. The base of the checkpoint that has this state: at `given`, or if that is empty where the checkpoint
// says; none of a whole checkpoint. Reads all of it for its checksum. Usage error if it is missing, is a different
// model, or is given for a whole checkpoint.
std::optional<StoredModel> open_base(const std::string& checkpoint, const checkpoint::State& state,
                                     const std::string& given, cluster::HostGroup& group,
                                     const checkpoint::StreamProgress& progress = {});
// Collective. The errors of open_base() that need no reading of tensors.
void check_base(const std::string& checkpoint, const checkpoint::State& state, const std::string& given,
                cluster::HostGroup& group);

}  // namespace lockstep::exchange
