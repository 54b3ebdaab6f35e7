// Small files that may be read while they are written.
#pragma once

#include <string>

namespace lockstep {

std::string host_name();  // "unknown" if the system does not say

// Usage errors: a folder; what cannot be read.
std::string read_text_file(const std::string& path);

// Writes a temporary file and renames it, so that readers and concurrent writers only see complete files. False, with
// errno, on failure.
bool write_whole_file(const std::string& path, const std::string& text);

}  // namespace lockstep
