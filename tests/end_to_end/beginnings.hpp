// Runs that begin with the parameters of a checkpoint or of a folder in Hugging Face's layout.
#pragma once

#include "end_to_end/command.hpp"

namespace lockstep::tests {

// fine.toml: two steps that leave the parameters as they were, to the last bit.
inline void write_fine_description(const fs::path& folder) {
    write_file(folder / "fine.toml", R"([run]
self_test = false
[data]
train = ["text"]
[batch]
global = 6
[schedule]
steps = 2
peak_lr = 1e-300
kind = "constant"
[optimizer]
weight_decay = 0
)");
}

// The parameters alone.
inline std::map<std::string, std::vector<float>> parameters_of(const fs::path& checkpoint) {
    auto tensors = tensors_of(checkpoint);
    std::erase_if(tensors, [](const auto& each) { return !each.first.starts_with("parameters/"); });
    return tensors;
}

}  // namespace lockstep::tests
