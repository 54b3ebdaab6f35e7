// lockstep inspect for folders in the Hugging Face layout.
#pragma once

#include <string>

#include "base/table.hpp"

namespace lockstep::commands {

// The model that its config.json describes, and the tensors by their names there and here.
int inspect_folder(const std::string& path, TableFormat format);

}  // namespace lockstep::commands
