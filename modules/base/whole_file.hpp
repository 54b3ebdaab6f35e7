// Small files, read and written at once.
#pragma once

#include <string>

namespace lockstep {

std::string host_name();  // of this machine; "unknown" where the system does not say

// Usage errors: a folder; what cannot be read.
std::string read_text_file(const std::string& path);

// Written beside its name and renamed, so that under its name a file is whole, whoever else writes it. False, with
// errno, where that cannot be.
bool write_whole_file(const std::string& path, const std::string& text);

}  // namespace lockstep
