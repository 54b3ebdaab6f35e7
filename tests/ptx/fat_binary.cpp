#include "ptx/fat_binary.hpp"

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
    std::uint64_t bytes;  // after the header
    std::uint32_t compressed_bytes, options_place;
    std::uint16_t minor, major;
    std::uint32_t architecture;
    std::uint32_t name_place, name_bytes;
    std::uint64_t flags;
};
constexpr std::uint32_t magic = 0xba55ed50;
constexpr std::uint16_t ptx = 1;

template <class T>
T read(const char* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

}  // namespace

std::vector<PtxText> ptx_texts(const void* fat_binary) {
    const char* place = static_cast<const char*>(fat_binary);
    const auto header = read<Header>(place);
    if (header.magic != magic || header.version != 1)
        throw damaged_error("a fat binary begins with {:#x}, version {}; nvcc writes {:#x}, version 1", header.magic,
                            header.version, magic);
    place += header.header_bytes;
    const char* const end = place + header.bytes;
    std::vector<PtxText> texts;
    while (place < end) {
        const auto entry = read<EntryHeader>(place);
        const char* const payload = place + entry.header_bytes;
        place = payload + entry.bytes;
        if (entry.header_bytes < sizeof entry || place > end) throw damaged_error("a fat binary ends within an entry");
        if (entry.kind != ptx) continue;
        if (entry.compressed_bytes != 0)
            throw damaged_error("a fat binary has compressed PTX: compile with --no-compress");
        texts.push_back({static_cast<int>(entry.architecture), {payload, strnlen(payload, entry.bytes)}});
    }
    return texts;
}

}  // namespace lockstep::ptx
