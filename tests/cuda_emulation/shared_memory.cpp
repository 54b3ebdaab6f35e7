#include "cuda_emulation/shared_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cuda_emulation/address_sanitizer.hpp"

namespace lockstep::emulation {

namespace {

constexpr std::size_t alignment = 128, margin = 1024;
constexpr unsigned char not_a_number = 0xff, untouched = 0xa5;

bool all_untouched(const unsigned char* begin) {
    return std::all_of(begin, begin + margin, [](unsigned char byte) { return byte == untouched; });
}

}  // namespace

void SharedMemory::resize(std::size_t bytes) {
    if (!memory_.empty()) allow(memory_.data(), memory_.size());
    const std::size_t needed = bytes + 2 * margin + alignment;
    if (memory_.size() < needed) memory_.resize(needed);
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data()) + margin;
    begin_ = memory_.data() + margin + (alignment - address % alignment) % alignment;
    bytes_ = bytes;
    std::memset(begin_ - margin, untouched, margin);
    std::memset(begin_ + bytes, untouched, margin);
    forbid(begin_ - margin, margin);
    forbid(begin_ + bytes, margin);
}

void SharedMemory::poison() {
    std::memset(begin_, not_a_number, bytes_);
}

std::string SharedMemory::damage() const {
    if (!address_sanitizer) {
        if (!all_untouched(begin_ - margin)) return "wrote before the beginning of the block's shared memory";
        if (!all_untouched(begin_ + bytes_))
            return fmt::format("wrote past the end of the block's shared memory, which has {} bytes", bytes_);
    }
    return "";
}

bool SharedMemory::contains(const void* place, std::size_t bytes) const {
    const auto at = reinterpret_cast<std::uintptr_t>(place), begin = reinterpret_cast<std::uintptr_t>(begin_);
    return at >= begin && at + bytes <= begin + bytes_;
}

}  // namespace lockstep::emulation
