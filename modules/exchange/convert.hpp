// Between a checkpoint and a folder in the Hugging Face layout, by all ranks together: no rank holds more than about 64
// MiB of the model.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/stream.hpp"
#include "cluster/host_group.hpp"
#include "device/tensor.hpp"

namespace lockstep::exchange {

struct Converted {
    std::string architecture, tokenizer_kind;  // "LlamaForCausalLM"; of checkpoint::Contents
    bool with_adapters = false;
};

// Collective. Both refuse an `out` that exists (an empty folder may), or whose unfinished_name() does; where they fail
// they leave nothing behind but folders above it. All ranks return the same.
// A checkpoint of step 0, without optimizer state. `folder` may hold adapters (exchange/peft.hpp), and `base` then name
// the folder of their model.
Converted folder_to_checkpoint(const std::string& folder, const std::string& out, cluster::HostGroup& group,
                               const checkpoint::StreamProgress& progress = {}, const std::string& base = "");

struct WayOut {
    Type type = Type::fp32;                     // or bf16, fp16
    std::uint64_t shard_bytes = 5'000'000'000;  // of tensors in a file, at most, unless one tensor has more
    bool averages = false;                      // those of optimizer.ema instead of the parameters
    bool adapters = false;                      // these alone, as PEFT has them, instead of merged into the weights
    std::string base;                           // of a checkpoint of adapters alone; "": where that says
};
// `checkpoint`: a file. TTT's base_lr is written as it was at the checkpoint's step.
Converted checkpoint_to_folder(const std::string& checkpoint, const std::string& out, const WayOut& options,
                               cluster::HostGroup& group, const checkpoint::StreamProgress& progress = {});

// Of any model: the parameters alone at step 0, with adapters merged, without optimizer state. `type`, `shard_bytes`
// and `adapters` do not apply. The architecture returned is "".
Converted checkpoint_to_checkpoint(const std::string& checkpoint, const std::string& out, const WayOut& options,
                                   cluster::HostGroup& group, const checkpoint::StreamProgress& progress = {});

}  // namespace lockstep::exchange
