// Checkpoints: one HDF5 file per step, independent of the run's layout (format: checkpoints/README.md). Written by all
// ranks in the background, checksummed, committed by rename: a file with a checkpoint's name is complete.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cluster/host_group.hpp"
#include "config/words.hpp"
#include "data/tokenizer_files.hpp"
#include "device/tensor.hpp"
#include "kernels/backend.hpp"

namespace lockstep::checkpoint {

// Assumed for old checkpoints that name no optimizer.
constexpr const char* first_optimizer = "adamw";

// The run's state besides its tensors.
struct State {
    std::string optimizer = first_optimizer;  // owner of the state in /optimizer
    std::int64_t step = 0, tokens = 0, samples = 0;
    std::int64_t optimizer_steps = 0;  // steps that updated the parameters
    std::uint64_t seed = 0;
    std::int64_t data_cursor = 0;  // next sample number
    double loss_scale = 1;
    std::int64_t good_steps = 0, bad_steps = 0;  // of the loss scaler
    std::int64_t skipped_steps = 0, skipped_in_a_row = 0;
    std::uint64_t data_checksum = 0;      // of the training data; with length it
    std::int64_t length = 0;              // defines which tokens a sample number means
    std::int64_t ranks = 1, threads = 1;  // of the run that wrote it; with processor and commit
    std::string processor, commit;        // they decide whether a resume is bit-identical
    bool finished = false;                // the schedule was completed
    // Where a checkpoint holds adapters alone: the model that they were trained on, by its absolute path and the
    // checksum of its parameters.
    std::string base, base_checksum;
};

struct Contents {
    State state;
    std::string run_description;  // TOML
    std::string tokenizer_kind;   // "bytes" | "sentencepiece" | "huggingface" | "" (unknown)
    data::TokenizerFiles tokenizer_files;
};

// The part of one logical tensor that a rank holds: elements [first, first + count) of the slice [offset, offset +
// extent) along `axis` (0 or 1; later axes are whole), in the slice's row-major order. fp32, or bf16 or fp16, which are
// widened to fp32 in the file and rounded to nearest when read. Several entries may name one tensor, and several ranks
// may hold the same part.
struct Entry {
    std::string path;  // "parameters/blocks/0/mixer/query/weight"
    Shape shape;       // of the whole tensor
    int axis = 0;
    std::int64_t offset = 0, extent = 0;  // extent of a whole tensor: shape[axis]
    std::int64_t first = 0;               // within the slice
    Tensor value;                         // flat or shaped, elements in order; may be empty
    kernels::Backend* device = nullptr;   // owner of `value`'s memory; null: host
};
Entry whole(std::string path, Tensor value, kernels::Backend* device);
Entry skipped(std::string path, const Shape& shape);  // that a file may have, and that is not to be read

std::string file_name(std::int64_t step);              // "step-00000100.h5"
std::string unfinished_name(const std::string& path);  // of a checkpoint or folder until it is whole
// Of the datasets with the model's parameters.
inline const std::string parameters_prefix = "parameters/", averages_prefix = "optimizer/ema/";

// What becomes of the values when a checkpoint begins: they are copied, or, where a rank holds them as fp32 in its own
// memory, written from there.
enum class Values { copied, left_in_place };
// Of values left in place: what is copied of those that are not yet written when they are to change.
constexpr std::uint64_t most_kept_late = std::uint64_t{256} << 20;
// The most host memory that a rank needs while it writes a share of so many bytes.
std::uint64_t bytes_while_writing(std::uint64_t share, Values values);

class Writer {
  public:
    // Collective; the writer needs a group of its own. Removes what unfinished writers left in `folder`
    // (step-….h5.tmp), so no other run may write there. `keep` below 2 counts as 2.
    Writer(std::string folder, std::int64_t keep, std::unique_ptr<cluster::HostGroup> group,
           config::CheckpointVerify verify = config::CheckpointVerify::read);
    ~Writer();  // waits for the writer threads; abandons what is not committed

    // Collective. Rank 0 lays out the file and reserves its space; every rank assembles its share of the tensors, from
    // its own memory where possible, else from other ranks, and starts writing it in the background. Ranks may name
    // different tensors; a part that no rank holds, or a tensor with two shapes, is a fault error. Returns false, with
    // a warning on rank 0, if the file could not be laid out (disk full) or memory for the copy is lacking: training
    // continues, and earlier checkpoints stay. First waits for an earlier checkpoint to finish. Values left in place
    // outlive the writing, and may change only after release() or commit().
    bool begin(const Contents& contents, const std::vector<Entry>& entries, Values values = Values::copied);
    // Local: whether values left in place are still needed.
    bool needs_values() const;
    // Local: copies at most `most_kept_late` bytes of what is not yet written, and waits until the rest is. Returns the
    // seconds it took.
    double release();

    enum class Progress { idle, writing, written, failed };
    Progress progress() const;  // of this rank; local and cheap
    // Collective, once every rank is `written` or `failed`: verifies, renames, syncs the folder, removes checkpoints
    // beyond `keep`; or, if any rank failed, removes the unfinished file and warns. Returns whether it was committed.
    bool commit();
    // Collective: begin (unless begun), wait, commit.
    bool write_now(const Contents& contents, const std::vector<Entry>& entries);
    // Of the last committed checkpoint, on the slowest rank.
    struct Cost {
        std::uint64_t bytes = 0;         // file size
        double seconds = 0;              // writing, reading back, committing; without idle time between calls
        double blocked_seconds = 0;      // of these, spent within calls: training was paused
        std::uint64_t copied_bytes = 0;  // the most memory that copies have taken on this rank
    };
    const Cost& cost() const;
    // Collective: waits for a pending checkpoint and commits it. Whether the last one was committed; true if there was
    // none.
    bool finish();

  private:
    struct Implementation;
    std::unique_ptr<Implementation> implementation_;
};

// A file's metadata, without tensors. Missing file: usage error; damage: damaged error.
Contents read_contents(const std::string& path);
struct TensorInfo {
    std::string path;
    Shape shape;
};
std::vector<TensorInfo> list_tensors(const std::string& path);

// Collective: fills every entry; each rank reads a share of the file and sends it to the ranks that need it. Verifies
// the checksums of all named tensors. A tensor that is missing, of another shape, or in the file but not named by any
// rank (if others of its group are): usage error that names the first ("a checkpoint of another model"). All ranks
// throw the same error.
void load(const std::string& path, const std::vector<Entry>& entries, cluster::HostGroup& group);

// Verifies every checksum; throws a damaged error that names the first bad tensor. Returns the bytes checked.
// `progress` gets the bytes checked so far and in total.
std::uint64_t verify(const std::string& path, const std::function<void(std::uint64_t, std::uint64_t)>& progress = {});

// The newest undamaged checkpoint of a folder, all checksums verified; "" if there is none. `skipped` gets one sentence
// for each one skipped.
std::string find_newest(const std::string& folder, std::vector<std::string>& skipped);
// Removes what a killed process left behind: unfinished files, and checkpoints older than the newest `keep` up to
// `step`. Returns the names.
std::vector<std::string> remove_leftovers(const std::string& folder, std::int64_t step, std::int64_t keep);
// When a run resumes from `step`, renames later checkpoints to NAME.set-aside, so that the next resume does not take
// them. Returns the new names.
std::vector<std::string> set_aside_later(const std::string& folder, std::int64_t step);
std::vector<std::string> list_checkpoints(const std::string& folder);  // oldest first
std::int64_t step_of_file(const std::string& path);                    // by its name; -1 for any other

}  // namespace lockstep::checkpoint
