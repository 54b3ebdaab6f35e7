#include "ptx/traffic.hpp"

#include <algorithm>
#include <map>

namespace lockstep::ptx {

namespace {

constexpr std::uint32_t bank_bytes = 4, banks = 32, sector_bytes = 32;

// Lanes that ask for 8 or 16 bytes each are served in halves or quarters of the warp; in each, a bank gives one word.
std::uint64_t passes(const std::uint64_t (&addresses)[lane_count], std::uint32_t mask, std::uint32_t bytes) {
    const int at_once = static_cast<int>(std::min(banks * bank_bytes / bytes, banks));
    std::uint64_t result = 0;
    for (int begin = 0; begin < lane_count; begin += at_once) {
        std::uint32_t seen = 0;
        bool conflict = false;
        const auto width = std::max(bytes / bank_bytes, 1u);
        const auto ones = width >= banks ? ~0u : (1u << width) - 1;
        for (int lane = begin; lane < begin + at_once; ++lane) {
            if (!(mask >> lane & 1)) continue;
            const std::uint32_t own = ones << (addresses[lane] / bank_bytes % banks);  // aligned: within a row of banks
            conflict = conflict || (seen & own) != 0;
            seen |= own;
        }
        if (!conflict) {
            result += seen != 0;
            continue;
        }
        std::uint64_t words[banks][lane_count];
        std::uint8_t used[banks] = {};
        std::uint8_t most = 0;
        for (int lane = begin; lane < begin + at_once; ++lane) {
            if (!(mask >> lane & 1)) continue;
            const std::uint64_t last = (addresses[lane] + bytes - 1) / bank_bytes;
            for (std::uint64_t word = addresses[lane] / bank_bytes; word <= last; ++word) {
                const auto bank = word % banks;
                auto* const end = words[bank] + used[bank];
                if (std::find(words[bank], end, word) != end) continue;
                *end = word;
                most = std::max(most, ++used[bank]);
            }
        }
        result += most;
    }
    return result;
}

// Those that the lanes' accesses begin in, each once; returns how many.
int sectors(const std::uint64_t (&addresses)[lane_count], std::uint32_t mask, std::uint64_t (&seen)[lane_count]) {
    int count = 0;
    for (int lane = 0; lane < lane_count; ++lane) {
        if (!(mask >> lane & 1)) continue;
        const std::uint64_t sector = addresses[lane] / sector_bytes;
        // Neighbours share sectors: the last seen are the likeliest.
        bool found = false;
        for (int i = count; i-- > 0 && !found;) found = seen[i] == sector;
        if (!found) seen[count++] = sector;
    }
    return count;
}

// Whether the lanes ask for what is beside each other, in their order.
LOCKSTEP_PTX_VECTOR bool in_sequence(const std::uint64_t (&addresses)[lane_count], std::uint32_t bytes) {
    std::uint64_t differs = 0;
    for (std::uint32_t lane = 0; lane < lane_count; ++lane)
        differs |= addresses[lane] ^ (addresses[0] + std::uint64_t{lane} * bytes);
    return differs == 0;
}

std::uint64_t Counts::*kind_of(const Instruction& one) {
    switch (one.group) {
        case Group::integer:
        case Group::predicate:
            return &Counts::integers;
        case Group::convert:
            return &Counts::converts;
        case Group::control:
            return one.op == Op::branch ? &Counts::branches : nullptr;
        case Group::tensor:
            return one.op == Op::mma ? &Counts::tensor : one.op == Op::load_matrix ? &Counts::shared_loads : nullptr;
        case Group::collective:
            if (one.op == Op::warp_barrier) return &Counts::warp_barriers;
            return one.op == Op::barrier ? &Counts::barriers : nullptr;
        case Group::floating:
            switch (one.op) {
                case Op::reciprocal:
                case Op::square_root:
                case Op::exp2:
                case Op::log2:
                case Op::reciprocal_root:
                case Op::sine:
                case Op::cosine:
                case Op::tangent_h:
                    return &Counts::special;
                default:
                    return &Counts::floats;
            }
        case Group::memory:
            if (one.op == Op::copy_async) return &Counts::asynchronous_copies;
            if (one.op != Op::load && one.op != Op::store) return nullptr;
            if (one.space == Space::shared) return one.op == Op::load ? &Counts::shared_loads : &Counts::shared_stores;
            if (one.space == Space::global || one.space == Space::generic)
                return one.op == Op::load ? &Counts::global_loads : &Counts::global_stores;
            return nullptr;
    }
    return nullptr;
}

}  // namespace

void count_shared_access(Counts& counts, const std::uint64_t (&addresses)[lane_count], std::uint32_t mask,
                         std::uint32_t bytes) {
    const std::uint64_t all_bytes = std::uint64_t{lane_count} * bytes;
    const bool simple = mask == all_lanes && in_sequence(addresses, bytes) && all_bytes % (banks * bank_bytes) == 0;
    counts.shared_passes += simple ? all_bytes / (banks * bank_bytes) : passes(addresses, mask, bytes);
}

void count_global_access(Launch& launch, const std::uint64_t (&addresses)[lane_count], std::uint32_t mask,
                         std::uint32_t bytes, bool writes) {
    std::uint64_t touched[lane_count];
    const int count = sectors(addresses, mask, touched);  // aligned accesses of 32 bytes at most: a sector a lane
    Counts& counts = *launch.counts;
    counts.global_sectors += static_cast<std::uint64_t>(count);
    counts.global_bytes += static_cast<std::uint64_t>(std::popcount(mask)) * bytes;
    constexpr std::uint8_t was_read = 1, was_written = 2;
    for (int i = 0; i < count; ++i) {
        std::uint8_t& seen = launch.sectors[touched[i]];
        if (writes) {
            counts.sectors_written += (seen & was_written) == 0;
            seen |= was_written;
        } else {
            counts.sectors_read += seen == 0;
            seen |= was_read;
        }
    }
}

void count_instructions(Counts& counts, const Launch& launch) {
    std::map<std::pair<std::string, int>, std::uint64_t> lines;
    for (const LineCounts& line : counts.lines) lines[{line.file, line.line}] = line.instructions;
    for (std::size_t pc = 0; pc < launch.executed.size(); ++pc) {
        const std::uint64_t executed = launch.executed[pc];
        if (executed == 0) continue;
        const Instruction& one = launch.kernel.code[pc];
        counts.instructions += executed;
        counts.lane_instructions += launch.executed_lanes[pc];
        if (const auto kind = kind_of(one); kind != nullptr) counts.*kind += executed;
        const auto file = static_cast<std::size_t>(one.location.file);
        const bool known = one.location.line > 0 && file < launch.kernel.files.size();
        lines[{known ? launch.kernel.files[file] : std::string(), known ? one.location.line : one.ptx_line}] +=
            executed;
    }
    counts.lines.clear();
    for (const auto& [place, instructions] : lines) counts.lines.push_back({place.first, place.second, instructions});
    std::stable_sort(counts.lines.begin(), counts.lines.end(),
                     [](const LineCounts& a, const LineCounts& b) { return a.instructions > b.instructions; });
}

}  // namespace lockstep::ptx
