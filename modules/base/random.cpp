#include "base/random.hpp"

#include <cmath>
#include <numbers>

#include "base/error.hpp"
#include "base/hash.hpp"

namespace lockstep {

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
    constexpr std::uint64_t multiplier0 = 0xD2511F53, multiplier1 = 0xCD9E8D57;
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t product0 = multiplier0 * counter[0], product1 = multiplier1 * counter[2];
        counter = {
            static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
            static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
        key[0] += 0x9E3779B9;
        key[1] += 0xBB67AE85;
    }
    return counter;
}

RandomStream::RandomStream(std::uint64_t seed, std::string_view purpose)
    : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)} {
    const std::uint64_t digest = hash64(purpose.data(), purpose.size());
    purpose_ = {static_cast<std::uint32_t>(digest), static_cast<std::uint32_t>(digest >> 32)};
}

std::uint64_t RandomStream::bits(std::uint64_t index) const {
    const auto block = philox4x32(
        {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), purpose_[0], purpose_[1]}, key_);
    return block[0] | static_cast<std::uint64_t>(block[1]) << 32;
}

double RandomStream::uniform(std::uint64_t index) const {
    return static_cast<double>(bits(index) >> 11) * 0x1p-53;
}

double RandomStream::normal(std::uint64_t index) const {
    const auto block = philox4x32(
        {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), purpose_[0], purpose_[1]}, key_);
    const double radius = std::sqrt(-2.0 * std::log((block[0] + 0.5) * 0x1p-32));
    return radius * std::cos(2.0 * std::numbers::pi * (block[1] * 0x1p-32));
}

RandomPermutation::RandomPermutation(std::uint64_t seed, std::string_view purpose, std::uint64_t count)
    : stream_(seed, purpose), count_(count), half_bits_(1) {
    while (half_bits_ < 31 && (std::uint64_t{1} << (2 * half_bits_)) < count) ++half_bits_;
}

std::uint64_t RandomPermutation::operator()(std::uint64_t index) const {
    LOCKSTEP_ASSERT(index < count_);
    const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
    do {
        std::uint64_t left = index >> half_bits_, right = index & mask;
        for (std::uint64_t round = 0; round < 6; ++round) {
            const std::uint64_t mixed = left ^ (stream_.bits(round << 56 | right) & mask);
            left = right;
            right = mixed;
        }
        index = left << half_bits_ | right;
    } while (index >= count_);
    return index;
}

}  // namespace lockstep
