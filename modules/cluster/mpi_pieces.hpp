// MPI counts are ints: larger messages go in pieces, cut alike on both sides.
#pragma once

#include <algorithm>
#include <cstddef>

#include "cluster/communicator.hpp"

namespace lockstep::cluster {

// Bytes of the largest piece, a multiple of every element's size: 256 MiB, or LOCKSTEP_MPI_PIECE_BYTES, with which
// tests cut small messages.
std::size_t largest_piece();

// Of a reduction. The bytes of two are under way at one time, at most.
inline std::size_t largest_reduced_piece() {
    return std::min(largest_piece(), most_reduced_at_once / 2);
}

// Calls send(data, count) for each piece of `count` elements of `element` bytes.
template <class Function>
void for_each_piece(void* data, std::size_t count, std::size_t element, Function&& send,
                    std::size_t largest = largest_piece()) {
    const std::size_t step = largest / element;
    for (std::size_t first = 0; first < count; first += step)
        send(static_cast<char*>(data) + first * element, static_cast<int>(std::min(step, count - first)));
}

}  // namespace lockstep::cluster
