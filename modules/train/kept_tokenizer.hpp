// The tokenizer that a checkpoint keeps.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "checkpoint/checkpoint.hpp"
#include "cluster/host_group.hpp"
#include "config/run_description.hpp"
#include "data/tokenizer.hpp"

namespace lockstep::train {

// Of the checkpoint or folder at `path`. Usage error where it is not known, as with .bin files, which ends with
// `remedy`: what to do, or what cannot be done. Other errors are those of data::make_tokenizer.
std::unique_ptr<data::Tokenizer> kept_tokenizer(const checkpoint::Contents& contents, const std::string& path,
                                                std::string_view remedy);

// Collective. The tokenizer of a run's data that do not name theirs: plain text and .bin files. data.tokenizer names
// it; "auto" is that of init.from or, if the run has checkpoints that keep one, of those, so that init.from need not be
// there any more. Null: not known, so plain text is bytes. Usage errors: what is named does not exist; plain text, and
// init.from keeps no tokenizer.
std::shared_ptr<const data::Tokenizer> tokenizer_of_run(const config::RunDescription& run, cluster::HostGroup& group);

}  // namespace lockstep::train
