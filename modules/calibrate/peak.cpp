#include "calibrate/peak.hpp"

#include <array>

#include "device/memory.hpp"

namespace lockstep::calibrate {
namespace {

struct KnownGpu {
    const char* name;  // part of what the driver calls it
    double tflops;     // dense bf16 and fp16 products, without sparsity; the vendors' data sheets
};
constexpr std::array<KnownGpu, 4> known_gpus = {{{"A100", 312}, {"H100 PCIe", 756}, {"H100", 989.4}, {"H200", 989.4}}};

constexpr std::int64_t smallest_size = 128, largest_size = 8192;

}  // namespace

MeasuredRate measure_products(layout::Devices& devices, Type type, double seconds) {
    kernels::Backend& backend = *devices.backend;
    Tensor a, b, c;
    Arena memory;
    std::int64_t planned_size = 0;
    MeasuredRate best;
    best_rate(smallest_size, largest_size, 2, seconds, [&](std::int64_t size) {
        if (size != planned_size)
            memory = planned(backend.device(), "a measurement", [&](Arena& arena) {
                for (Tensor* matrix : {&a, &b, &c}) *matrix = arena.allocate(type, {size, size});
            });
        planned_size = size;
        const double took = seconds_of(backend, [&] {
            backend.product(c, a, kernels::Transpose::no, b, kernels::Transpose::yes, kernels::Accumulate::no);
        });
        const MeasuredRate product = {2.0 * static_cast<double>(size * size * size) / took, 0, took};
        keep_best(best, product);
        return product;
    });
    return best;
}

Peak find_peak(layout::Devices& devices, Type compute, double given_tflops, double measured_flops) {
    if (given_tflops > 0) return {given_tflops * 1e12, "given"};
    if (devices.on_gpu() && compute != Type::fp32)
        for (const KnownGpu& gpu : known_gpus)
            if (devices.name.find(gpu.name) != std::string::npos)
                return {gpu.tflops * 1e12, "the vendor's figure for this GPU"};
    const double flops = measured_flops > 0 ? measured_flops : measure_products(devices, compute, 0).per_second;
    return {flops, "measured by matrix products"};
}

}  // namespace lockstep::calibrate
