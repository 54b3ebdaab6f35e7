// A flat tensor divided into one part per rank.
#pragma once

#include <cstdint>
#include <vector>

#include "device/tensor.hpp"

namespace lockstep::cluster {

// The arguments of begin_reduce_scatter and begin_all_gather as flat tensors in rank order; asserts that the cuts fit.
std::vector<Tensor> parts_of(Tensor values, const std::vector<std::int64_t>& cuts, int ranks);

}  // namespace lockstep::cluster
