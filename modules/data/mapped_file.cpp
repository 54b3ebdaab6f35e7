#include "data/mapped_file.hpp"

#include <sys/mman.h>
#include <sys/stat.h>

#include <utility>

#include "base/error.hpp"
#include "base/open_file.hpp"

namespace lockstep::data {

MappedFile::MappedFile(const std::string& path) {
    const OpenFile file = OpenFile::for_reading(path);
    struct stat about {};
    if (::fstat(file.descriptor(), &about) != 0) throw fault_error("{} cannot be read: {}", path, system_error_text());
    if (!S_ISREG(about.st_mode)) throw usage_error("{} is not a file", path);
    bytes_ = static_cast<std::size_t>(about.st_size);
    if (bytes_ == 0) return;
    void* memory = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, file.descriptor(), 0);
    if (memory == MAP_FAILED) throw fault_error("{} cannot be mapped into memory: {}", path, system_error_text());
    memory_ = memory;
}

MappedFile::~MappedFile() {
    if (memory_) ::munmap(memory_, bytes_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

}  // namespace lockstep::data
