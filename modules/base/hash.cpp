#include "base/hash.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include "base/error.hpp"

namespace lockstep {

std::uint64_t hash64(const void* data, std::size_t bytes) {
    return XXH3_64bits(data, bytes);
}

Hash128 hash128(const void* data, std::size_t bytes) {
    const XXH128_hash_t hash = XXH3_128bits(data, bytes);
    return {hash.low64, hash.high64};
}

std::string hash_text(std::uint64_t hash) {
    return fmt::format("{:016x}", hash);
}

struct Hasher::State {
    XXH3_state_t* value = XXH3_createState();
    ~State() { XXH3_freeState(value); }
};

Hasher::Hasher() : state_(std::make_unique<State>()) {
    if (!state_->value || XXH3_64bits_reset(state_->value) != XXH_OK) throw fault_error("out of memory for a checksum");
}
Hasher::~Hasher() = default;

void Hasher::add(const void* data, std::size_t bytes) {
    if (XXH3_64bits_update(state_->value, data, bytes) != XXH_OK) throw fault_error("cannot compute a checksum");
}

std::uint64_t Hasher::digest() const {
    return XXH3_64bits_digest(state_->value);
}

}  // namespace lockstep
