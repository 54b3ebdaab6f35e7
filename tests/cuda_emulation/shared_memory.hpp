// The dynamic shared memory of the block that runs: as many bytes as the launch said, NaN in every type before each
// block, with space around it that a stray write is found in (AddressSanitizer finds stray reads, too).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::emulation {

class SharedMemory {
  public:
    void resize(std::size_t bytes);
    void poison();
    std::string damage() const;  // "wrote past the end of …", or empty
    void* begin() const { return begin_; }
    std::size_t size() const { return bytes_; }
    bool contains(const void* place, std::size_t bytes) const;

  private:
    std::vector<unsigned char> memory_;
    unsigned char* begin_ = nullptr;
    std::size_t bytes_ = 0;
};

}  // namespace lockstep::emulation
