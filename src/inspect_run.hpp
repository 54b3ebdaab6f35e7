// lockstep inspect for runs before their start.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/table.hpp"

namespace lockstep::commands {

enum class FileKind { description, run_folder, model_folder, other };
// description: the name ends with ".toml", or keys are asked for. model_folder: in the Hugging Face layout. other:
// anything else, also a missing file or none.
FileKind kind_of(const std::string& path, bool has_keys);

// The resolved description, the model's size and the output folders; `details`, and JSON: the model's parameters by
// name, too. With `keys` only their values, one line each; nothing is printed for a single empty one.
int inspect_description(const std::string& path, const std::vector<std::string>& settings,
                        const std::vector<std::string>& keys, TableFormat format, bool details);
// The most ranks, `limit` at most, that the description can be trained on. Usage error if none.
int print_most_ranks(const std::string& path, const std::vector<std::string>& settings, std::int64_t limit);

}  // namespace lockstep::commands
