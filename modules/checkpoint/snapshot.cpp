#include "checkpoint/snapshot.hpp"

#include <sys/mman.h>

#include <cstring>
#include <new>

#include "checkpoint/direct_file.hpp"
#include "device/parallel.hpp"

namespace lockstep::checkpoint {
namespace {

std::size_t round_up(std::size_t bytes, std::size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

void copy_parts(const LiveParts& parts, float* to) {
    for (const LivePart& part : parts)
        std::memcpy(to + part.first, part.values, static_cast<std::size_t>(part.count) * sizeof(float));
}

}  // namespace

AlignedMemory allocate_aligned(std::size_t bytes, std::size_t alignment) {
    if (bytes == 0) return {};
    AlignedMemory memory(static_cast<float*>(std::aligned_alloc(alignment, round_up(bytes, alignment))));
    if (!memory) throw std::bad_alloc();
    if (alignment == huge_page) static_cast<void>(::madvise(memory.get(), round_up(bytes, alignment), MADV_HUGEPAGE));
    return memory;
}

Snapshot::Snapshot(const std::vector<ChecksumBlock>& blocks, std::vector<LiveParts> live)
    : live_(std::move(live)), copies_(blocks.size()) {
    std::vector<std::size_t> copied;
    for (std::size_t number = 0; number < blocks.size(); ++number) {
        sizes_.push_back(blocks[number].bytes);
        if (live_bytes(number) < blocks[number].bytes) copied.push_back(number);
    }
    add_memory(copied);
}

void Snapshot::add_memory(const std::vector<std::size_t>& numbers) {
    std::size_t bytes = 0;
    for (const std::size_t number : numbers) bytes += round_up(sizes_[number], direct_alignment);
    memory_.reserve(memory_.size() + 1);
    memory_.push_back(allocate_aligned(bytes, bytes >= huge_page ? huge_page : direct_alignment));
    float* next = memory_.back().get();
    for (const std::size_t number : numbers) {
        copies_[number] = next;
        next += round_up(sizes_[number], direct_alignment) / sizeof(float);
    }
    bytes_ += bytes;
}

std::uint64_t Snapshot::live_bytes(std::size_t number) const {
    std::int64_t count = 0;
    for (const LivePart& part : live_[number]) count += part.count;
    return static_cast<std::uint64_t>(count) * sizeof(float);
}

float* Snapshot::together(std::size_t first, std::size_t last) {
    for (std::size_t number = first; number < last; ++number) {
        if (!copies_[number]) return nullptr;
        if (number > first && copies_[number] != copies_[number - 1] + sizes_[number - 1] / sizeof(float))
            return nullptr;
    }
    for (std::size_t number = first; number < last; ++number) settle(number);
    return copies_[first];
}

void Snapshot::settle(std::size_t number) {
    copy_parts(live_[number], copies_[number]);
    live_[number] = {};
}

void Snapshot::gather(std::size_t number, float* to) const {
    if (copies_[number]) std::memcpy(to, copies_[number], sizes_[number]);
    copy_parts(live_[number], to);
}

void Snapshot::keep(std::size_t first, std::size_t last) {
    std::vector<std::size_t> without;
    for (std::size_t number = first; number < last; ++number)
        if (!copies_[number]) without.push_back(number);
    add_memory(without);
    parallel_for(static_cast<std::int64_t>(last - first), 1, [&](std::int64_t from, std::int64_t to, int) {
        for (auto i = static_cast<std::size_t>(from); i < static_cast<std::size_t>(to); ++i) settle(first + i);
    });
}

}  // namespace lockstep::checkpoint
