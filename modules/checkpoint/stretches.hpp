// Blocks that are moved to or from the disk in one request. Only checkpoint/ includes this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "checkpoint/direct_file.hpp"
#include "checkpoint/layout.hpp"

namespace lockstep::checkpoint {

// Blocks [first, last) of a share, and the bytes of the file from the first one's beginning to the last one's end.
struct Stretch {
    std::size_t first = 0, last = 0;
    std::uint64_t offset = 0, bytes = 0;
};

// How a share is moved: by so many threads, each with a stretch of about so many bytes at a time.
struct Pace {
    int threads = 1;
    std::uint64_t stretch_bytes = 0;  // 0: every block alone
};
// A small share goes block by block on one thread, so that its calls come in one order, whatever the machine.
Pace pace_of(const std::vector<ChecksumBlock>& share);
Pace pace_of_bytes(std::uint64_t share);

// In file order. What is written together follows each other without a gap and has whole pages; other blocks are alone,
// since they do not go past the page cache.
std::vector<Stretch> stretches_to_write(const Layout& layout, const std::vector<ChecksumBlock>& share,
                                        std::uint64_t most_bytes);
// What is read together may have gaps, which are read and ignored.
std::vector<Stretch> stretches_to_read(const Layout& layout, const std::vector<ChecksumBlock>& share,
                                       std::uint64_t most_bytes);

// The largest number of bytes of any.
std::uint64_t largest(const std::vector<Stretch>& stretches);

// Reads a stretch, past the page cache where that does not have it and where the file system allows it, and returns
// where its first byte is in `memory`, which is aligned for direct reading and has room_for_reading() bytes.
const char* read_stretch(const DirectFile& file, const Stretch& stretch, void* memory);
std::uint64_t room_for_reading(const std::vector<Stretch>& stretches);

}  // namespace lockstep::checkpoint
