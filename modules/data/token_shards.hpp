// Internal: raw token files as nanoGPT (tokens alone) and llm.c (a header before them) write them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "data/mapped_file.hpp"

namespace lockstep::data {

struct FlatLayout {
    std::size_t header_bytes = 0, width = 2;  // bytes per token
    std::uint64_t count = 0;                  // tokens
};

// By the first number. Damaged errors: empty, truncated, a header of another version or that does not fit the file's
// size. Usage errors: other files of llm.c (models, questions).
FlatLayout flat_layout(const MappedFile& file, const std::string& path);
// Whether the file has a header of llm.c's.
bool has_shard_header(const std::string& path);

// The largest of `count` unsigned integers of `width` bytes (1, 2, 4 or 8).
std::uint64_t largest_token(const std::byte* data, std::size_t width, std::uint64_t count);
// Widens tokens and returns the largest; one beyond 32 bits is cut in `out`.
std::uint64_t widen_tokens(const std::byte* data, std::size_t width, std::size_t count, std::int32_t* out);

}  // namespace lockstep::data
