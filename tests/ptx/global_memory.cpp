#include "ptx/global_memory.hpp"

#include "base/error.hpp"

namespace lockstep::ptx {

struct GlobalMemory::Parts : Allocations {};

namespace {

std::uint64_t number(const void* address) {
    return reinterpret_cast<std::uintptr_t>(address);
}

void mark(Allocations& parts, const void* begin, std::size_t bytes, bool written) {
    if (bytes == 0) return;
    Region* const region = parts.find(number(begin));
    if (region == nullptr || !region->contains(number(begin), bytes))
        throw usage_error("the {} bytes at {} are not within one allocation", bytes, begin);
    region->mark_range(number(begin), bytes, written);
}

}  // namespace

Region* Allocations::find(std::uint64_t address) {
    auto after = regions.upper_bound(address);
    if (after == regions.begin()) return nullptr;
    Region* const found = (--after)->second.get();
    return address < found->end ? found : nullptr;
}

std::uint32_t Allocations::take_serials(std::uint64_t count) {
    if (count > ~std::uint32_t{0} - next_serial) {
        for (auto& [begin, region] : regions) region->forget();
        next_serial = 1;
    }
    const auto first = next_serial;
    next_serial += static_cast<std::uint32_t>(count);
    return first;
}

Allocations& MemoryAccess::of(GlobalMemory& memory) {
    return *memory.parts_;
}

GlobalMemory::GlobalMemory() : parts_(std::make_unique<Parts>()) {}
GlobalMemory::~GlobalMemory() = default;

void GlobalMemory::add(const void* begin, std::size_t bytes) {
    if (bytes == 0) return;
    parts_->regions[number(begin)] = std::make_unique<Region>(number(begin), bytes);
}
void GlobalMemory::remove(const void* begin) {
    parts_->regions.erase(number(begin));
}
void GlobalMemory::mark_written(const void* begin, std::size_t bytes) {
    mark(*parts_, begin, bytes, true);
}
void GlobalMemory::mark_unwritten(const void* begin, std::size_t bytes) {
    mark(*parts_, begin, bytes, false);
}

}  // namespace lockstep::ptx
