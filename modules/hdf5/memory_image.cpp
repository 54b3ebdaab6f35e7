#include "hdf5/memory_image.hpp"

#include <algorithm>
#include <cstring>

namespace lockstep::hdf5 {

void MemoryImage::write(std::uint64_t offset, const void* data, std::uint64_t bytes) {
    const char* from = static_cast<const char*>(data);
    for (std::uint64_t count; bytes > 0; from += count, offset += count, bytes -= count) {
        const std::uint64_t first = offset % page_bytes;
        count = std::min(bytes, page_bytes - first);
        Page& page = pages_[offset / page_bytes];
        std::memcpy(page.bytes.data() + first, from, count);
        for (std::uint64_t i = first; i < first + count; ++i) page.written.set(i);
        bytes_ = std::max(bytes_, offset + count);
    }
}

void MemoryImage::read(std::uint64_t offset, void* data, std::uint64_t bytes) const {
    char* to = static_cast<char*>(data);
    for (std::uint64_t count; bytes > 0; to += count, offset += count, bytes -= count) {
        const std::uint64_t first = offset % page_bytes;
        count = std::min(bytes, page_bytes - first);
        const auto page = pages_.find(offset / page_bytes);
        if (page == pages_.end())
            std::memset(to, 0, count);
        else
            std::memcpy(to, page->second.bytes.data() + first, count);
    }
}

void MemoryImage::store(const OpenFile& file) const {
    for_each_piece(
        [&](std::uint64_t offset, const std::vector<char>& bytes) { file.write(bytes.data(), bytes.size(), offset); });
    file.resize(bytes_);
}

void MemoryImage::for_each_piece(
    const std::function<void(std::uint64_t offset, const std::vector<char>& bytes)>& take) const {
    constexpr std::size_t joined_bytes = std::size_t{1} << 20;
    std::vector<char> joined;  // what lies together
    std::uint64_t begin = 0;
    const auto flush = [&] {
        if (!joined.empty()) take(begin, joined);
        joined.clear();
    };
    for (const auto& [number, page] : pages_) {
        for (std::uint64_t first = 0; first < page_bytes;) {
            std::uint64_t last = first;
            while (last < page_bytes && page.written[last]) ++last;
            const std::uint64_t offset = number * page_bytes + first;
            if (last > first && (offset != begin + joined.size() || joined.size() >= joined_bytes)) {
                flush();
                begin = offset;
            }
            joined.insert(joined.end(), page.bytes.data() + first, page.bytes.data() + last);
            first = last + 1;
        }
    }
    flush();
}

}  // namespace lockstep::hdf5
