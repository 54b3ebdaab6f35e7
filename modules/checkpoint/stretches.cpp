#include "checkpoint/stretches.hpp"

#include <algorithm>

namespace lockstep::checkpoint {
namespace {

constexpr std::uint64_t small_share = std::uint64_t{64} << 20;
constexpr Pace pace_of_large_shares = {3, std::uint64_t{16} << 20};
// Between tensors lie descriptions of tensors and ends of pages: less time to read than another request takes.
constexpr std::uint64_t largest_gap = std::uint64_t{64} << 10;

template <class Joins>
std::vector<Stretch> joined(const Layout& layout, const std::vector<ChecksumBlock>& share, std::uint64_t most_bytes,
                            const Joins& joins) {
    std::vector<Stretch> stretches;
    for (std::size_t i = 0; i < share.size(); ++i) {
        const std::uint64_t offset = offset_of(layout, share[i]), end = offset + share[i].bytes;
        if (!stretches.empty()) {
            Stretch& before = stretches.back();
            if (end - before.offset <= most_bytes && joins(before, offset, share[i].bytes)) {
                before.last = i + 1;
                before.bytes = end - before.offset;
                continue;
            }
        }
        stretches.push_back({i, i + 1, offset, share[i].bytes});
    }
    return stretches;
}

}  // namespace

Pace pace_of_bytes(std::uint64_t share) {
    return share <= small_share ? Pace{} : pace_of_large_shares;
}

Pace pace_of(const std::vector<ChecksumBlock>& share) {
    std::uint64_t bytes = 0;
    for (const ChecksumBlock& block : share) bytes += block.bytes;
    return pace_of_bytes(bytes);
}

std::vector<Stretch> stretches_to_write(const Layout& layout, const std::vector<ChecksumBlock>& share,
                                        std::uint64_t most_bytes) {
    return joined(layout, share, most_bytes, [](const Stretch& before, std::uint64_t offset, std::uint64_t bytes) {
        return before.offset + before.bytes == offset && (before.offset | offset | bytes) % direct_alignment == 0;
    });
}

std::vector<Stretch> stretches_to_read(const Layout& layout, const std::vector<ChecksumBlock>& share,
                                       std::uint64_t most_bytes) {
    return joined(layout, share, most_bytes, [](const Stretch& before, std::uint64_t offset, std::uint64_t) {
        const std::uint64_t end = before.offset + before.bytes;
        return end <= offset && offset - end <= largest_gap;
    });
}

std::uint64_t largest(const std::vector<Stretch>& stretches) {
    std::uint64_t bytes = 0;
    for (const Stretch& stretch : stretches) bytes = std::max(bytes, stretch.bytes);
    return bytes;
}

// Whole pages around it: what lies between them and the stretch is read and ignored.
const char* read_stretch(const DirectFile& file, const Stretch& stretch, void* memory) {
    const std::uint64_t unit = direct_unit(), first = stretch.offset / unit * unit,
                        last = (stretch.offset + stretch.bytes + unit - 1) / unit * unit;
    auto* const to = static_cast<char*>(memory);
    const bool ends_within = last <= file.bytes();  // no whole page is read at the end of the file
    if (ends_within && file.read_directly(to, last - first, first)) return to + (stretch.offset - first);
    file.read(to, stretch.bytes, stretch.offset);
    return to;
}

std::uint64_t room_for_reading(const std::vector<Stretch>& stretches) {
    return largest(stretches) + 2 * direct_unit();
}

}  // namespace lockstep::checkpoint
