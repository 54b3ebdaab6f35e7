#include "ptx/fat_binary.hpp"

#include <zstd.h>

#include <cstdint>
#include <cstring>

#include "base/error.hpp"

namespace lockstep::ptx {
namespace {

// NVIDIA documents neither; as nvcc 12 and 13 write them.
struct Header {
    std::uint32_t magic;
    std::uint16_t version, header_bytes;
    std::uint64_t bytes;  // after the header
};
struct EntryHeader {
    std::uint16_t kind, version;
    std::uint32_t header_bytes;
    std::uint64_t bytes;                            // after the header
    std::uint32_t compressed_bytes, options_place;  // compressed 0: it is not
    std::uint16_t minor, major;
    std::uint32_t architecture;
    std::uint32_t name_place, name_bytes;
    std::uint64_t flags;
    std::uint64_t reserved, plain_bytes;  // plain: of what was compressed
};
constexpr std::uint16_t ptx = 1;

template <class T>
T read(const char* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

std::string plain(const EntryHeader& entry, const char* payload) {
    if (entry.compressed_bytes == 0) return {payload, entry.bytes};
    std::string text(entry.plain_bytes, '\0');
    const std::size_t bytes = ZSTD_decompress(text.data(), text.size(), payload, entry.compressed_bytes);
    if (ZSTD_isError(bytes) != 0)
        throw damaged_error("PTX in a fat binary cannot be decompressed: {}", ZSTD_getErrorName(bytes));
    return text;
}

}  // namespace

std::vector<Image> images(const void* fat_binary) {
    const char* place = static_cast<const char*>(fat_binary);
    const auto header = read<Header>(place);
    if (header.magic != fat_binary_magic || header.version != 1)
        throw damaged_error("a fat binary begins with {:#x}, version {}; nvcc writes {:#x}, version 1", header.magic,
                            header.version, fat_binary_magic);
    place += header.header_bytes;
    const char* const end = place + header.bytes;
    std::vector<Image> found;
    while (place < end) {
        const auto entry = read<EntryHeader>(place);
        const char* const payload = place + entry.header_bytes;
        place = payload + entry.bytes;
        if (entry.header_bytes < sizeof entry || place > end) throw damaged_error("a fat binary ends within an entry");
        if (entry.kind != ptx) continue;
        std::string text = plain(entry, payload);
        text.resize(std::strlen(text.c_str()));
        found.push_back({static_cast<int>(entry.architecture), std::move(text)});
    }
    return found;
}

}  // namespace lockstep::ptx
