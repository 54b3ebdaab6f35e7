#include "calibrate/peak.hpp"

#include <algorithm>
#include <array>

#include "base/clock.hpp"

namespace lockstep::calibrate {
namespace {

struct KnownGpu {
    const char* name;  // part of what the driver calls it
    double tflops;     // dense bf16 and fp16 products, without sparsity; the vendors' data sheets
};
constexpr std::array<KnownGpu, 4> known_gpus = {{{"A100", 312}, {"H100 PCIe", 756}, {"H100", 989.4}, {"H200", 989.4}}};

// Products grow until one takes so long, or is so large.
constexpr double long_enough_seconds = 2e-3;
constexpr std::int64_t smallest_size = 128, largest_size = 8192;

}  // namespace

ProductRate measure_products(layout::Devices& devices, Type type, double seconds) {
    kernels::Backend& backend = *devices.backend;
    ProductRate best;
    for (std::int64_t size = smallest_size;; size *= 2) {
        Tensor a, b, c;
        const auto plan = [&](Arena& arena) {
            a = arena.allocate(type, {size, size});
            b = arena.allocate(type, {size, size});
            c = arena.allocate(type, {size, size});
        };
        Arena measure(backend.device());
        plan(measure);
        Arena memory(backend.device(), measure.peak(), "a measurement");
        plan(memory);
        const auto multiply = [&] {
            const double start = seconds_now();
            backend.product(c, a, kernels::Transpose::no, b, kernels::Transpose::yes, kernels::Accumulate::no);
            backend.synchronize();
            const double took = seconds_now() - start;
            const double flops = 2.0 * static_cast<double>(size * size * size) / took;
            if (flops > best.flops) best = {flops, took};
            return took;
        };
        multiply();  // a warm-up
        if (multiply() < long_enough_seconds && size < largest_size) continue;
        for (double spent = 0; spent < seconds;) spent += multiply();
        return best;
    }
}

Peak find_peak(layout::Devices& devices, Type compute, double given_tflops, double measured_flops) {
    if (given_tflops > 0) return {given_tflops * 1e12, "given"};
    if (devices.on_gpu() && compute != Type::fp32)
        for (const KnownGpu& gpu : known_gpus)
            if (devices.name.find(gpu.name) != std::string::npos)
                return {gpu.tflops * 1e12, "the vendor's for this GPU"};
    const double flops = measured_flops > 0 ? measured_flops : measure_products(devices, compute, 0).flops;
    return {flops, "measured by matrix products"};
}

}  // namespace lockstep::calibrate
