#include "data/huggingface/byte_level.hpp"

#include <array>
#include <cstdint>

#include "base/utf8.hpp"

namespace lockstep::data::huggingface {
namespace {

constexpr std::size_t characters = 256 + 68;  // bytes that are not printable come behind the others

struct Alphabet {
    std::array<std::uint16_t, 256> character{};
    std::array<std::int16_t, characters> byte{};

    Alphabet() {
        byte.fill(-1);
        std::uint16_t next = 256;
        for (std::uint16_t value = 0; value < 256; ++value) {
            const bool printable = (value >= '!' && value <= '~') || (value >= 0xA1 && value <= 0xAC) || value >= 0xAE;
            character[value] = printable ? value : next++;
            byte[character[value]] = static_cast<std::int16_t>(value);
        }
    }
};

const Alphabet& alphabet() {
    static const Alphabet made;
    return made;
}

}  // namespace

std::string spelling_of(unsigned char byte) {
    const unsigned code = alphabet().character[byte];
    if (code < 0x80) return {static_cast<char>(code)};
    return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

std::optional<std::string> bytes_spelt(std::string_view token) {
    std::string bytes;
    bytes.reserve(token.size());
    while (!token.empty()) {
        const Character next = first_character(token);
        if (next.bytes == 0 || next.code >= characters || alphabet().byte[next.code] < 0) return std::nullopt;
        bytes += static_cast<char>(alphabet().byte[next.code]);
        token.remove_prefix(next.bytes);
    }
    return bytes;
}

}  // namespace lockstep::data::huggingface
