// The tokenizer that a checkpoint keeps.
#pragma once

#include <memory>
#include <string_view>

#include "checkpoint/checkpoint.hpp"
#include "cluster/host_group.hpp"
#include "config/run_description.hpp"
#include "data/tokenizer.hpp"

namespace lockstep::train {

// data.tokenizer where none is named: that of the checkpoint a run begins with, else bytes.
inline constexpr std::string_view automatic_tokenizer = "auto";

// Null where it is not known, as with .bin files. Errors are those of data::make_tokenizer.
std::unique_ptr<data::Tokenizer> kept_tokenizer(const checkpoint::Contents& contents);

// Collective. For a run with init.from whose data has plain text and whose data.tokenizer is "auto": the tokenizer of
// init.from or, if the run has checkpoints already, of those, so that init.from need not be there any more. Else null.
std::shared_ptr<const data::Tokenizer> tokenizer_to_begin_with(const config::RunDescription& run,
                                                               cluster::HostGroup& group);

}  // namespace lockstep::train
