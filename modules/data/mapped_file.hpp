// Inside the module: a whole file as read-only memory, and files written from front to back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep::data {

class FileDescriptor {
  public:
    FileDescriptor(const std::string& path, int flags);  // no such file, no right to it: usage error; writing: fault
    ~FileDescriptor();
    FileDescriptor(const FileDescriptor&) = delete;
    FileDescriptor& operator=(const FileDescriptor&) = delete;
    int get() const { return descriptor_; }
    const std::string& path() const { return path_; }
    // Fills `data` unless the file ends before; returns the bytes read.
    std::size_t read(void* data, std::size_t bytes, std::uint64_t offset) const;
    void write(const void* data, std::size_t bytes, std::uint64_t offset) const;
    void reserve(std::uint64_t bytes, std::uint64_t offset) const;  // so that a full disk is known at once
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

// Moves a finished file to its name and makes the move last.
void rename_into_place(const std::string& from, const std::string& to);

}  // namespace lockstep::data
