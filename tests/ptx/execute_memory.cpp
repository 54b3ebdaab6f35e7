#include <fmt/format.h>

#include <algorithm>

#include "ptx/memory_access.hpp"
#include "ptx/race.hpp"
#include "ptx/traffic.hpp"

namespace lockstep::ptx {

void find_addresses(Lanes& x, Slot base, std::uint32_t base_bytes, std::int64_t offset, Addresses& addresses) {
    const auto displacement = static_cast<std::uint64_t>(offset);
    if (base == no_slot) {
        for (auto& address : addresses) address = displacement;
    } else if (base_bytes == 4) {
        const auto* const a = x.need<std::uint32_t>(base);
        for (int lane = 0; lane < lane_count; ++lane)
            addresses[lane] = static_cast<std::uint32_t>(a[lane] + displacement);
    } else {
        const auto* const a = x.need<std::uint64_t>(base);
        for (int lane = 0; lane < lane_count; ++lane) addresses[lane] = a[lane] + displacement;
    }
}

namespace {

Region* region_at(Lanes& x, std::uint64_t address, std::uint32_t bytes, bool shared) {
    if (shared) {
        Region& region = *x.block->shared_region;
        return region.contains(address, bytes) ? &region : nullptr;
    }
    if (x.last_region == nullptr || !x.last_region->contains(address, bytes))
        x.last_region = x.launch->memory.find(address);
    return x.last_region != nullptr && x.last_region->contains(address, bytes) ? x.last_region : nullptr;
}

}  // namespace

namespace {

struct Range {
    std::uint64_t least, most, bits;  // bits: that any has
};

LOCKSTEP_PTX_VECTOR Range range_of(const Addresses& addresses, std::uint32_t mask) {
    const std::uint64_t first = addresses[std::countr_zero(mask)];
    std::uint64_t least = first, most = first, bits = first;
    for (int lane = 0; lane < lane_count; ++lane) {
        const std::uint64_t address = mask >> lane & 1 ? addresses[lane] : first;
        least = std::min(least, address);
        most = std::max(most, address);
        bits |= address;
    }
    return {least, most, bits};
}

// The lanes one by one: some are findings, or in different allocations.
void reach_each(Lanes& x, const Addresses& addresses, std::uint32_t mask, std::uint32_t bytes, std::uint32_t used,
                bool shared, Reach& result) {
    const std::string_view name = shared ? "shared" : "global";
    for (std::uint32_t left = result.uniform ? mask & -mask : mask; left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        const std::uint64_t address = addresses[lane];
        if (address % bytes != 0) {
            x.report(FindingKind::misaligned, lane,
                     fmt::format("accesses {} bytes of {} memory at {:#x}, which is no multiple of {}", bytes, name,
                                 address, bytes));
            continue;
        }
        Region* const region = region_at(x, address, used, shared);
        if (region == nullptr) {
            x.report(FindingKind::out_of_bounds, lane,
                     shared ? fmt::format("accesses {} bytes at {:#x} of the block's {} bytes of shared memory", bytes,
                                          address, x.block->shared_region->end)
                            : fmt::format("accesses {} bytes of global memory at {:#x}, which are in no allocation",
                                          bytes, address));
            continue;
        }
        result.regions[lane] = region;
        result.lanes |= 1u << lane;
    }
    if (result.uniform && result.lanes != 0) {
        result.lanes = mask;
        result.region = result.regions[std::countr_zero(mask)];
    }
}

}  // namespace

void reach(Lanes& x, const Addresses& addresses, std::uint32_t mask, std::uint32_t bytes, std::uint32_t used,
           bool shared, Reach& result) {
    const Range range = range_of(addresses, mask);
    result.uniform = range.least == range.most;
    result.lanes = 0;
    result.region = nullptr;
    if (range.bits % bytes == 0) {
        Region* const region = region_at(x, range.least, used, shared);
        if (region != nullptr && region->contains(range.most, used)) {
            result.region = region;
            result.lanes = mask;
            return;
        }
    }
    reach_each(x, addresses, mask, bytes, used, shared, result);
}

namespace {

std::byte* bytes_at(const Lanes& x, std::uint64_t address, bool shared) {
    return shared ? x.block->shared.data() + address : reinterpret_cast<std::byte*>(address);
}

// Where each lane's bytes are, and which of them were ever written.
struct Loaded {
    const std::byte* from[lane_count];
    std::uint32_t written[lane_count];
    bool whole = true;                 // all were, of all lanes
    std::byte copies[lane_count][32];  // where not all bytes may be touched

    void set(int lane, const std::byte* place, std::uint32_t bytes_written, std::uint64_t all) {
        from[lane] = place;
        written[lane] = bytes_written;
        whole = whole && (bytes_written & all) == all;
    }
};

constexpr std::byte zeroes[32] = {};  // what a lane reads whose access is a finding

std::uint64_t mask_of_bytes(std::uint32_t bytes) {
    return (std::uint64_t{1} << bytes) - 1;
}

// One element of a vector from where each lane's bytes are.
template <class Element, class Place>
void fill(Lanes& x, Slot slot, std::uint32_t lanes, const std::byte* const (&from)[lane_count], std::uint32_t at) {
    Place* const to = x.place<Place>(slot);
    for (std::uint32_t left = lanes; left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        Element value;
        std::memcpy(&value, from[lane] + at, sizeof value);
        to[lane] = static_cast<Place>(value);
    }
}

void fill_element(Lanes& x, const Instruction& i, Slot slot, std::uint32_t lanes,
                  const std::byte* const (&from)[lane_count], std::uint32_t at) {
    if (i.bytes == i.place_bytes) {
        if (i.bytes == 4) return fill<std::uint32_t, std::uint32_t>(x, slot, lanes, from, at);
        if (i.bytes == 2) return fill<std::uint16_t, std::uint16_t>(x, slot, lanes, from, at);
        return fill<std::uint64_t, std::uint64_t>(x, slot, lanes, from, at);
    }
    const bool extend = i.type == Type::s8 || i.type == Type::s16 || i.type == Type::s32;
    const int unused = 64 - 8 * i.bytes;
    auto* const to = reinterpret_cast<std::byte*>(x.place<std::uint16_t>(slot));
    for (std::uint32_t left = lanes; left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        std::uint64_t value = 0;
        std::memcpy(&value, from[lane] + at, i.bytes);
        if (extend) value = static_cast<std::uint64_t>(static_cast<std::int64_t>(value << unused) >> unused);
        std::memcpy(to + lane * i.place_bytes, &value, i.place_bytes);
    }
}

void fill_all(Lanes& x, const Instruction& i, const Loaded& loaded) {
    const Slot* const slots = &x.launch->kernel.lists[i.list];
    for (std::uint32_t element = 0; element < i.count; ++element) {
        if (slots[element] == no_slot) continue;
        fill_element(x, i, slots[element], x.mask, loaded.from, element * i.bytes);
        if (!loaded.whole) [[unlikely]] {
            const std::uint64_t bytes = mask_of_bytes(i.bytes);
            x.defined = 0;
            for (int lane = 0; lane < lane_count; ++lane)
                if ((loaded.written[lane] >> (element * i.bytes) & bytes) == bytes) x.defined |= 1u << lane;
            x.origin = x.pc;
        }
        x.define(slots[element]);
    }
}

void count_access(Launch& launch, const Addresses& addresses, std::uint32_t mask, std::uint32_t bytes, bool shared,
                  bool writes) {
    if (launch.counts == nullptr) return;
    if (shared)
        count_shared_access(*launch.counts, addresses, mask, bytes);
    else
        count_global_access(launch, addresses, mask, bytes, writes);
}

void load_from(Lanes& x, const Instruction& i, const Addresses& addresses, std::uint32_t mask, bool shared,
               Loaded& loaded) {
    const std::uint32_t bytes = i.bytes * i.count;
    count_access(*x.launch, addresses, mask, bytes, shared, false);
    const std::uint64_t all = mask_of_bytes(bytes), needed = i.used_bytes & all;
    const bool partly = needed != all;
    const auto used = static_cast<std::uint32_t>(std::bit_width(needed));  // what follows need not be there
    Reach reached;
    reach(x, addresses, mask, bytes, used, shared, reached);
    if (partly) {  // only the elements that are used
        Addresses places;
        for (std::uint32_t element = 0; element < i.count; ++element) {
            if ((needed >> (element * i.bytes) & mask_of_bytes(i.bytes)) == 0) continue;
            for (int lane = 0; lane < lane_count; ++lane) places[lane] = addresses[lane] + element * i.bytes;
            note_reads(x, reached, places, i.bytes, shared);
        }
    } else {
        note_reads(x, reached, addresses, bytes, shared);
    }
    if (reached.region != nullptr && !partly) {
        std::uint32_t written = ~0u;
        for (std::uint32_t left = mask; left != 0; left &= left - 1) {
            const int lane = std::countr_zero(left);
            written &= loaded.written[lane] = reached.region->written(addresses[lane]);
            loaded.from[lane] = bytes_at(x, addresses[lane], shared);
        }
        loaded.whole = loaded.whole && (written & all) == all;
        return;
    }
    for (std::uint32_t left = mask; left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        if (!(reached.lanes >> lane & 1)) {
            loaded.set(lane, zeroes, ~0u, 0);
            continue;
        }
        const std::uint32_t written = reached.of(lane)->written(addresses[lane]) & static_cast<std::uint32_t>(needed);
        loaded.set(lane, bytes_at(x, addresses[lane], shared), written, all);
        if (!partly) continue;
        std::memcpy(loaded.copies[lane], loaded.from[lane], used);
        loaded.from[lane] = loaded.copies[lane];
    }
}

// The lane's own bytes of local memory, or nullptr and a finding.
std::byte* local_at(Lanes& x, std::uint64_t address, std::uint32_t bytes, int lane) {
    const std::uint32_t each = x.launch->kernel.local_bytes;
    if (address % bytes != 0) {
        x.report(FindingKind::misaligned, lane,
                 fmt::format("accesses {} bytes of local memory at {:#x}", bytes, address));
        return nullptr;
    }
    if (address + bytes > each) {
        x.report(FindingKind::out_of_bounds, lane,
                 fmt::format("accesses {} bytes at {:#x} of {} bytes of local memory", bytes, address, each));
        return nullptr;
    }
    return x.warp->local.data() + static_cast<std::size_t>(lane) * each + address;
}

void load_local(Lanes& x, const Instruction& i, const Addresses& addresses, std::uint32_t mask, Loaded& loaded) {
    const std::uint32_t bytes = i.bytes * i.count;
    for (std::uint32_t left = mask; left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        const std::byte* const place = local_at(x, addresses[lane], bytes, lane);
        if (place == nullptr) {
            loaded.set(lane, zeroes, ~0u, 0);
            continue;
        }
        const auto begin = static_cast<std::size_t>(place - x.warp->local.data());
        std::uint32_t written = 0;
        for (std::uint32_t byte = 0; byte < bytes; ++byte)
            written |= static_cast<std::uint32_t>(x.warp->local_written[begin + byte]) << byte;
        loaded.set(lane, place, written, mask_of_bytes(bytes));
    }
}

void load_parameter(Lanes& x, const Instruction& i, const Addresses& addresses, std::uint32_t mask, Loaded& loaded) {
    const std::uint32_t bytes = i.bytes * i.count;
    const auto parameters = x.launch->parameters;
    if (i.a == no_slot && addresses[0] % bytes == 0 && addresses[0] + bytes <= parameters.size()) {
        std::fill(std::begin(loaded.from), std::end(loaded.from), parameters.data() + addresses[0]);
        return;
    }
    for (std::uint32_t left = mask; left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        const std::uint64_t address = addresses[lane];
        loaded.set(lane, zeroes, ~0u, 0);
        if (address % bytes != 0)
            x.report(FindingKind::misaligned, lane,
                     fmt::format("reads {} bytes of the parameters at {}", bytes, address));
        else if (address + bytes > parameters.size())
            x.report(FindingKind::out_of_bounds, lane,
                     fmt::format("reads {} bytes at {} of {} bytes of parameters", bytes, address, parameters.size()));
        else
            loaded.from[lane] = parameters.data() + address;
    }
}

// Calls f(space, lanes) with addresses of that space for each space that lanes name.
template <class F>
void by_space(Lanes& x, const Instruction& i, Addresses& addresses, F f) {
    if (i.space != Space::generic) return f(i.space, x.mask);
    std::uint32_t lanes_of[4] = {};
    for (std::uint32_t left = x.mask; left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        const std::uint64_t window = addresses[lane] & window_mask;
        const int space = window == shared_window ? 1 : window == local_window ? 2 : window == parameter_window ? 3 : 0;
        if (space != 0) addresses[lane] &= ~window_mask;
        lanes_of[space] |= 1u << lane;
    }
    constexpr Space spaces[] = {Space::global, Space::shared, Space::local, Space::parameter};
    for (int space = 0; space < 4; ++space)
        if (lanes_of[space] != 0) f(spaces[space], lanes_of[space]);
}

void load(Lanes& x, const Instruction& i) {
    Addresses addresses;
    find_addresses(x, i.a, i.from_bytes, i.offset, addresses);
    Loaded loaded;
    by_space(x, i, addresses, [&](Space space, std::uint32_t mask) {
        if (space == Space::local) return load_local(x, i, addresses, mask, loaded);
        if (space == Space::parameter) return load_parameter(x, i, addresses, mask, loaded);
        load_from(x, i, addresses, mask, space == Space::shared, loaded);
    });
    fill_all(x, i, loaded);
}

void mark(Region& region, std::uint64_t address, std::uint32_t bytes, std::uint32_t written) {
    const auto all = static_cast<std::uint32_t>(mask_of_bytes(bytes));
    if ((written & all) == all) return region.mark(address, bytes);
    for (std::uint32_t byte = 0; byte < bytes; ++byte)
        written >> byte & 1 ? region.mark(address + byte, 1) : region.unmark(address + byte, 1);
}

void store(Lanes& x, const Instruction& i) {
    Addresses addresses;
    find_addresses(x, i.a, i.from_bytes, i.offset, addresses);
    const std::uint32_t bytes = i.bytes * i.count;
    std::byte values[lane_count][32];
    std::uint32_t written[lane_count];
    std::fill(std::begin(written), std::end(written), ~0u);
    for (std::uint32_t element = 0; element < i.count; ++element) {
        const Slot slot = x.launch->kernel.lists[i.list + element];
        const auto* const from = reinterpret_cast<const std::byte*>(x.in<std::uint16_t>(slot));
        for (int lane = 0; lane < lane_count; ++lane)
            std::memcpy(values[lane] + element * i.bytes, from + lane * i.place_bytes, i.bytes);
        if ((x.written[slot] & x.mask) == x.mask) continue;
        const auto bytes_of_element = static_cast<std::uint32_t>(mask_of_bytes(i.bytes) << (element * i.bytes));
        for (int lane = 0; lane < lane_count; ++lane)
            if (!(x.written[slot] >> lane & 1)) written[lane] &= ~bytes_of_element;
    }
    by_space(x, i, addresses, [&](Space space, std::uint32_t mask) {
        if (space == Space::local) {
            for (std::uint32_t left = mask; left != 0; left &= left - 1) {
                const int lane = std::countr_zero(left);
                std::byte* const to = local_at(x, addresses[lane], bytes, lane);
                if (to == nullptr) continue;
                std::memcpy(to, values[lane], bytes);
                for (std::uint32_t byte = 0; byte < bytes; ++byte)
                    x.warp->local_written[static_cast<std::size_t>(to - x.warp->local.data()) + byte] =
                        written[lane] >> byte & 1;
            }
            return;
        }
        if (space == Space::parameter) {
            x.report(FindingKind::out_of_bounds, std::countr_zero(mask), "writes to a kernel's parameters");
            return;
        }
        const bool shared = space == Space::shared;
        // What is in global memory others may use; in shared memory, it matters once it is used.
        if (!shared && (x.defined & mask) != mask) x.report_never_written(mask & ~x.defined, x.origin);
        count_access(*x.launch, addresses, mask, bytes, shared, true);
        Reach reached;
        reach(x, addresses, mask, bytes, bytes, shared, reached);
        for (std::uint32_t left = reached.lanes; left != 0; left &= left - 1) {
            const int lane = std::countr_zero(left);
            Region& region = *reached.of(lane);
            std::byte* const to = bytes_at(x, addresses[lane], shared);
            note_write(x, region, addresses[lane], bytes, lane, shared, to, values[lane]);
            mark(region, addresses[lane], bytes, written[lane]);
            std::memcpy(to, values[lane], bytes);
        }
    });
}

void start_copy(Lanes& x, const Instruction& i) {
    Addresses to, from;
    find_addresses(x, i.a, i.from_bytes, i.offset, to);
    find_addresses(x, i.b, 8, i.source_offset, from);
    const auto* const sizes = i.c == no_slot ? nullptr : x.need<std::uint32_t>(i.c);
    if (x.launch->counts != nullptr) {
        count_shared_access(*x.launch->counts, to, x.mask, i.bytes);
        std::uint32_t reading = 0;
        for (int lane = 0; lane < lane_count; ++lane)
            if (x.mask >> lane & 1 && (sizes == nullptr || sizes[lane] != 0)) reading |= 1u << lane;
        if (reading != 0) count_global_access(*x.launch, from, reading, i.bytes, false);
    }
    Reach reached;
    reach(x, to, x.mask, i.bytes, i.bytes, true, reached);
    for (std::uint32_t left = reached.lanes; left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        AsynchronousCopy copy{};
        copy.to = static_cast<std::uint32_t>(to[lane]);
        copy.bytes = i.bytes;
        copy.group = x.warp->groups[static_cast<std::size_t>(lane)];
        copy.pc = x.pc;
        std::uint32_t size = sizes == nullptr ? i.bytes : sizes[lane];
        if (size > i.bytes) {
            x.report(FindingKind::out_of_bounds, lane, fmt::format("copies {} bytes of {}", size, i.bytes));
            size = i.bytes;
        }
        // Beyond the source's size are zeroes; nothing is read where it is 0.
        copy.written = ~((1u << size) - 1);
        const std::uint64_t source = from[lane];
        if (size != 0 && source % i.bytes != 0) {
            x.report(
                FindingKind::misaligned, lane,
                fmt::format("copies {} bytes of global memory at {:#x}, which is no multiple of it", i.bytes, source));
            continue;
        }
        if (size != 0) {
            Region* const region = region_at(x, source, size, false);
            if (region == nullptr) {
                x.report(
                    FindingKind::out_of_bounds, lane,
                    fmt::format("copies {} bytes of global memory at {:#x}, which are in no allocation", size, source));
                continue;
            }
            for (std::uint32_t at = 0, step = 0; at < size; at += step) {  // in powers of two
                step = std::bit_floor(size - at);
                note_read(x, *region, source + at, step, 1u << lane, false);
            }
            copy.written |= region->written(source) & ((1u << size) - 1);
            std::memcpy(copy.data.data(), reinterpret_cast<const void*>(source), size);
        }
        Region& shared = *x.block->shared_region;
        note_copy(x, shared, copy, lane);
        mark(shared, copy.to, copy.bytes, copy.written);
        x.warp->copies[static_cast<std::size_t>(lane)].push_back(copy);
    }
}

// Carries out the copies of all but the lane's `left` youngest groups; in_all: also those of no group.
void wait_for_copies(Lanes& x, std::uint32_t left, bool in_all) {
    for (std::uint32_t lanes = x.mask; lanes != 0; lanes &= lanes - 1) {
        const int lane = std::countr_zero(lanes);
        auto& copies = x.warp->copies[static_cast<std::size_t>(lane)];
        const std::uint32_t committed = x.warp->groups[static_cast<std::size_t>(lane)];
        const auto is_due = [&](const AsynchronousCopy& copy) {
            return in_all || static_cast<std::uint64_t>(copy.group) + left < committed;
        };
        for (const AsynchronousCopy& copy : copies) {
            if (!is_due(copy)) continue;
            std::memcpy(x.block->shared.data() + copy.to, copy.data.data(), copy.bytes);
            note_copied(x, *x.block->shared_region, copy, lane);
        }
        copies.erase(std::remove_if(copies.begin(), copies.end(), is_due), copies.end());
    }
}

}  // namespace

void execute_memory(Lanes& x, const Instruction& i) {
    switch (i.op) {
        case Op::load:
            return load(x, i);
        case Op::store:
            return store(x, i);
        case Op::copy_async:
            return start_copy(x, i);
        case Op::commit_group:
            for (std::uint32_t left = x.mask; left != 0; left &= left - 1)
                ++x.warp->groups[static_cast<std::size_t>(std::countr_zero(left))];
            return;
        case Op::prefetch:  // may be of any address
            return;
        case Op::wait_group:
            return wait_for_copies(x, static_cast<std::uint32_t>(i.offset), false);
        default:
            return wait_for_copies(x, 0, true);
    }
}

}  // namespace lockstep::ptx
