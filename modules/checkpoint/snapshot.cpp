#include "checkpoint/snapshot.hpp"

#include <sys/mman.h>

#include <new>

namespace lockstep::checkpoint {
namespace {

// Memory that is taken anew costs a fault a page, which would be a third of the time that training stands still.
constexpr std::size_t huge_page = std::size_t{2} << 20;

std::size_t round_up(std::size_t bytes, std::size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

}  // namespace

Snapshot::Snapshot(const std::vector<Block>& blocks) {
    std::size_t bytes = 0;
    for (const Block& block : blocks) {
        starts_.push_back(bytes / sizeof(float));
        bytes += round_up(block.bytes, direct_alignment);
    }
    if (bytes == 0) return;
    const std::size_t alignment = bytes < huge_page ? direct_alignment : huge_page;
    memory_.reset(static_cast<float*>(std::aligned_alloc(alignment, round_up(bytes, alignment))));
    if (!memory_) throw std::bad_alloc();
    if (alignment == huge_page)
        static_cast<void>(::madvise(memory_.get(), bytes / huge_page * huge_page, MADV_HUGEPAGE));  // a hint
}

}  // namespace lockstep::checkpoint
