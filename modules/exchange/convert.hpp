// Between a checkpoint and a folder in the Hugging Face layout, by all ranks together: no rank holds more than some 64
// MiB of the model.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/stream.hpp"
#include "cluster/host_group.hpp"
#include "device/tensor.hpp"

namespace lockstep::exchange {

// Collective. Both refuse an `out` that exists (an empty folder may), and leave nothing behind where they fail.
// A checkpoint of step 0, without optimizer state.
void folder_to_checkpoint(const std::string& folder, const std::string& out, cluster::HostGroup& group,
                          const checkpoint::StreamProgress& progress = {});

struct WayOut {
    Type type = Type::fp32;                     // or bf16, fp16
    std::uint64_t shard_bytes = 5'000'000'000;  // at most, unless one tensor has more
    double inner_rate_factor = 1;               // on TTT's base_lr, at the checkpoint's step
};
// `checkpoint`: a file.
void checkpoint_to_folder(const std::string& checkpoint, const std::string& out, const WayOut& options,
                          cluster::HostGroup& group, const checkpoint::StreamProgress& progress = {});

}  // namespace lockstep::exchange
