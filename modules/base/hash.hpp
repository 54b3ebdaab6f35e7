// XXH3 checksums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace lockstep {

std::uint64_t hash64(const void* data, std::size_t bytes);

// Long enough that contents with equal hashes may be taken as equal.
struct Hash128 {
    std::uint64_t low = 0, high = 0;
    bool operator==(const Hash128&) const = default;
};
Hash128 hash128(const void* data, std::size_t bytes);

std::string hash_text(std::uint64_t hash);  // 16 hexadecimal digits

// Incremental computation.
class Hasher {
  public:
    Hasher();
    ~Hasher();
    Hasher(const Hasher&) = delete;
    Hasher& operator=(const Hasher&) = delete;
    void add(const void* data, std::size_t bytes);
    std::uint64_t digest() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace lockstep
