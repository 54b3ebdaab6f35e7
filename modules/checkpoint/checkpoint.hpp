// Checkpoints: one HDF5 file a step, independent of how the run was laid out (format: checkpoints/README.md). Written
// by all ranks beside the training, checksummed, committed by rename: a file that bears the name is whole.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/host_group.hpp"
#include "device/tensor.hpp"
#include "kernels/backend.hpp"

namespace lockstep::checkpoint {

// The optimizer of checkpoints that name none: the only one there was.
constexpr const char* first_optimizer = "adamw";

// The state of a run beside its tensors.
struct State {
    std::string optimizer = first_optimizer;  // whose state /optimizer holds
    std::int64_t step = 0, tokens = 0, samples = 0;
    std::int64_t optimizer_steps = 0;  // steps that made an update
    std::uint64_t seed = 0;
    std::int64_t data_cursor = 0;  // the next sample number
    double loss_scale = 1;
    std::int64_t good_steps = 0, bad_steps = 0;  // of the loss scaler
    std::int64_t skipped_steps = 0, skipped_in_a_row = 0;
    std::uint64_t data_checksum = 0;      // of the training data, and
    std::int64_t length = 0;              // tokens a sequence: together they say what a sample number means
    std::int64_t ranks = 1, threads = 1;  // of the run that wrote it; with processor and commit they decide
    std::string processor, commit;        // whether a resume repeats bit for bit
    bool finished = false;                // the schedule was completed
};

struct Contents {
    State state;
    std::string run_description;  // TOML
    std::string tokenizer_kind;   // "bytes" | "sentencepiece" | "" (unknown)
    std::string tokenizer_model;  // the sentencepiece model's bytes
};

// What one rank holds of one logical tensor of the file: `count` elements of `value` are those from `first` on of the
// slice [offset, offset + extent) of axis `axis` (0 or 1 of a tensor of at least that many axes; axes behind it are
// whole), counted in the slice's own row-major order. fp32, or bf16 or fp16: these become fp32 in the file, and are
// rounded to the nearest when they are read. Several entries may name the same tensor, and several ranks may hold the
// same part.
struct Entry {
    std::string path;  // "parameters/blocks/0/mixer/query/weight"
    Shape shape;       // of the whole tensor
    int axis = 0;
    std::int64_t offset = 0, extent = 0;  // extent of a whole tensor: shape[axis]
    std::int64_t first = 0;               // within the slice
    Tensor value;                         // flat or shaped: its elements in order; may be empty (nothing held)
    kernels::Backend* device = nullptr;   // whose memory `value` is; null: the process's
};
Entry whole(std::string path, Tensor value, kernels::Backend* device);  // a whole tensor

std::string file_name(std::int64_t step);  // "step-00000100.h5"

class Writer {
  public:
    // Collective; the group must be the writer's own. Removes what unfinished writers have left in `folder`
    // (step-….h5.tmp): no other run may be writing there. Fewer than 2 to keep count as 2.
    Writer(std::string folder, std::int64_t keep, std::unique_ptr<cluster::HostGroup> group);
    ~Writer();  // waits for the writer thread; abandons what is not committed

    // Collective. Rank 0 lays out the file and reserves its space, every rank brings together its share of the tensors,
    // from its own memory where that holds it and else from other ranks', and starts to write it from a thread of its
    // own. Each rank may name other tensors; a part of a tensor that no rank holds, or a tensor with two shapes: fault
    // error. Returns false, with a warning on rank 0, when the file could not be laid out (a full disk) or the tensors
    // not be copied: training goes on and the earlier checkpoints stay. Waits for an earlier one to finish first.
    bool begin(const Contents& contents, const std::vector<Entry>& entries);

    enum class Progress { idle, writing, written, failed };
    Progress progress() const;  // of this rank; cheap, local
    // Collective, once every rank is `written` or `failed`: verifies, renames, syncs the folder, removes those beyond
    // `keep` – or, when any failed, removes the unfinished file and warns. Returns whether it was committed.
    bool commit();
    // Collective: begin (where not yet begun), wait, commit.
    bool write_now(const Contents& contents, const std::vector<Entry>& entries);
    // Of the last checkpoint committed, on the slowest rank.
    struct Cost {
        std::uint64_t bytes = 0;   // of the file
        double seconds = 0;        // writing, reading back, committing; without what the caller did in between
        double still_seconds = 0;  // of these, within the calls
    };
    const Cost& cost() const;
    // Collective: waits for one under way and commits it. Whether the last one begun was committed; true when none was.
    bool finish();

  private:
    struct Implementation;
    std::unique_ptr<Implementation> implementation_;
};

// What a file holds, without its tensors. No such file: usage error; not whole: damaged error.
Contents read_contents(const std::string& path);
struct TensorInfo {
    std::string path;
    Shape shape;
};
std::vector<TensorInfo> list_tensors(const std::string& path);

// Collective: fills every entry, each rank reading a share of the file and passing it on to those that asked for it;
// checks the checksum of every tensor that a rank names. A tensor that is missing, of another shape, or in the file but
// named by no rank (where any names others of its group): usage error that names the first ("a checkpoint of another
// model"). Every rank throws the same error.
void load(const std::string& path, const std::vector<Entry>& entries, cluster::HostGroup& group);

// Checks every checksum; throws a damaged error that names the first tensor that fails. Returns the bytes checked.
// `progress` is told the bytes checked and the bytes there are.
std::uint64_t verify(const std::string& path, const std::function<void(std::uint64_t, std::uint64_t)>& progress = {});

// The newest whole checkpoint of a folder, all checksums tried, "" when there is none. Why others were passed over goes
// to `skipped`, one sentence each.
std::string find_newest(const std::string& folder, std::vector<std::string>& skipped);
// A run that goes on from `step` leaves the later checkpoints behind: they are renamed to NAME.set-aside, so that the
// next resume does not take one of them for its own. Returns the new names.
// Removes what a process that was killed left behind: unfinished files, and checkpoints older than the newest `keep` up
// to `step`. Returns what was removed.
std::vector<std::string> remove_leftovers(const std::string& folder, std::int64_t step, std::int64_t keep);
std::vector<std::string> set_aside_later(const std::string& folder, std::int64_t step);
std::vector<std::string> list_checkpoints(const std::string& folder);  // oldest first

}  // namespace lockstep::checkpoint
