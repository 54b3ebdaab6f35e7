// With AddressSanitizer its hook sees every malloc of the process, those of libraries included; else the replaced
// operator new sees those of C++.
#include "fuzz/allocations.hpp"

#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <string>

#include "fuzz/harness.hpp"

#if defined(__SANITIZE_ADDRESS__)
#define LOCKSTEP_HOOKED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LOCKSTEP_HOOKED 1
#endif
#endif

namespace lockstep::fuzz {
namespace {

constexpr std::uint64_t no_limit = std::numeric_limits<std::uint64_t>::max();
std::atomic<std::uint64_t> limit = no_limit;

// HDF5 asks for what a damaged size says and takes no for an answer; what it then does with the memory is not ours to
// judge. The nearest functions are the hook's, the allocator's, and then who asked.
bool asked_by_hdf5() {
    constexpr int nearest = 10;
    std::array<void*, nearest> callers{};
    const int count = ::backtrace(callers.data(), nearest);
    return std::any_of(callers.begin(), callers.begin() + count, [](void* caller) {
        Dl_info where{};
        return ::dladdr(caller, &where) != 0 && where.dli_fname != nullptr &&
               std::strstr(where.dli_fname, "libhdf5") != nullptr;
    });
}

void check(std::size_t bytes) {
    const std::uint64_t most = limit.load(std::memory_order_relaxed);
    if (bytes <= most) return;
    limit = no_limit;  // what follows allocates too
    if (asked_by_hdf5()) {
        limit = most;
        return;
    }
    finding(std::to_string(bytes) + " bytes of memory at once, more than the " + std::to_string(most) +
            " that the input's size allows");
}

}  // namespace

AllocationLimit::AllocationLimit(std::uint64_t most) {
    limit = most;
}
AllocationLimit::~AllocationLimit() {
    limit = no_limit;
}

}  // namespace lockstep::fuzz

#ifdef LOCKSTEP_HOOKED

extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void*, std::size_t),
                                                         void (*)(const volatile void*));
// HDF5 gives up a request for more memory than there is.
extern "C" const char* __asan_default_options() {
    return "allocator_may_return_null=1:detect_odr_violation=0";
}

namespace {

void on_malloc(const volatile void*, std::size_t bytes) {
    lockstep::fuzz::check(bytes);
}
void on_free(const volatile void*) {}

// backtrace() loads a library at its first call, which allocates.
const bool hooked = [] {
    std::array<void*, 1> callers{};
    ::backtrace(callers.data(), 1);
    return __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free) != 0;
}();

}  // namespace

#else

namespace {

void* allocate(std::size_t bytes) {
    lockstep::fuzz::check(bytes);
    return std::malloc(std::max<std::size_t>(bytes, 1));
}

}  // namespace

void* operator new(std::size_t bytes) {
    if (void* memory = allocate(bytes)) return memory;
    throw std::bad_alloc();
}
void* operator new[](std::size_t bytes) {
    return operator new(bytes);
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    return allocate(bytes);
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete[](void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
    std::free(memory);
}

#endif
