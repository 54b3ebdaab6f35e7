// A flat tensor cut into one part for each rank.
#pragma once

#include <cstdint>
#include <vector>

#include "device/tensor.hpp"

namespace lockstep::cluster {

// What begin_reduce_scatter and begin_all_gather are given, as flat tensors in rank order; asserts that the cuts fit.
std::vector<Tensor> parts_of(Tensor values, const std::vector<std::int64_t>& cuts, int ranks);

}  // namespace lockstep::cluster
