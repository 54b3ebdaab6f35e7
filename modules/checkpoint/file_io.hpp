// Positioned reads and writes that finish or say why not. Only checkpoint/ includes this.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::checkpoint {

// What is moved past the page cache begins and ends at multiples of it, in memory and in the file.
constexpr std::uint64_t direct_alignment = 4096;

// An open file; closed with it. Failures throw fault errors that carry the path and the system's words; a file that
// ends before what is read does: damaged error.
class OpenFile {
  public:
    OpenFile() = default;
    static OpenFile for_reading(const std::string& path);
    static OpenFile for_writing(const std::string& path);  // an existing file, not cut
    static OpenFile create(const std::string& path);       // new or cut to nothing
    OpenFile(OpenFile&& other) noexcept
        : descriptor_(std::exchange(other.descriptor_, -1)),
          direct_(std::exchange(other.direct_, -1)),
          path_(std::move(other.path_)) {}
    OpenFile& operator=(OpenFile&& other) noexcept;
    ~OpenFile();

    void read(void* data, std::uint64_t bytes, std::uint64_t offset) const;
    void write(const void* data, std::uint64_t bytes, std::uint64_t offset) const;
    // Past the page cache, to and from the disk, of files open for writing. Not where the file system or the alignment
    // does not allow it; some file systems take the call and use the page cache nevertheless.
    enum class Direct { refused, cached, done };
    Direct write_directly(const void* data, std::uint64_t bytes, std::uint64_t offset) const;
    bool read_directly(void* data, std::uint64_t bytes, std::uint64_t offset) const;  // whether past the page cache
    void reserve(std::uint64_t bytes) const;  // room on the disk for so many bytes from the start
    void sync_data() const;
    void sync() const;
    // Asks that what is read next comes from the disk and not from memory. A hint: some file systems ignore it.
    void forget_cached(std::uint64_t offset, std::uint64_t bytes) const;
    void close();  // and says if that failed, as network file systems do for late writes

  private:
    OpenFile(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}
    bool is_cached(std::uint64_t offset) const;
    // All bytes; false where the system refuses to go past the page cache.
    bool read_from(int descriptor, void* data, std::uint64_t bytes, std::uint64_t offset) const;
    bool write_to(int descriptor, const void* data, std::uint64_t bytes, std::uint64_t offset) const;
    int descriptor_ = -1;
    int direct_ = -1;  // the same file, open to go past the page cache
    std::string path_;
};

std::uint64_t file_bytes(const std::string& path);
void sync_folder(const std::string& folder);
void rename_file(const std::string& from, const std::string& to);

// The injected fault of a test, in the words of the system.
void fail_if_injected(std::string_view point, const std::string& path);

}  // namespace lockstep::checkpoint
