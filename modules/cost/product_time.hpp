// The time of one matrix product on a described device.
#pragma once

#include <cstdint>
#include <string>

#include "config/machine.hpp"

namespace lockstep::cost {

// C [rows, columns] of sums of `depth` products, `batch` of them at once. A GPU computes C in tiles, as many at a time
// as it has multiprocessors; the last of these waves takes as long as the others however few tiles it has. Rows and
// columns that do not fill their tiles are computed all the same (NVIDIA, "Matrix Multiplication Background": tile and
// wave quantization). Where `inner`, the length of rows in memory, is no multiple of 16 bytes, tensor cores are not
// used by batched products, and badly by single ones.
struct Product {
    double rows = 0, columns = 0, depth = 0;
    double batch = 1;
    std::int64_t inner = 0;  // 0: aligned
};
double product_seconds(const config::Machine& machine, config::Precision precision, const Product& product);
bool is_aligned(config::Precision precision, std::int64_t inner);

}  // namespace lockstep::cost
