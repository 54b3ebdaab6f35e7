// Positioned reads and writes that complete or throw. Only checkpoint/ includes this.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::checkpoint {

// Alignment of direct I/O, in memory and in the file.
constexpr std::uint64_t direct_alignment = 4096;

// An open file (RAII). Failures throw fault errors with the path and the system's reason; reading past the end throws a
// damaged error.
class OpenFile {
  public:
    OpenFile() = default;
    static OpenFile for_reading(const std::string& path);
    static OpenFile for_writing(const std::string& path);  // an existing file, not truncated
    static OpenFile create(const std::string& path);       // new or truncated
    OpenFile(OpenFile&& other) noexcept
        : descriptor_(std::exchange(other.descriptor_, -1)),
          direct_(std::exchange(other.direct_, -1)),
          path_(std::move(other.path_)) {}
    OpenFile& operator=(OpenFile&& other) noexcept;
    ~OpenFile();

    void read(void* data, std::uint64_t bytes, std::uint64_t offset) const;
    void write(const void* data, std::uint64_t bytes, std::uint64_t offset) const;
    // Direct I/O, bypassing the page cache, on files open for writing. False where the file system or the alignment
    // rules it out; some file systems accept it and use the page cache nevertheless.
    enum class Direct { refused, cached, done };
    Direct write_directly(const void* data, std::uint64_t bytes, std::uint64_t offset) const;
    bool read_directly(void* data, std::uint64_t bytes, std::uint64_t offset) const;  // whether it bypassed the cache
    void reserve(std::uint64_t bytes) const;                                          // allocates disk space
    void sync_data() const;
    void sync() const;
    // Drops cached pages, so that later reads come from the disk. A hint: some file systems ignore it.
    void forget_cached(std::uint64_t offset, std::uint64_t bytes) const;
    void close();  // throws if it fails, as network file systems do on late writes

  private:
    OpenFile(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}
    bool is_cached(std::uint64_t offset) const;
    // All bytes; false where the system refuses to go past the page cache.
    bool read_from(int descriptor, void* data, std::uint64_t bytes, std::uint64_t offset) const;
    bool write_to(int descriptor, const void* data, std::uint64_t bytes, std::uint64_t offset) const;
    int descriptor_ = -1;
    int direct_ = -1;  // the same file, opened with O_DIRECT
    std::string path_;
};

std::uint64_t file_bytes(const std::string& path);
void sync_folder(const std::string& folder);
void rename_file(const std::string& from, const std::string& to);

// A test's injected fault, as a system error.
void fail_if_injected(std::string_view point, const std::string& path);

}  // namespace lockstep::checkpoint
