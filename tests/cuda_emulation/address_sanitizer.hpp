// Whether this is a build with AddressSanitizer, and its interface, or nothing.
#pragma once

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LOCKSTEP_ADDRESS_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) && !defined(LOCKSTEP_ADDRESS_SANITIZER)
#define LOCKSTEP_ADDRESS_SANITIZER 1
#endif

#include <cstddef>

#if defined(LOCKSTEP_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
namespace lockstep::emulation {
constexpr bool address_sanitizer = true;
inline void forbid(const void* begin, std::size_t bytes) {
    __asan_poison_memory_region(begin, bytes);
}
inline void allow(const void* begin, std::size_t bytes) {
    __asan_unpoison_memory_region(begin, bytes);
}
}  // namespace lockstep::emulation
#else
namespace lockstep::emulation {
constexpr bool address_sanitizer = false;
inline void forbid(const void*, std::size_t) {}
inline void allow(const void*, std::size_t) {}
}  // namespace lockstep::emulation
#endif
