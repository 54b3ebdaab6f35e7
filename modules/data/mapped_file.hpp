// Internal: a file mapped read-only into memory.
#pragma once

#include <cstddef>
#include <string>

namespace lockstep::data {

class MappedFile {
  public:
    explicit MappedFile(const std::string& path);
    ~MappedFile();
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&&) = delete;
    const std::byte* data() const { return static_cast<const std::byte*>(memory_); }
    std::size_t bytes() const { return bytes_; }

  private:
    void* memory_ = nullptr;
    std::size_t bytes_ = 0;
};

}  // namespace lockstep::data
