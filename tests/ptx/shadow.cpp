#include "ptx/shadow.hpp"

#include <algorithm>
#include <bit>
#include <new>

namespace lockstep::ptx {

namespace {

template <class T>
T* zeroes(std::size_t count) {
    auto* const memory = static_cast<T*>(std::calloc(count, sizeof(T)));
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

}  // namespace

void Page::refine(int to) {
    const auto factor = std::size_t{1} << (shift - to);
    std::vector<Cell> finer(cells.size() * factor);
    for (std::size_t i = 0; i < finer.size(); ++i) finer[i] = cells[i / factor];
    cells = std::move(finer);
    if (!read_clocks.empty()) {
        std::vector<std::uint32_t> clocks(read_clocks.size() * factor);
        for (std::size_t i = 0; i < clocks.size(); ++i) clocks[i] = read_clocks[i / 32 / factor * 32 + i % 32];
        read_clocks = std::move(clocks);
    }
    shift = static_cast<std::uint8_t>(to);
}

Region::Region(std::uint64_t first, std::uint64_t bytes)
    : begin(first),
      end(first + bytes),
      origin(first / page_bytes * page_bytes),
      bits_(zeroes<std::uint64_t>((end - origin) / 64 + 1)),
      pages_(zeroes<Page*>((end - origin) / page_bytes + 1)) {}

void Region::mark_range(std::uint64_t address, std::uint64_t bytes, bool written) {
    std::uint64_t at = address - origin;
    const std::uint64_t last = at + bytes;
    while (at < last) {
        const std::uint64_t step = std::min<std::uint64_t>(64 - at % 64, last - at);
        const std::uint64_t mask = (step == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << step) - 1) << (at % 64);
        auto& word = bits_.get()[at / 64];
        word = written ? word | mask : word & ~mask;
        at += step;
    }
}

void Region::prepare(Page*& place, std::uint32_t bytes) {
    const int shift = std::min(std::countr_zero(bytes), 4);
    if (place != nullptr) return place->refine(shift);
    owned_.push_back(std::make_unique<Page>());
    place = owned_.back().get();
    place->shift = static_cast<std::uint8_t>(shift);
    place->cells.resize(page_bytes >> shift);
}

void Region::forget() {
    for (auto& page : owned_) page->cells.assign(page->cells.size(), Cell{});
}

}  // namespace lockstep::ptx
