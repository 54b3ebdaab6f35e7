// Counter-based random numbers: a pure function of (seed, purpose, index), independent of the numbers of ranks and
// threads. Philox4x32-10: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace lockstep {

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

class RandomStream {
  public:
    // `purpose` separates streams of one seed: "parameter/blocks/0/mixer/query/weight", "data order", "sampling".
    RandomStream(std::uint64_t seed, std::string_view purpose);
    std::uint64_t bits(std::uint64_t index) const;  // 64 random bits
    double uniform(std::uint64_t index) const;      // in [0, 1)
    double normal(std::uint64_t index) const;       // mean 0, variance 1 (Box-Muller)

  private:
    std::array<std::uint32_t, 2> key_;
    std::array<std::uint32_t, 2> purpose_;
};

// A permutation of [0, count), evaluated point by point under the key (seed, purpose): a Feistel network over the next
// even power of two, iterated until the value is in range (cycle walking).
class RandomPermutation {
  public:
    RandomPermutation(std::uint64_t seed, std::string_view purpose, std::uint64_t count);
    std::uint64_t operator()(std::uint64_t index) const;

  private:
    RandomStream stream_;
    std::uint64_t count_;
    unsigned half_bits_;
};

}  // namespace lockstep
