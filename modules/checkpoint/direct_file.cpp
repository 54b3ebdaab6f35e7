#include "checkpoint/direct_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.hpp"

namespace lockstep::checkpoint {
namespace {

constexpr std::uint64_t largest_piece = std::uint64_t{1} << 26;

std::uint64_t page_bytes() {
    return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// To whole pages, so that nobody has a part of one in the page cache.
bool is_aligned(const void* data, std::uint64_t bytes, std::uint64_t offset) {
    return reinterpret_cast<std::uintptr_t>(data) % direct_alignment == 0 && (bytes | offset) % direct_alignment == 0 &&
           (bytes | offset) % page_bytes() == 0;
}

// In the words of a file system that wants another alignment, or cannot go past the page cache at all.
bool is_refusal(int error) {
    return error == EINVAL || error == EOPNOTSUPP;
}

enum class Doing { reading, writing };

// Moves all bytes; false where the file system refuses. `call` moves some of them at an offset.
template <class Call>
bool move_all(const std::string& path, std::uint64_t bytes, std::uint64_t offset, Doing doing, const Call& call) {
    for (std::uint64_t done = 0; done < bytes;) {
        const ssize_t moved = call(done, std::min(bytes - done, largest_piece), static_cast<off_t>(offset + done));
        if (moved < 0 && errno == EINTR) continue;
        if (moved < 0 && is_refusal(errno)) return false;
        if (moved == 0 && doing == Doing::reading)
            throw damaged_error("{} is cut short: it ends at or before byte {}", path, offset + done);
        if (moved == 0) errno = ENOSPC;
        if (moved <= 0)
            throw fault_error("{} cannot be {} at byte {}: {}", path, doing == Doing::reading ? "read" : "written",
                              offset + done, system_error_text());
        done += static_cast<std::uint64_t>(moved);
    }
    return true;
}

}  // namespace

std::uint64_t direct_unit() {
    return std::max(page_bytes(), direct_alignment);
}

DirectFile::DirectFile(const std::string& path, Access access)
    : OpenFile(access == Access::writing ? for_writing(path) : for_reading(path)) {
    const int flags = access == Access::writing ? O_RDWR : O_RDONLY;
    do direct_ = ::open(path.c_str(), flags | O_DIRECT | O_CLOEXEC);  // refused by some file systems
    while (direct_ < 0 && errno == EINTR);
}

DirectFile& DirectFile::operator=(DirectFile&& other) noexcept {
    OpenFile::operator=(std::move(other));
    std::swap(direct_, other.direct_);
    return *this;
}

DirectFile::~DirectFile() {
    if (direct_ >= 0) ::close(direct_);
}

bool DirectFile::read_directly(void* data, std::uint64_t bytes, std::uint64_t offset) const {
    if (direct_ < 0 || !is_aligned(data, bytes, offset) || is_cached(offset)) return false;
    return move_all(path(), bytes, offset, Doing::reading, [&](std::uint64_t done, std::uint64_t count, off_t at) {
        return ::pread(direct_, static_cast<char*>(data) + done, count, at);
    });
}

DirectFile::Direct DirectFile::write_directly(const void* data, std::uint64_t bytes, std::uint64_t offset) const {
    if (direct_ < 0 || !is_aligned(data, bytes, offset)) return Direct::refused;
    const bool moved =
        move_all(path(), bytes, offset, Doing::writing, [&](std::uint64_t done, std::uint64_t count, off_t at) {
            return ::pwrite(direct_, static_cast<const char*>(data) + done, count, at);
        });
    if (!moved) return Direct::refused;
    return is_cached(offset) ? Direct::cached : Direct::done;
}

// Some file systems take O_DIRECT and use the page cache all the same.
bool DirectFile::is_cached(std::uint64_t offset) const {
    const std::uint64_t page = page_bytes();
    void* mapped = ::mmap(nullptr, page, PROT_READ, MAP_SHARED, descriptor(), static_cast<off_t>(offset / page * page));
    if (mapped == MAP_FAILED) return true;
    unsigned char resident = 1;
    const bool known = ::mincore(mapped, page, &resident) == 0;
    ::munmap(mapped, page);
    return !known || (resident & 1) != 0;
}

void forget_cached(const OpenFile& file, std::uint64_t offset, std::uint64_t bytes) {
    // Whole pages: the system keeps those of which a part is meant.
    const std::uint64_t page = page_bytes(), first = offset / page * page,
                        last = (offset + bytes + page - 1) / page * page;
    static_cast<void>(::posix_fadvise(file.descriptor(), static_cast<off_t>(first), static_cast<off_t>(last - first),
                                      POSIX_FADV_DONTNEED));
}

}  // namespace lockstep::checkpoint
