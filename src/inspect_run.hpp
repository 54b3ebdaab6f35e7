// lockstep inspect of a run: its description before it starts, its folder afterwards.
#pragma once

#include <string>
#include <vector>

#include "base/table.hpp"

namespace lockstep::commands {

enum class FileKind { description, run_folder, other };
// A description's name ends with ".toml", unless keys of it are asked for. other: also where there is no such file, or
// none is named.
FileKind kind_of(const std::string& path, bool has_keys);

// What the run will be: the resolved description, the model's size, the folders it will write to. With `keys` only
// their values, one line each; nothing for a single one that is empty.
int inspect_description(const std::string& path, const std::vector<std::string>& settings,
                        const std::vector<std::string>& keys, TableFormat format);
// status.json of a run's folder, or only the values of `keys`.
int inspect_run_folder(const std::string& path, const std::vector<std::string>& keys, TableFormat format);

}  // namespace lockstep::commands
