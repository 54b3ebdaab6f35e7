#include "checkpoint/snapshot.hpp"

#include <sys/mman.h>

#include <new>

#include "checkpoint/direct_file.hpp"

namespace lockstep::checkpoint {
namespace {

std::size_t round_up(std::size_t bytes, std::size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

}  // namespace

AlignedMemory allocate_aligned(std::size_t bytes, std::size_t alignment) {
    if (bytes == 0) return {};
    AlignedMemory memory(static_cast<float*>(std::aligned_alloc(alignment, round_up(bytes, alignment))));
    if (!memory) throw std::bad_alloc();
    if (alignment == huge_page) static_cast<void>(::madvise(memory.get(), round_up(bytes, alignment), MADV_HUGEPAGE));
    return memory;
}

Snapshot::Snapshot(const std::vector<ChecksumBlock>& blocks) {
    std::size_t bytes = 0;
    for (const ChecksumBlock& block : blocks) {
        starts_.push_back(bytes / sizeof(float));
        bytes += round_up(block.bytes, direct_alignment);
    }
    memory_ = allocate_aligned(bytes, direct_alignment);
}

}  // namespace lockstep::checkpoint
