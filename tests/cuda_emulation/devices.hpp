// The emulated GPUs of this process (LOCKSTEP_EMULATED_GPUS of them, 1 where it is not set) and their memory, which is
// host memory of which the emulation knows every allocation.
#pragma once

#include <cstddef>
#include <string>

namespace lockstep::emulation {

int device_count();
int current_device();  // of this OS thread
void set_current_device(int device);

constexpr std::size_t device_memory_bytes = std::size_t{16} << 30;

enum class Where { device, pinned };
struct Allocation {
    Where where;
    std::size_t bytes;
    int device;
};

void* allocate(Where where, std::size_t bytes);  // NaN in every floating-point type; nullptr: no room
bool release(Where where, void* memory);         // false: not an allocation of this kind
// The allocation that holds `place`; nullptr: memory of the host. `begin` is its first byte.
const Allocation* find_allocation(const void* place, const char** begin = nullptr);
std::size_t allocated_bytes(int device);
// "a device allocation of 16 bytes was written past its end", or empty.
std::string damaged_allocation();

}  // namespace lockstep::emulation
