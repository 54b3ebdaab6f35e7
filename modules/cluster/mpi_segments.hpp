// MPI counts are ints: larger messages are segmented, identically on both sides.
#pragma once

#include <algorithm>
#include <cstddef>

#include "cluster/communicator.hpp"

namespace lockstep::cluster {

// Maximum bytes of a segment, a multiple of every element size: 256 MiB, or LOCKSTEP_MPI_PIECE_BYTES, with which tests
// segment small messages.
std::size_t largest_segment();

// For reductions, of which at most two segments are in flight.
inline std::size_t largest_reduced_segment() {
    return std::min(largest_segment(), most_reduced_at_once / 2);
}

// Calls send(data, count) for each segment of `count` elements of `element` bytes.
template <class Function>
void for_each_segment(void* data, std::size_t count, std::size_t element, Function&& send,
                      std::size_t largest = largest_segment()) {
    const std::size_t step = largest / element;
    for (std::size_t first = 0; first < count; first += step)
        send(static_cast<char*>(data) + first * element, static_cast<int>(std::min(step, count - first)));
}

}  // namespace lockstep::cluster
