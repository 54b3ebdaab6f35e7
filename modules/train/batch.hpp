// The tokens of a micro-batch, on the host and on the device.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/random.hpp"
#include "data/dataset.hpp"
#include "kernels/backend.hpp"
#include "model/mixer.hpp"

namespace lockstep::train {

// Where whole sequences [micro, length] are written to. Of each position where its document begins and ends; null:
// documents are joined. ids and targets are null where only these are wanted.
struct HostBatch {
    std::int32_t *ids, *targets, *starts = nullptr, *ends = nullptr;
    std::int64_t* samples = nullptr;  // of each sequence, its sample's number; null: not wanted
};

// Sample `number` of the data as sequence `row` of the batch.
void fetch_sample(const data::Dataset& data, std::int64_t number, std::int64_t length, std::int64_t row,
                  const HostBatch& batch);

// How batches keep documents apart.
struct DocumentBatches {
    std::int64_t positions = 0;       // of whole sequences; 0: documents are joined
    std::int64_t first_position = 0;  // of this rank's part
    bool restarts_positions = false;  // learned positions count from each document's first token
};

// One micro-batch of this rank. `dropout`: where adapters have it, the random bits of tokens, which are a function of
// the sample's number and of the position in it.
struct BatchTensors {
    BatchTensors(Device device, const model::PassShape& shape, const DocumentBatches& apart = {},
                 const std::optional<RandomStream>& dropout = {});
    Arena memory;
    Tensor ids, targets, losses;                       // [N]; fp32 losses
    Tensor sum;                                        // fp64 [1]: sum of the losses
    std::vector<std::int32_t> host_ids, host_targets;  // filled first, then uploaded
    std::vector<std::int32_t> host_starts, host_ends;  // [micro, positions]
    kernels::Documents documents;                      // joined if they are not kept apart
    Tensor places;                                     // [N], where positions restart
    Tensor dropout_tokens;                             // [N, 2], as kernels::Dropout; empty without dropout

    HostBatch host();
    void upload(kernels::Backend& backend);  // all of them

  private:
    std::int64_t length_;
    std::vector<std::int32_t> host_places_, host_dropout_tokens_;
    std::vector<std::int64_t> host_samples_;
    std::optional<RandomStream> dropout_;
};

}  // namespace lockstep::train
