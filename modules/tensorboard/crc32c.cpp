#include "tensorboard/crc32c.hpp"

#include <array>

namespace lockstep::tensorboard {
namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
    constexpr std::uint32_t reflected_polynomial = 0x82F63B78;
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t rest = byte;
        for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? reflected_polynomial : 0);
        table.at(byte) = rest;
    }
    return table;
}

constexpr std::array<std::uint32_t, 256> table = make_table();

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
    std::uint32_t rest = ~std::uint32_t{0};
    for (const char byte : bytes) rest = table[(rest ^ static_cast<unsigned char>(byte)) & 0xff] ^ (rest >> 8);
    return ~rest;
}

}  // namespace lockstep::tensorboard
