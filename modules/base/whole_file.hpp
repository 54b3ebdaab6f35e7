// Small files that others read while they are written.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

std::string host_name();  // of this machine; "unknown" where the system does not say

// For files that a user names. Written under another name in the same folder and renamed, so that under its name a file
// is whole, whoever else writes it. A link is followed; a pipe or a device is written to. Throws where that fails.
void write_whole_file(const std::string& path, const std::string& text);
// For files of the program's own folders: a link is replaced.
void replace_file(const std::string& path, const std::string& text);
// Removes what a killed process left unfinished: names that begin with one of these and end with ".tmp".
void remove_unfinished_files(const std::string& folder, const std::vector<std::string>& beginnings);

}  // namespace lockstep
