#include "cuda_emulation/emulation.hpp"

#include <cstdlib>
#include <mutex>

#include "cuda_emulation/block.hpp"
#include "cuda_emulation/streams.hpp"

namespace lockstep::emulation {

namespace {

struct Random {
    std::uint64_t seed = 0, state = 0;
    Random() {
        if (const char* text = std::getenv("LOCKSTEP_EMULATION_SEED")) set(std::strtoull(text, nullptr, 10));
    }
    void set(std::uint64_t value) {
        seed = value;
        state = value;
    }
};

Random& random_state() {
    static Random random;
    return random;
}

}  // namespace

void set_seed(std::uint64_t value) {
    const std::lock_guard lock(device_lock());
    random_state().set(value);
}

std::uint64_t seed() {
    return random_state().seed;
}

std::uint64_t draw() {  // SplitMix64 (Steele, Lea, Flood 2014)
    std::uint64_t x = random_state().state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

}  // namespace lockstep::emulation
