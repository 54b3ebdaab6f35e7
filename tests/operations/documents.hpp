// Documents that share sequences, for the tests of operations that keep them apart.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "operations/support.hpp"

namespace lockstep::operation_tests {

// Sequences of documents, each list the documents' lengths; all sequences are equally long.
class PackedDocuments {
  public:
    explicit PackedDocuments(const std::vector<std::vector<std::int64_t>>& sequences)
        : sequences_(static_cast<std::int64_t>(sequences.size())),
          positions_(std::accumulate(sequences.front().begin(), sequences.front().end(), std::int64_t{0})),
          starts_(Type::int32, {sequences_, positions_}),
          ends_(Type::int32, {sequences_, positions_}) {
        for (const auto& lengths : sequences)
            for (std::int64_t begin = 0; const std::int64_t length : lengths) {
                begins_.insert(begins_.end(), static_cast<std::size_t>(length), static_cast<double>(begin));
                begin += length;
                behind_.insert(behind_.end(), static_cast<std::size_t>(length), static_cast<double>(begin));
            }
        starts_.set(begins_);
        ends_.set(behind_);
    }

    std::int64_t sequences() const { return sequences_; }
    std::int64_t positions() const { return positions_; }
    // For an operation that begins at a position.
    kernels::Documents from(std::int64_t first_position) const { return {starts_, ends_, first_position}; }
    // Where the document of a position begins, counted from position `origin`; 0 if before it.
    std::size_t begin(std::size_t sequence, std::int64_t position, std::int64_t origin) const {
        const double begin =
            begins_[sequence * static_cast<std::size_t>(positions_) + static_cast<std::size_t>(position)];
        return static_cast<std::size_t>(std::max(begin - static_cast<double>(origin), 0.0));
    }
    // The same of `length` positions of every sequence.
    std::vector<std::size_t> begins(std::int64_t first_position, std::int64_t length, std::int64_t origin) const {
        std::vector<std::size_t> list;
        for (std::size_t s = 0; s < static_cast<std::size_t>(sequences_); ++s)
            for (std::int64_t t = 0; t < length; ++t) list.push_back(begin(s, first_position + t, origin));
        return list;
    }

  private:
    std::int64_t sequences_, positions_;
    OnDevice starts_, ends_;
    Values begins_, behind_;
};

}  // namespace lockstep::operation_tests
