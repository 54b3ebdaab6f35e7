// Whether an access is in order with those before it: by barriers only, as the machine knows no atomics.
#pragma once

#include "ptx/memory_access.hpp"

namespace lockstep::ptx {

// All are of aligned accesses of 1 to 32 bytes, a power of two, within their regions; `shared` says which memory it is.
void note_reads(Lanes& lanes, const Reach& reached, const Addresses& addresses, std::uint32_t bytes, bool shared);
void note_read(Lanes& lanes, Region& region, std::uint64_t address, std::uint32_t bytes, std::uint32_t readers,
               bool shared);

// What the lanes of one instruction write to one place is no race where it is the same: `before` are the memory's
// bytes, `after` those that will be written.
void note_write(Lanes& lanes, Region& region, std::uint64_t address, std::uint32_t bytes, int lane, bool shared,
                const std::byte* before, const std::byte* after);

// cp.async: the bytes are pending until the lane that issued it has waited.
void note_copy(Lanes& lanes, Region& region, const AsynchronousCopy& copy, int lane);
void note_copied(Lanes& lanes, Region& region, const AsynchronousCopy& copy, int lane);

}  // namespace lockstep::ptx
