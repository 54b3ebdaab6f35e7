// Reads and writes past the page cache, so that what is read back comes from the disk. Only checkpoint/ includes this.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/open_file.hpp"

namespace lockstep::checkpoint {

// What is moved past the page cache begins and ends at multiples of it, in memory and in the file.
constexpr std::uint64_t direct_alignment = 4096;
// In the file it is a multiple of the system's pages too.
std::uint64_t direct_unit();

// An existing file, open both ways: past the page cache and through it.
class DirectFile : public OpenFile {
  public:
    enum class Access { reading, writing };  // writing: both
    DirectFile() = default;
    explicit DirectFile(const std::string& path, Access access = Access::writing);
    DirectFile(DirectFile&&) = delete;
    DirectFile& operator=(DirectFile&& other) noexcept;
    ~DirectFile();

    // Not where the file system or the alignment does not allow it; some file systems take the call and use the page
    // cache nevertheless.
    enum class Direct { refused, cached, done };
    Direct write_directly(const void* data, std::uint64_t bytes, std::uint64_t offset) const;
    bool read_directly(void* data, std::uint64_t bytes, std::uint64_t offset) const;  // whether past the page cache

  private:
    bool is_cached(std::uint64_t offset) const;
    int direct_ = -1;
};

// Asks that what is read next comes from the disk and not from memory. A hint: some file systems ignore it.
void forget_cached(const OpenFile& file, std::uint64_t offset, std::uint64_t bytes);

}  // namespace lockstep::checkpoint
