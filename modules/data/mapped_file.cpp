#include "data/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/error.hpp"

namespace lockstep::data {

FileDescriptor::FileDescriptor(const std::string& path, int flags)
    : descriptor_(::open(path.c_str(), flags | O_CLOEXEC, 0666)), path_(path) {
    if (descriptor_ >= 0) return;
    if ((flags & O_ACCMODE) == O_RDONLY) throw usage_error("{} cannot be read: {}", path, system_error_text());
    throw fault_error("{} cannot be written: {}", path, system_error_text());
}

FileDescriptor::~FileDescriptor() {
    ::close(descriptor_);
}

std::size_t FileDescriptor::read(void* data, std::size_t bytes, std::uint64_t offset) const {
    std::size_t done = 0;
    while (done < bytes) {
        const ssize_t count =
            ::pread(descriptor_, static_cast<char*>(data) + done, bytes - done, static_cast<off_t>(offset + done));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) throw fault_error("reading {} failed: {}", path_, system_error_text());
        if (count == 0) break;
        done += static_cast<std::size_t>(count);
    }
    return done;
}

void FileDescriptor::write(const void* data, std::size_t bytes, std::uint64_t offset) const {
    std::size_t done = 0;
    while (done < bytes) {
        const ssize_t count = ::pwrite(descriptor_, static_cast<const char*>(data) + done, bytes - done,
                                       static_cast<off_t>(offset + done));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) throw fault_error("writing {} failed: {}", path_, system_error_text());
        done += static_cast<std::size_t>(count);
    }
}

void FileDescriptor::reserve(std::uint64_t bytes, std::uint64_t offset) const {
    // posix_fallocate would write zeros where preallocation is unsupported; there, the write itself reports a full
    // disk.
    while (::fallocate(descriptor_, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0) {
        if (errno == EINTR) continue;
        if (errno == EOPNOTSUPP || errno == ENOSYS) return;
        throw fault_error("no room for the {} bytes of {}: {}", bytes, path_, system_error_text());
    }
}

void FileDescriptor::sync() const {
    if (::fsync(descriptor_) != 0) throw fault_error("syncing {} failed: {}", path_, system_error_text());
}

MappedFile::MappedFile(const std::string& path) {
    const FileDescriptor file(path, O_RDONLY);
    struct stat about {};
    if (::fstat(file.get(), &about) != 0) throw usage_error("{} cannot be read: {}", path, system_error_text());
    if (!S_ISREG(about.st_mode)) throw usage_error("{} is not a file", path);
    bytes_ = static_cast<std::size_t>(about.st_size);
    if (bytes_ == 0) return;
    void* memory = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, file.get(), 0);
    if (memory == MAP_FAILED) throw fault_error("{} cannot be mapped into memory: {}", path, system_error_text());
    memory_ = memory;
}

MappedFile::~MappedFile() {
    if (memory_) ::munmap(memory_, bytes_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

void rename_into_place(const std::string& from, const std::string& to) {
    if (std::rename(from.c_str(), to.c_str()) != 0)
        throw fault_error("{} cannot be renamed to {}: {}", from, to, system_error_text());
    const std::string folder = std::filesystem::path(to).parent_path().string();
    FileDescriptor(folder.empty() ? "." : folder, O_RDONLY | O_DIRECTORY).sync();
}

}  // namespace lockstep::data
