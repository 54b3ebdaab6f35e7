#include "base/open_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>

#include "base/error.hpp"
#include "base/fault.hpp"

namespace lockstep {
namespace {

// Linux moves at most 2 GiB less a page a call; a smaller piece keeps an interrupted call cheap.
constexpr std::uint64_t largest_piece = std::uint64_t{1} << 26;

template <class Call>
auto repeat_interrupted(const Call& call) {
    auto result = call();
    while (result < 0 && errno == EINTR) result = call();
    return result;
}

int open_descriptor(const std::string& path, int flags) {
    return repeat_interrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0666); });
}

// After a call that failed. What a user can put right (no such folder, no permission) is a usage error.
Error open_error(const std::string& path, const char* what) {
    const int error = errno;
    for (const int mistake : {ENOENT, EACCES, EPERM, ENOTDIR, ELOOP, ENAMETOOLONG, EISDIR, EROFS})
        if (error == mistake) return usage_error("{} cannot be {}: {}", path, what, system_error_text());
    return fault_error("{} cannot be {}: {}", path, what, system_error_text());
}

int descriptor_of_no_link(const std::string& path, int flags) {
    const int descriptor = open_descriptor(path, flags | O_NOFOLLOW);
    if (descriptor < 0 && errno == ELOOP)
        throw usage_error("{} is a symbolic link, which is not followed; remove it", path);
    if (descriptor < 0) throw open_error(path, "written");
    return descriptor;
}

}  // namespace

OpenFile OpenFile::for_reading(const std::string& path) {
    const int descriptor = open_descriptor(path, O_RDONLY);
    if (descriptor < 0) throw open_error(path, "read");
    return {descriptor, path};
}

// Read as well: some file systems read the rest of a page before a part of it is written.
OpenFile OpenFile::for_writing(const std::string& path) {
    const int descriptor = open_descriptor(path, O_RDWR);
    if (descriptor < 0) throw open_error(path, "written");
    return {descriptor, path};
}

OpenFile OpenFile::create(const std::string& path) {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT && errno != ENOTDIR) throw open_error(path, "replaced");
    const int descriptor = open_descriptor(path, O_RDWR | O_CREAT | O_EXCL);
    if (descriptor < 0) throw open_error(path, "written");
    return {descriptor, path};
}

OpenFile OpenFile::open_or_create(const std::string& path) {
    return {descriptor_of_no_link(path, O_RDWR | O_CREAT), path};
}

OpenFile OpenFile::to_append(const std::string& path) {
    struct stat there {};
    if (::lstat(path.c_str(), &there) == 0 && S_ISFIFO(there.st_mode))  // opening it would wait for a reader
        throw usage_error("{} is a pipe; remove it", path);
    return {descriptor_of_no_link(path, O_WRONLY | O_CREAT | O_APPEND), path};
}

OpenFile& OpenFile::operator=(OpenFile&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(path_, other.path_);
    return *this;
}

OpenFile::~OpenFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

std::uint64_t OpenFile::bytes() const {
    struct stat about {};
    if (::fstat(descriptor_, &about) != 0)
        throw fault_error("the size of {} cannot be read: {}", path_, system_error_text());
    return static_cast<std::uint64_t>(about.st_size);
}

std::uint64_t OpenFile::read_up_to(void* data, std::uint64_t bytes, std::uint64_t offset) const {
    auto* to = static_cast<char*>(data);
    std::uint64_t done = 0;
    while (done < bytes) {
        const ssize_t got = repeat_interrupted([&] {
            return ::pread(descriptor_, to + done, std::min(bytes - done, largest_piece),
                           static_cast<off_t>(offset + done));
        });
        if (got < 0) throw fault_error("{} cannot be read at byte {}: {}", path_, offset + done, system_error_text());
        if (got == 0) break;
        done += static_cast<std::uint64_t>(got);
    }
    return done;
}

void OpenFile::read(void* data, std::uint64_t bytes, std::uint64_t offset) const {
    const std::uint64_t done = read_up_to(data, bytes, offset);
    if (done < bytes) throw damaged_error("{} is cut short: it ends at or before byte {}", path_, offset + done);
}

void OpenFile::write(const void* data, std::uint64_t bytes, std::uint64_t offset) const {
    const auto* from = static_cast<const char*>(data);
    for (std::uint64_t done = 0; done < bytes;) {
        const ssize_t put = repeat_interrupted([&] {
            return ::pwrite(descriptor_, from + done, std::min(bytes - done, largest_piece),
                            static_cast<off_t>(offset + done));
        });
        if (put == 0) errno = ENOSPC;
        if (put <= 0)
            throw fault_error("{} cannot be written at byte {}: {}", path_, offset + done, system_error_text());
        done += static_cast<std::uint64_t>(put);
    }
}

bool OpenFile::append(std::string_view text) const {
    const off_t before = ::lseek(descriptor_, 0, SEEK_END);
    std::size_t done = 0;
    while (done < text.size()) {
        const ssize_t put =
            repeat_interrupted([&] { return ::write(descriptor_, text.data() + done, text.size() - done); });
        if (put > 0) {
            done += static_cast<std::size_t>(put);
            continue;
        }
        const int error = put == 0 ? ENOSPC : errno;
        if (done > 0) static_cast<void>(repeat_interrupted([&] { return ::ftruncate(descriptor_, before); }));
        errno = error;
        return false;
    }
    return true;
}

void OpenFile::reserve(std::uint64_t bytes, std::uint64_t offset) const {
    if (bytes == 0) return;
    const int result = repeat_interrupted(
        [&] { return ::fallocate(descriptor_, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)); });
    if (result == 0) return;
    if (errno != EOPNOTSUPP && errno != ENOSYS)
        throw fault_error("{} bytes for {} cannot be reserved: {}", bytes, path_, system_error_text());
    // posix_fallocate would write every block here, for minutes when the file is large.
    struct statvfs space {};
    if (::fstatvfs(descriptor_, &space) != 0)
        throw fault_error("the free space for {} cannot be read: {}", path_, system_error_text());
    if (static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize < bytes)
        throw fault_error("fewer than {} bytes are free on the disk of {}", bytes, path_);
    resize(std::max(this->bytes(), offset + bytes));
}

void OpenFile::resize(std::uint64_t bytes) const {
    if (repeat_interrupted([&] { return ::ftruncate(descriptor_, static_cast<off_t>(bytes)); }) != 0)
        throw fault_error("{} cannot be resized to {} bytes: {}", path_, bytes, system_error_text());
}

void OpenFile::sync() const {
    if (repeat_interrupted([&] { return ::fsync(descriptor_); }) != 0)
        throw fault_error("{} cannot be synced: {}", path_, system_error_text());
}

void OpenFile::sync_data() const {
    if (repeat_interrupted([&] { return ::fdatasync(descriptor_); }) != 0)
        throw fault_error("{} cannot be synced: {}", path_, system_error_text());
}

void OpenFile::close() {
    // Linux has closed it when it says EINTR.
    if (descriptor_ >= 0 && ::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR)
        throw fault_error("{} cannot be closed: {}", path_, system_error_text());
}

std::uint64_t file_bytes(const std::string& path) {
    struct stat about {};
    if (::stat(path.c_str(), &about) != 0)
        throw fault_error("the size of {} cannot be read: {}", path, system_error_text());
    return static_cast<std::uint64_t>(about.st_size);
}

void sync_folder(const std::string& folder) {
    const std::string& path = folder.empty() ? "." : folder;
    const int descriptor = open_descriptor(path, O_RDONLY | O_DIRECTORY);
    if (descriptor < 0) throw fault_error("the folder {} cannot be opened: {}", path, system_error_text());
    const int result = repeat_interrupted([&] { return ::fsync(descriptor); }), error = errno;
    ::close(descriptor);
    // Some network file systems cannot sync a folder and need not.
    if (result != 0 && error != EINVAL && error != ENOTSUP)
        throw fault_error("the folder {} cannot be synced: {}", path, std::generic_category().message(error));
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

}  // namespace lockstep
