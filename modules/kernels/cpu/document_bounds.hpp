// Where a token's document begins and ends, as the CPU's operations read it.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/backend.hpp"

namespace lockstep::kernels::cpu {

class DocumentBounds {
  public:
    explicit DocumentBounds(const Documents& documents) {
        if (documents.joined()) return;
        starts_ = documents.starts.as<std::int32_t>();
        ends_ = documents.ends.as<std::int32_t>();
        positions_ = documents.starts.size(1);
        first_ = documents.first_position;
    }
    bool joined() const { return starts_ == nullptr; }
    // Of the document of a sequence's token, counted from the operation's first token: its first token, which may be
    // negative, and the one behind its last. Joined: far away.
    std::int64_t begin(std::int64_t sequence, std::int64_t token) const {
        return joined() ? -far : starts_[sequence * positions_ + first_ + token] - first_;
    }
    std::int64_t end(std::int64_t sequence, std::int64_t token) const {
        return joined() ? far : ends_[sequence * positions_ + first_ + token] - first_;
    }

  private:
    static constexpr std::int64_t far = std::numeric_limits<std::int64_t>::max() / 2;
    const std::int32_t *starts_ = nullptr, *ends_ = nullptr;
    std::int64_t positions_ = 0, first_ = 0;
};

}  // namespace lockstep::kernels::cpu
