#include "cost/product_time.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace lockstep::cost {
namespace {

// Of A100 and H100 the fastest kernels for long sums have tiles of these sizes, and smaller ones for small products,
// which reach less because they read more a product.
struct Tile {
    double rows, columns, efficiency;
};
constexpr std::array<Tile, 4> tiles = {{{256, 128, 1.0}, {128, 256, 1.0}, {128, 128, 0.9}, {64, 64, 0.6}}};

// Of the rate of a large single product, where libraries still use tensor cores for rows that are not aligned. Assumed.
constexpr double unaligned_share = 1.0 / 3;

// Tiles computed, as whole ones, over the whole device; counted in elements of C at the full rate.
double computed_elements(double units, const Product& product) {
    double least = 0;
    for (const Tile& tile : tiles) {
        const double count =
            std::ceil(product.rows / tile.rows) * std::ceil(product.columns / tile.columns) * product.batch;
        const double waves = std::ceil(count / units);
        const double elements = waves * units * tile.rows * tile.columns / tile.efficiency;
        if (least == 0 || elements < least) least = elements;
    }
    return least;
}

}  // namespace

bool is_aligned(config::Precision precision, std::int64_t inner) {
    return inner % (precision == config::Precision::fp32 ? 4 : 8) == 0;
}

double product_seconds(const config::Machine& machine, config::Precision precision, const Product& product) {
    const double wanted = 2 * product.rows * product.columns * product.batch * product.depth;
    if (wanted <= 0) return 0;
    const double peak = machine.peak_flops(precision) * machine.products.efficiency;
    if (!is_aligned(precision, product.inner)) {
        double rate = std::min(peak, machine.products.unaligned_tflops * 1e12);
        if (product.batch <= 1) rate = std::max(rate, unaligned_share * peak);
        return wanted / rate;
    }
    if (machine.device.units <= 1) return wanted / peak;
    return 2 * computed_elements(machine.device.units, product) * product.depth / peak;
}

}  // namespace lockstep::cost
