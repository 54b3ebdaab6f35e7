// A file as HDF5 writes it, kept in memory, which does not fail; the file is written by calls of our own. Datasets that
// are allocated and never filled take no memory.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "hdf5/driver.hpp"

namespace lockstep::hdf5 {

class MemoryImage final : public Storage {
  public:
    bool writable() const override { return true; }
    std::uint64_t bytes() const override { return bytes_; }
    void read(std::uint64_t offset, void* data, std::uint64_t bytes) const override;  // zeros where nothing was written
    void write(std::uint64_t offset, const void* data, std::uint64_t bytes) override;
    void resize(std::uint64_t bytes) override { bytes_ = bytes; }
    // Writes the bytes that were written, and no others, and makes the file as long as the image.
    void store(const OpenFile& file) const;
    // The bytes that were written, in order; what lies together in pieces of about 1 MiB.
    void for_each_piece(const std::function<void(std::uint64_t offset, const std::vector<char>& bytes)>& take) const;

  private:
    static constexpr std::uint64_t page_bytes = 4096;
    struct Page {
        std::array<char, page_bytes> bytes{};
        std::bitset<page_bytes> written;
    };
    std::map<std::uint64_t, Page> pages_;  // by offset / page_bytes
    std::uint64_t bytes_ = 0;
};

}  // namespace lockstep::hdf5
