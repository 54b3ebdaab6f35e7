// A model where it is stored: a checkpoint, or a folder in the Hugging Face layout. A checkpoint may hold adapters
// alone (checkpoint.adapters_alone); its base, the model that they were trained beside, is then stored elsewhere.
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
    // Collective. Likewise those that take_base_entries() took; adapters that are stored here too are passed over.
    void load_as_base(std::vector<checkpoint::Entry> entries, cluster::HostGroup& group) const;
    // Collective. Passes every element of the parameters, adapters left out, to the sink of one rank; errors as load().
    void read_through(const ParameterSink& sink, cluster::HostGroup& group,
                      const checkpoint::StreamProgress& progress = {}) const;
    // Collective. Of the parameters in fp32, adapters left out: 16 hexadecimal digits, the same whatever holds them.
    std::string checksum(cluster::HostGroup& group) const;

  private:
    std::string path_;
    std::optional<Folder> folder_;
    checkpoint::Contents contents_;
};

// Takes parameters that are no adapters out of `entries`.
std::vector<checkpoint::Entry> take_base_entries(std::vector<checkpoint::Entry>& entries);

// Collective. The base of a checkpoint of adapters alone, in this state; at `given`, or if that is empty where the
// checkpoint says. Usage error where it is not there, or another model.
StoredModel open_base(const std::string& checkpoint, const checkpoint::State& state, const std::string& given,
                      cluster::HostGroup& group);
// Collective. As open_base(); none of a whole checkpoint. Usage error where a base is given for that.
std::optional<StoredModel> base_of(const StoredModel& model, const std::string& given, cluster::HostGroup& group);

}  // namespace lockstep::exchange
