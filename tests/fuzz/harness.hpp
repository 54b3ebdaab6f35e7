// What the fuzz targets share: where an input becomes a file, what a reader may answer, and what is a finding. A
// finding ends the process with a sentence on stderr and SIGABRT, which libFuzzer and the replay both notice.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace lockstep::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
    return {reinterpret_cast<const char*>(data), size};
}

[[noreturn]] void finding(const std::string& sentence);
inline void require(bool condition, const char* sentence) {
    if (!condition) finding(sentence);
}

// A reader may take this many bytes at once for each byte of its input, and so many whatever the input's size.
constexpr std::uint64_t allocation_factor = 64, allocation_floor = std::uint64_t{1} << 20;
// A floor where a number of layers, at most 10,000, becomes a list of their parameters.
constexpr std::uint64_t listed_layers_floor = std::uint64_t{32} << 20;
constexpr double longest_seconds = 1;  // of CPU time, sanitizers included

// Calls what reads an input that has so many bytes in its files. A usage or a damaged error is an answer like any
// other. Findings: every other exception, more CPU time than `longest_seconds`, and memory beyond the bounds above, or
// beyond `floor` where a reader documents a larger buffer.
void judge(std::uint64_t bytes, const std::function<void()>& read, std::uint64_t floor = allocation_floor);

// A folder of this process alone, in memory, without warnings from the log; removed when the process ends.
const std::string& folder();
// Writes a file in it, in place of the one before, and returns its path. `name` may have one folder.
std::string write_file(const std::string& name, std::string_view bytes);
std::string read_file(const std::string& path);

// An input of several files has lines of two percent signs between them; missing ones are empty.
constexpr std::string_view part_end = "\n%%\n";
std::vector<std::string> parts(std::string_view input, std::size_t count);

}  // namespace lockstep::fuzz
