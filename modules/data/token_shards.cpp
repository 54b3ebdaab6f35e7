#include "data/token_shards.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/error.hpp"
#include "base/open_file.hpp"
#include "device/parallel.hpp"

namespace lockstep::data {
namespace {

constexpr std::size_t header_bytes = 256 * sizeof(std::int32_t);

// Files of llm.c begin with 256 int32: a magic number, a version, and for tokens their number.
struct Header {
    std::int32_t magic, version;
    std::size_t width;  // 0: not tokens
    const char* what;
};
constexpr std::array<Header, 6> headers = {{{20240520, 1, 2, "GPT-2 tokens"},
                                            {20240801, 7, 4, "Llama 3 tokens"},
                                            {20240522, 0, 0, "HellaSwag or MMLU questions"},
                                            {20240326, 0, 0, "model parameters"},
                                            {20240327, 0, 0, "test values"},
                                            {20240328, 0, 0, "a tokenizer"}}};

const Header* header_of(const std::byte* data, std::size_t bytes) {
    std::int32_t magic = 0;
    if (bytes < sizeof magic) return nullptr;
    std::memcpy(&magic, data, sizeof magic);
    const auto* found =
        std::find_if(headers.begin(), headers.end(), [&](const Header& one) { return one.magic == magic; });
    return found == headers.end() ? nullptr : found;
}

template <class Stored>
std::uint64_t largest_of(const std::byte* data, std::uint64_t count) {
    std::vector<Stored> parts(static_cast<std::size_t>(threads()), 0);
    parallel_for(static_cast<std::int64_t>(count), 1 << 18, [&](std::int64_t first, std::int64_t last, int thread) {
        Stored largest = 0;
        for (std::int64_t i = first; i < last; ++i) {
            Stored value;
            std::memcpy(&value, data + static_cast<std::size_t>(i) * sizeof value, sizeof value);
            largest = std::max(largest, value);
        }
        parts[static_cast<std::size_t>(thread)] = largest;
    });
    return *std::max_element(parts.begin(), parts.end());
}

template <class Stored>
std::uint64_t widen(const std::byte* data, std::size_t count, std::int32_t* out) {
    Stored largest = 0;
    for (std::size_t i = 0; i < count; ++i) {
        Stored value;
        std::memcpy(&value, data + i * sizeof value, sizeof value);
        largest = std::max(largest, value);
        out[i] = static_cast<std::int32_t>(value);
    }
    return largest;
}

}  // namespace

FlatLayout flat_layout(const MappedFile& file, const std::string& path) {
    if (file.bytes() == 0) throw damaged_error("{} is empty; a .bin file holds tokens as uint16", path);
    FlatLayout layout;
    const Header* header = header_of(file.data(), file.bytes());
    std::array<std::int32_t, 3> start{};
    if (header) {
        if (header->width == 0) throw usage_error("{} is an llm.c file that holds {}, not tokens", path, header->what);
        if (file.bytes() < header_bytes)
            throw damaged_error("{} is truncated within its header of {} bytes", path, header_bytes);
        std::memcpy(start.data(), file.data(), sizeof start);
        if (start[1] != header->version)
            throw damaged_error("{}: the header has version {} instead of {}", path, start[1], header->version);
        layout.header_bytes = header_bytes;
        layout.width = header->width;
    }
    const std::uint64_t token_bytes = file.bytes() - layout.header_bytes;
    if (token_bytes % layout.width != 0)
        throw damaged_error("{} is truncated: {} bytes are not a whole number of {}-byte tokens", path, token_bytes,
                            layout.width);
    layout.count = token_bytes / layout.width;
    if (header && static_cast<std::int64_t>(layout.count) != start[2])
        throw damaged_error("{} is damaged: its header says {} tokens, the file has {}", path, start[2], layout.count);
    if (layout.count == 0) throw damaged_error("{} holds no tokens", path);
    return layout;
}

bool has_shard_header(const std::string& path) {
    const OpenFile file = OpenFile::for_reading(path);
    std::array<std::byte, sizeof(std::int32_t)> start{};
    const Header* header = header_of(start.data(), file.read_up_to(start.data(), start.size(), 0));
    return header && header->width > 0;
}

std::uint64_t largest_token(const std::byte* data, std::size_t width, std::uint64_t count) {
    return width == 1   ? largest_of<std::uint8_t>(data, count)
           : width == 2 ? largest_of<std::uint16_t>(data, count)
           : width == 4 ? largest_of<std::uint32_t>(data, count)
                        : largest_of<std::uint64_t>(data, count);
}

std::uint64_t widen_tokens(const std::byte* data, std::size_t width, std::size_t count, std::int32_t* out) {
    return width == 1   ? widen<std::uint8_t>(data, count, out)
           : width == 2 ? widen<std::uint16_t>(data, count, out)
           : width == 4 ? widen<std::uint32_t>(data, count, out)
                        : widen<std::uint64_t>(data, count, out);
}

}  // namespace lockstep::data
