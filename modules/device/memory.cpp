#include "device/memory.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/format.hpp"

namespace lockstep {
namespace {
constexpr std::size_t huge_page = std::size_t{1} << 21;

std::size_t round_up(std::size_t bytes, std::size_t to) {
    return (bytes + to - 1) / to * to;
}

// Neither null, as the address of an empty tensor, nor shared with another arena, nor real: a process is given
// addresses below 2^54 only.
std::uintptr_t imaginary_address(std::size_t bytes) {
    static std::atomic<std::uintptr_t> next = 0;
    return (std::uintptr_t{1} << 54) + next.fetch_add(round_up(bytes + 1, 256)) % (std::uintptr_t{1} << 62);
}
}  // namespace

void Arena::Free::operator()(void* memory) const {
    if (source)
        source->release(memory);
    else
        std::free(memory);
}

Arena::Arena(Device device, std::size_t bytes, std::string name)
    : capacity_(bytes),
      alignment_(alignment_of(device)),
      imaginary_(device.imaginary ? imaginary_address(bytes) : 0),
      name_(std::move(name)) {
    if (imaginary_ != 0) return;
    if (device.memory) {
        memory_ = {device.memory->allocate(std::max<std::size_t>(bytes, 1)), Free{device.memory}};
        if (!memory_ && device.kind == DeviceKind::cpu)
            throw usage_error(
                "out of host memory: cannot pin {} for {}, {}; leave out parallel.offload, or use more "
                "ranks on more nodes",
                human_bytes(static_cast<double>(bytes)), name_, device.memory->free_text());
        if (!memory_)
            throw usage_error(
                "out of memory on GPU {}: cannot allocate {} for {}, {}; use a smaller model, batch.micro or "
                "batch.length",
                device.index, human_bytes(static_cast<double>(bytes)), name_, device.memory->free_text());
        return;
    }
    const std::size_t page = bytes >= huge_page ? huge_page : host_alignment;
    const std::size_t rounded = round_up(std::max<std::size_t>(bytes, 1), page);
    memory_.reset(std::aligned_alloc(page, rounded));
    if (!memory_)
        throw usage_error(
            "out of memory: cannot allocate {} for {}; use a smaller model, batch.micro or batch.length, or more ranks "
            "on more nodes",
            human_bytes(static_cast<double>(bytes)), name_);
    if (page == huge_page)
        static_cast<void>(madvise(memory_.get(), rounded, MADV_HUGEPAGE));  // a hint; refusal costs only speed
    std::memset(memory_.get(), 0, rounded);
}

Tensor Arena::allocate(Type type, const Shape& shape) {
    const std::size_t bytes = round_up(static_cast<std::size_t>(element_count(shape)) * type_bytes(type), alignment_);
    const std::size_t offset = used_;
    used_ += bytes;
    peak_ = std::max(peak_, used_);
    if (measuring()) return {nullptr, type, shape};
    LOCKSTEP_ASSERT(used_ <= capacity_);
    if (imaginary_ != 0) return {reinterpret_cast<void*>(imaginary_ + offset), type, shape};
    return {static_cast<char*>(memory_.get()) + offset, type, shape};
}

Tensor Arena::allocate_aligned_rows(Type type, std::int64_t rows, std::int64_t columns) {
    const auto elements = static_cast<std::int64_t>(row_alignment / type_bytes(type));
    const std::int64_t stride = (columns + elements - 1) / elements * elements;
    return allocate(type, {rows, stride}).columns(0, columns);
}

ProcessMemory process_memory() {
    ProcessMemory memory;
    std::ifstream statm("/proc/self/statm");
    std::uint64_t pages = 0, resident = 0;
    if (statm >> pages >> resident) memory.resident = resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    rusage usage{};
    if (getrusage(RUSAGE_SELF, &usage) == 0) memory.peak = static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
    return memory;
}

}  // namespace lockstep
