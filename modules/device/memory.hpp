// Memory, planned once: an Arena is one allocation from which tensors are cut in order. A measuring arena owns nothing
// and only adds up sizes, so that the plan is made by the same code that uses the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "device/tensor.hpp"

namespace lockstep {

enum class DeviceKind { cpu, cuda };

// Allocator of a device.
class MemorySource {
  public:
    virtual ~MemorySource() = default;
    virtual void* allocate(std::size_t bytes) = 0;  // zeroed, 256-byte aligned; null if out of memory
    virtual void release(void* memory) = 0;
    virtual std::string free_text() const = 0;  // "12.3 GiB of 139 GiB free", for errors
};
struct Device {
    DeviceKind kind = DeviceKind::cpu;
    int index = 0;
    MemorySource* memory = nullptr;  // host memory if null; outlives every arena
    bool imaginary = false;          // for planning: arenas have sizes but no memory
};

class Arena {
  public:
    static constexpr std::size_t host_alignment = 64, device_alignment = 256, row_alignment = 128;
    Arena() = default;                                                   // measuring: tensors have no memory
    explicit Arena(Device device) : alignment_(alignment_of(device)) {}  // likewise
    Arena(Device device, std::size_t bytes,
          std::string name);  // zeroed; the error names `name` and the size
    Arena(Arena&&) = default;
    Arena& operator=(Arena&&) = default;

    Tensor allocate(Type type, const Shape& shape);  // 64-byte aligned; on CUDA 256
    // A matrix whose rows have whole 128 bytes each: products are faster where rows are aligned, on GPUs and CPUs
    // (docs/performance.md).
    Tensor allocate_aligned_rows(Type type, std::int64_t rows, std::int64_t columns);
    std::size_t mark() const { return used_; }
    void release(std::size_t mark) { used_ = mark; }  // frees everything cut since
    std::size_t used() const { return used_; }
    std::size_t peak() const { return peak_; }
    bool measuring() const { return memory_ == nullptr && imaginary_ == 0; }
    void* data() const { return memory_.get(); }  // null on an imaginary device
    std::size_t capacity() const { return capacity_; }

  private:
    static std::size_t alignment_of(const Device& device) {
        return device.kind == DeviceKind::cuda ? device_alignment : host_alignment;
    }
    struct Free {
        MemorySource* source;
        Free() : source(nullptr) {}
        explicit Free(MemorySource* from) : source(from) {}
        void operator()(void* memory) const;
    };
    std::unique_ptr<void, Free> memory_;
    std::size_t capacity_ = 0;
    std::size_t alignment_ = host_alignment;
    std::uintptr_t imaginary_ = 0;  // address of the first byte on an imaginary device
    std::size_t used_ = 0;
    std::size_t peak_ = 0;
    std::string name_;
};

// Runs `plan` on a measuring arena and then on one of that size, from which the tensors that it cuts have their memory.
template <class Plan>
Arena planned(Device device, const std::string& name, const Plan& plan) {
    Arena measure(device);
    plan(measure);
    Arena memory(device, measure.peak(), name);
    plan(memory);
    return memory;
}

// This process's current and peak resident set, in bytes.
struct ProcessMemory {
    std::uint64_t resident = 0;
    std::uint64_t peak = 0;
};
ProcessMemory process_memory();

}  // namespace lockstep
