// Internal: a file mapped read-only into memory, and files written sequentially.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep::data {

class FileDescriptor {
  public:
    FileDescriptor(const std::string& path, int flags);  // missing or unreadable: usage error; writing: fault
    ~FileDescriptor();
    FileDescriptor(const FileDescriptor&) = delete;
    FileDescriptor& operator=(const FileDescriptor&) = delete;
    int get() const { return descriptor_; }
    const std::string& path() const { return path_; }
    // Fills `data` up to the end of file; returns the bytes read.
    std::size_t read(void* data, std::size_t bytes, std::uint64_t offset) const;
    void write(const void* data, std::size_t bytes, std::uint64_t offset) const;
    void reserve(std::uint64_t bytes, std::uint64_t offset) const;  // detects a full disk early
    void sync() const;

  private:
    int descriptor_;
    std::string path_;
};

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

// Renames a finished file into place, durably.
void rename_into_place(const std::string& from, const std::string& to);

}  // namespace lockstep::data
