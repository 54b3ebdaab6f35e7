// What a benchmark of kernels needs: tensors with values in them, and the machine's limits.
#pragma once

#include <cstdint>
#include <functional>

#include "base/clock.hpp"
#include "base/float16.hpp"
#include "base/random.hpp"
#include "device/memory.hpp"
#include "device/parallel.hpp"
#include "kernels/backend.hpp"

namespace lockstep::bench {

using kernels::Accumulate;
using kernels::Backend;
using kernels::Transpose;

// Cuts the kernel's tensors from the arena, once measuring and once for good, and returns one run of the kernel.
using Run = std::function<void()>;
using Setup = std::function<Run(Arena&)>;

struct Kernel {
    Arena arena;
    Run run;
};

inline Kernel prepare(const Setup& setup) {
    Arena measure;
    setup(measure);
    Kernel kernel;
    kernel.arena = Arena(Device{}, measure.peak(), "a benchmark");
    kernel.run = setup(kernel.arena);
    return kernel;
}

// fp32 or bf16, from a uniform distribution.
inline Tensor make(Arena& arena, Type type, const Shape& shape, double mean = 0, double deviation = 1) {
    const Tensor tensor = arena.allocate(type, shape);
    if (!arena.data()) return tensor;
    const RandomStream stream(1, "bench");
    const double half = deviation * 1.7320508;
    const auto value = [&](std::int64_t i) {
        return static_cast<float>(mean + half * (2 * stream.uniform(static_cast<std::uint64_t>(i)) - 1));
    };
    parallel_for(tensor.count(), 4096, [&](std::int64_t first, std::int64_t last, int) {
        if (type == Type::bf16) {
            auto* x = static_cast<std::uint16_t*>(tensor.data());
            for (std::int64_t i = first; i < last; ++i) x[i] = bf16_bits(value(i));
        } else {
            float* x = tensor.fp32();
            for (std::int64_t i = first; i < last; ++i) x[i] = value(i);
        }
    });
    return tensor;
}

inline Tensor make(Arena& arena, const Shape& shape, double mean = 0, double deviation = 1) {
    return make(arena, Type::fp32, shape, mean, deviation);
}

inline Tensor make_ids(Arena& arena, std::int64_t count, std::int64_t vocabulary) {
    const Tensor tensor = arena.allocate(Type::int32, {count});
    if (!arena.data()) return tensor;
    const RandomStream stream(1, "ids");
    for (std::int64_t i = 0; i < count; ++i)
        tensor.as<std::int32_t>()[i] =
            static_cast<std::int32_t>(stream.uniform(static_cast<std::uint64_t>(i)) * static_cast<double>(vocabulary));
    return tensor;
}

inline double shortest(const Run& run, int times) {
    double best = 0;
    for (int i = 0; i <= times; ++i) {  // the first does not count
        const double start = seconds_now();
        run();
        const double seconds = seconds_now() - start;
        if (i == 1 || (i > 1 && seconds < best)) best = seconds;
    }
    return best;
}

// Accumulated gradients of parameters are fp32, whatever the type of what is multiplied.
inline Setup product_of(Backend& backend, Type type, Shape c, Shape a, Transpose transpose_a, Shape b,
                        Transpose transpose_b, Accumulate accumulate) {
    const Type out_type = accumulate == Accumulate::yes ? Type::fp32 : type;
    return [=, &backend](Arena& arena) -> Run {
        const Tensor out = make(arena, out_type, c), left = make(arena, type, a), right = make(arena, type, b);
        return [=, &backend] { backend.product(out, left, transpose_a, right, transpose_b, accumulate); };
    };
}

// The best rate of a large product of square matrices. Several sizes are tried: rows whose length is a power of two
// meet in the same sets of a cache.
struct ProductRate {
    double flop_per_second = 0;
    std::int64_t size = 0;
};

inline ProductRate measure_product(Backend& backend, Type type, int times) {
    ProductRate best;
    for (const std::int64_t n : {1920, 2048, 2304, 2560}) {
        const Kernel product =
            prepare(product_of(backend, type, {n, n}, {n, n}, Transpose::no, {n, n}, Transpose::no, Accumulate::no));
        const double size = static_cast<double>(n), rate = 2 * size * size * size / shortest(product.run, times);
        if (rate > best.flop_per_second) best = {rate, n};
    }
    return best;
}

// Bytes read plus bytes written by a copy of 256 MiB.
inline double measure_copy(Backend& backend) {
    constexpr std::int64_t copied = std::int64_t{64} << 20;
    const Kernel copy = prepare([&](Arena& arena) -> Run {
        const Tensor y = arena.allocate(Type::fp32, {copied}), x = arena.allocate(Type::fp32, {copied});
        return [&backend, y, x] { backend.copy(y, x); };
    });
    return 2.0 * 4 * copied / shortest(copy.run, 10);
}

}  // namespace lockstep::bench
