// Files read and written at offsets. Every call finishes or throws: interrupted calls are repeated, partial ones
// continued.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

// Closed with its object. Errors carry the path and the system's words: a usage error where opening fails for want of
// the file, its folder or a permission, a fault for everything else, `damaged` for a file that ends too early.
class OpenFile {
  public:
    OpenFile() = default;
    static OpenFile for_reading(const std::string& path);
    static OpenFile for_writing(const std::string& path);  // an existing file, to read and write
    // A new file, to read and write; what had the name is removed first, so that no link is followed.
    static OpenFile create(const std::string& path);
    // Created where they are missing; a link is refused.
    static OpenFile open_or_create(const std::string& path);  // to read and write
    static OpenFile to_append(const std::string& path);
    OpenFile(OpenFile&& other) noexcept
        : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}
    OpenFile& operator=(OpenFile&& other) noexcept;
    ~OpenFile();

    bool is_open() const { return descriptor_ >= 0; }
    int descriptor() const { return descriptor_; }
    const std::string& path() const { return path_; }
    std::uint64_t bytes() const;

    void read(void* data, std::uint64_t bytes, std::uint64_t offset) const;
    std::uint64_t read_up_to(void* data, std::uint64_t bytes, std::uint64_t offset) const;  // less: the file ended
    void write(const void* data, std::uint64_t bytes, std::uint64_t offset) const;
    // Of a file opened to append: all of the text, or false, errno, and nothing of it.
    bool append(std::string_view text) const;
    // Disk space for `bytes` from `offset` on, so that a full disk is known before anything is written; the file grows
    // to hold them. A file system that cannot reserve is asked for its free space instead.
    void reserve(std::uint64_t bytes, std::uint64_t offset = 0) const;
    void resize(std::uint64_t bytes) const;
    void sync() const;
    void sync_data() const;
    void close();  // throws where it fails, as network file systems do for late writes

  private:
    OpenFile(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}
    int descriptor_ = -1;
    std::string path_;
};

std::uint64_t file_bytes(const std::string& path);
// Syncs the folder, so that files created, renamed or removed in it stay so after a crash.
void sync_folder(const std::string& folder);
void rename_file(const std::string& from, const std::string& to);

// The disk-full fault that a test injects at `point` (base/fault.hpp), as the system reports it.
void fail_if_injected(std::string_view point, const std::string& path);

}  // namespace lockstep
