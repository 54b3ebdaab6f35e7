// A file as HDF5 writes it, kept in memory. HDF5 cannot let go of a file that it could not write whole: on a full or
// failing disk its objects stay open and the process crashes in MPI_Finalize. It therefore writes to memory, which does
// not fail, and the file is written by calls of our own. Datasets that are allocated and never filled take no memory.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <map>

#include "base/open_file.hpp"

namespace lockstep::hdf5 {

class MemoryImage {
  public:
    void write(std::uint64_t offset, const void* data, std::uint64_t bytes);
    void read(std::uint64_t offset, void* data, std::uint64_t bytes) const;  // zeros where nothing was written
    void resize(std::uint64_t bytes) { bytes_ = bytes; }
    std::uint64_t bytes() const { return bytes_; }
    // Writes the bytes that were written, and no others, and makes the file as long as the image.
    void store(const OpenFile& file) const;

  private:
    static constexpr std::uint64_t page_bytes = 4096;
    struct Page {
        std::array<char, page_bytes> bytes{};
        std::bitset<page_bytes> written;
    };
    std::map<std::uint64_t, Page> pages_;  // by offset / page_bytes
    std::uint64_t bytes_ = 0;
};

// Makes files that are created with the property list `access` (an hid_t) write to `image`, which outlives them.
// False: HDF5 refused.
bool write_to_memory(std::int64_t access, MemoryImage& image);

}  // namespace lockstep::hdf5
