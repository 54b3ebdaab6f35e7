// Small files that may be read while they are written.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

std::string host_name();  // "unknown" if the system does not say

// Usage errors: a folder; what cannot be read.
std::string read_text_file(const std::string& path);

// "" for what is missing or cannot be read, and for anything but a regular file: a pipe would make the reader wait.
std::string text_of_regular_file(const std::string& path);

// For files that a user names. Writes a temporary file and renames it, so that readers and concurrent writers only see
// complete files. Follows links; writes to pipes and devices. Throws on failure.
void write_whole_file(const std::string& path, const std::string& text);
// For files in the program's own folders: replaces links.
enum class Durable { no, yes };  // whether it survives a crash of the node: a sync
void replace_file(const std::string& path, const std::string& text, Durable durable = Durable::yes);
// Removes what a killed process left unfinished: names that begin with one of these and end with ".tmp".
void remove_unfinished_files(const std::string& folder, const std::vector<std::string>& beginnings);

}  // namespace lockstep
