#include "cuda_emulation/devices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "cuda_emulation/address_sanitizer.hpp"
#include "cuda_emulation/emulation.hpp"
#include "cuda_emulation/kernels.hpp"
#include "cuda_emulation/streams.hpp"

namespace lockstep::emulation {

namespace {

constexpr std::size_t alignment = 256, margin = 256;
constexpr unsigned char not_a_number = 0xff, untouched = 0xa5;

std::map<const char*, Allocation>& allocations() {
    static std::map<const char*, Allocation> allocations;
    return allocations;
}

thread_local int chosen_device = 0;

bool written_past(const char* begin, std::size_t bytes) {
    const auto* end = reinterpret_cast<const unsigned char*>(begin) + bytes;
    return !std::all_of(end, end + margin, [](unsigned char byte) { return byte == untouched; });
}

}  // namespace

int device_count() {
    const char* text = std::getenv("LOCKSTEP_EMULATED_GPUS");
    return text == nullptr ? 1 : std::max(0, std::atoi(text));
}

int current_device() {
    return chosen_device;
}

void set_current_device(int device) {
    chosen_device = device;
}

void* allocate(Where where, std::size_t bytes) {
    const std::lock_guard lock(device_lock());
    if (where == Where::device && bytes > device_memory_bytes - allocated_bytes(chosen_device)) return nullptr;
    void* memory = nullptr;
    if (posix_memalign(&memory, alignment, bytes + margin) != 0) return nullptr;
    std::memset(memory, not_a_number, bytes);
    char* begin = static_cast<char*>(memory);
    std::memset(begin + bytes, untouched, margin);
    forbid(begin + bytes, margin);
    allocations()[begin] = {where, bytes, chosen_device};
    note_allocated(begin, bytes, where == Where::device);
    return memory;
}

bool release(Where where, void* memory) {
    const std::lock_guard lock(device_lock());
    const auto found = allocations().find(static_cast<const char*>(memory));
    if (found == allocations().end() || found->second.where != where) return false;
    allow(found->first + found->second.bytes, margin);
    note_released(found->first);
    allocations().erase(found);
    std::free(memory);
    return true;
}

const Allocation* find_allocation(const void* place, const char** begin) {
    const std::lock_guard lock(device_lock());
    const auto* at = static_cast<const char*>(place);
    auto found = allocations().upper_bound(at);
    if (found == allocations().begin()) return nullptr;
    --found;
    if (at >= found->first + std::max<std::size_t>(found->second.bytes, 1)) return nullptr;
    if (begin != nullptr) *begin = found->first;
    return &found->second;
}

std::size_t allocated_bytes(int device) {
    std::size_t sum = 0;
    for (const auto& [begin, allocation] : allocations())
        if (allocation.where == Where::device && allocation.device == device) sum += allocation.bytes;
    return sum;
}

std::string damaged_allocation() {
    if (address_sanitizer) return "";
    for (const auto& [begin, allocation] : allocations())
        if (written_past(begin, allocation.bytes))
            return fmt::format("an allocation of {} bytes was written past its end", allocation.bytes);
    return "";
}

std::size_t live_allocations() {
    const std::lock_guard lock(device_lock());
    return allocations().size();
}

}  // namespace lockstep::emulation
