// Small files that others read while they are written.
#pragma once

#include <string>

namespace lockstep {

std::string host_name();  // of this machine; "unknown" where the system does not say

// Written beside its name and renamed, so that under its name a file is whole, whoever else writes it. False, with
// errno, where that cannot be.
bool write_whole_file(const std::string& path, const std::string& text);

}  // namespace lockstep
