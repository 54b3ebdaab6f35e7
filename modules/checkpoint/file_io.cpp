#include "checkpoint/file_io.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>

#include "base/error.hpp"
#include "base/fault.hpp"

namespace lockstep::checkpoint {
namespace {

// Linux transfers at most 2 GiB minus a page per call; smaller pieces keep interrupted calls cheap.
constexpr std::uint64_t largest_piece = std::uint64_t{1} << 26;

int open_file(const std::string& path, int flags) {
    int descriptor;
    do descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
    while (descriptor < 0 && errno == EINTR);
    if (descriptor < 0) throw fault_error("{} cannot be opened: {}", path, system_error_text());
    return descriptor;
}

std::uint64_t page_bytes() {
    return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// To page boundaries, so that no other descriptor caches part of one.
bool is_aligned(const void* data, std::uint64_t bytes, std::uint64_t offset) {
    return reinterpret_cast<std::uintptr_t>(data) % direct_alignment == 0 && (bytes | offset) % direct_alignment == 0 &&
           (bytes | offset) % page_bytes() == 0;
}

// Errors of file systems with stricter alignment, or without direct I/O.
bool is_refusal(int error) {
    return error == EINVAL || error == EOPNOTSUPP;
}

}  // namespace

OpenFile OpenFile::for_reading(const std::string& path) {
    return {open_file(path, O_RDONLY), path};
}
// Readable too: some file systems read a page before a partial write.
OpenFile OpenFile::for_writing(const std::string& path) {
    OpenFile file(open_file(path, O_RDWR), path);
    do file.direct_ = ::open(path.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);  // refused by some file systems
    while (file.direct_ < 0 && errno == EINTR);
    return file;
}
OpenFile OpenFile::create(const std::string& path) {
    return {open_file(path, O_RDWR | O_CREAT | O_TRUNC), path};
}

OpenFile& OpenFile::operator=(OpenFile&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(direct_, other.direct_);
    std::swap(path_, other.path_);
    return *this;
}

OpenFile::~OpenFile() {
    if (direct_ >= 0) ::close(direct_);
    if (descriptor_ >= 0) ::close(descriptor_);
}

bool OpenFile::read_from(int descriptor, void* data, std::uint64_t bytes, std::uint64_t offset) const {
    auto* to = static_cast<char*>(data);
    while (bytes > 0) {
        const ssize_t got = ::pread(descriptor, to, std::min(bytes, largest_piece), static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && descriptor == direct_ && is_refusal(errno)) return false;
        if (got < 0) throw fault_error("{} cannot be read at byte {}: {}", path_, offset, system_error_text());
        if (got == 0) throw damaged_error("{} is truncated at or before byte {}", path_, offset);
        to += got;
        offset += static_cast<std::uint64_t>(got);
        bytes -= static_cast<std::uint64_t>(got);
    }
    return true;
}

bool OpenFile::write_to(int descriptor, const void* data, std::uint64_t bytes, std::uint64_t offset) const {
    const auto* from = static_cast<const char*>(data);
    while (bytes > 0) {
        const ssize_t put = ::pwrite(descriptor, from, std::min(bytes, largest_piece), static_cast<off_t>(offset));
        if (put < 0 && errno == EINTR) continue;
        if (put < 0 && descriptor == direct_ && is_refusal(errno)) return false;
        if (put <= 0) throw fault_error("{} cannot be written at byte {}: {}", path_, offset, system_error_text());
        from += put;
        offset += static_cast<std::uint64_t>(put);
        bytes -= static_cast<std::uint64_t>(put);
    }
    return true;
}

void OpenFile::read(void* data, std::uint64_t bytes, std::uint64_t offset) const {
    static_cast<void>(read_from(descriptor_, data, bytes, offset));
}

void OpenFile::write(const void* data, std::uint64_t bytes, std::uint64_t offset) const {
    static_cast<void>(write_to(descriptor_, data, bytes, offset));
}

bool OpenFile::read_directly(void* data, std::uint64_t bytes, std::uint64_t offset) const {
    return direct_ >= 0 && is_aligned(data, bytes, offset) && !is_cached(offset) &&
           read_from(direct_, data, bytes, offset);
}

OpenFile::Direct OpenFile::write_directly(const void* data, std::uint64_t bytes, std::uint64_t offset) const {
    if (direct_ < 0 || !is_aligned(data, bytes, offset) || !write_to(direct_, data, bytes, offset))
        return Direct::refused;
    return is_cached(offset) ? Direct::cached : Direct::done;
}

void OpenFile::reserve(std::uint64_t bytes) const {
    if (bytes == 0) return;
    int result;
    do result = ::fallocate(descriptor_, 0, 0, static_cast<off_t>(bytes));
    while (result != 0 && errno == EINTR);
    if (result == 0) return;
    if (errno != EOPNOTSUPP) throw fault_error("cannot reserve {} bytes for {}: {}", bytes, path_, system_error_text());
    // This file system cannot preallocate. posix_fallocate would write every block, taking minutes for a large file, so
    // check free space instead.
    struct statvfs space {};
    if (::fstatvfs(descriptor_, &space) != 0 || ::ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0)
        throw fault_error("{} cannot be extended to {} bytes: {}", path_, bytes, system_error_text());
    if (static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize < bytes)
        throw fault_error("not enough disk space: {} bytes for {}", bytes, path_);
}

void OpenFile::sync_data() const {
    if (::fdatasync(descriptor_) != 0) throw fault_error("{} cannot be synced: {}", path_, system_error_text());
}

void OpenFile::sync() const {
    if (::fsync(descriptor_) != 0) throw fault_error("{} cannot be synced: {}", path_, system_error_text());
}

// Some file systems accept O_DIRECT and use the page cache anyway.
bool OpenFile::is_cached(std::uint64_t offset) const {
    const std::uint64_t page = page_bytes();
    void* mapped = ::mmap(nullptr, page, PROT_READ, MAP_SHARED, descriptor_, static_cast<off_t>(offset / page * page));
    if (mapped == MAP_FAILED) return true;
    unsigned char resident = 1;
    const bool known = ::mincore(mapped, page, &resident) == 0;
    ::munmap(mapped, page);
    return !known || (resident & 1) != 0;
}

void OpenFile::forget_cached(std::uint64_t offset, std::uint64_t bytes) const {
    // Whole pages: the kernel keeps partially covered ones.
    const std::uint64_t page = page_bytes(), first = offset / page * page,
                        last = (offset + bytes + page - 1) / page * page;
    static_cast<void>(
        ::posix_fadvise(descriptor_, static_cast<off_t>(first), static_cast<off_t>(last - first), POSIX_FADV_DONTNEED));
}

void OpenFile::close() {
    if (direct_ >= 0 && ::close(std::exchange(direct_, -1)) != 0 && errno != EINTR)
        throw fault_error("{} cannot be closed: {}", path_, system_error_text());
    if (descriptor_ >= 0 && ::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR)
        throw fault_error("{} cannot be closed: {}", path_, system_error_text());
}

std::uint64_t file_bytes(const std::string& path) {
    struct stat about {};
    if (::stat(path.c_str(), &about) != 0) throw fault_error("cannot stat {}: {}", path, system_error_text());
    return static_cast<std::uint64_t>(about.st_size);
}

void sync_folder(const std::string& folder) {
    const int descriptor = open_file(folder, O_RDONLY | O_DIRECTORY);
    const int result = ::fsync(descriptor), error = errno;
    ::close(descriptor);
    // Some network file systems cannot sync a folder and need not.
    if (result != 0 && error != EINVAL && error != ENOTSUP)
        throw fault_error("the folder {} cannot be synced: {}", folder, std::generic_category().message(error));
}

void rename_file(const std::string& from, const std::string& to) {
    if (std::rename(from.c_str(), to.c_str()) != 0)
        throw fault_error("{} cannot be renamed to {}: {}", from, to, system_error_text());
}

void fail_if_injected(std::string_view point, const std::string& path) {
    if (fault::at(point) != "enospc") return;
    errno = ENOSPC;
    throw fault_error("{} cannot be written: {}", path, system_error_text());
}

}  // namespace lockstep::checkpoint
