// What a benchmark of kernels needs: tensors with values in them, the machine's limits, a report of the fastest run.
#pragma once

#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "base/clock.hpp"
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

struct Limits {
    double flop_per_second = 0, bytes_per_second = 0;
};

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

inline Tensor make(Arena& arena, const Shape& shape, double mean = 0, double deviation = 1) {
    const Tensor tensor = arena.allocate(Type::fp32, shape);
    if (arena.measuring()) return tensor;
    const RandomStream stream(1, "bench");
    float* x = tensor.fp32();
    const double half = deviation * 1.7320508;  // a uniform distribution of this deviation
    parallel_for(tensor.count(), 4096, [&](std::int64_t first, std::int64_t last, int) {
        for (std::int64_t i = first; i < last; ++i)
            x[i] = static_cast<float>(mean + half * (2 * stream.uniform(static_cast<std::uint64_t>(i)) - 1));
    });
    return tensor;
}

inline Tensor make_ids(Arena& arena, std::int64_t count, std::int64_t vocabulary) {
    const Tensor tensor = arena.allocate(Type::int32, {count});
    if (arena.measuring()) return tensor;
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

inline Setup product_of(Backend& backend, Shape c, Shape a, Transpose transpose_a, Shape b, Transpose transpose_b,
                        Accumulate accumulate) {
    return [=, &backend](Arena& arena) -> Run {
        const Tensor out = make(arena, c), left = make(arena, a), right = make(arena, b);
        return [=, &backend] { backend.product(out, left, transpose_a, right, transpose_b, accumulate); };
    };
}

inline Limits measure_limits(Backend& backend) {
    constexpr std::int64_t n = 2048, copied = std::int64_t{64} << 20;
    const Kernel product =
        prepare(product_of(backend, {n, n}, {n, n}, Transpose::no, {n, n}, Transpose::no, Accumulate::no));
    const Kernel copy = prepare([&](Arena& arena) -> Run {
        const Tensor y = arena.allocate(Type::fp32, {copied}), x = arena.allocate(Type::fp32, {copied});
        return [&backend, y, x] { backend.copy(y, x); };
    });
    return {2.0 * n * n * n / shortest(product.run, 10), 2.0 * 4 * copied / shortest(copy.run, 10)};
}

// Shows the fastest of a kernel's repetitions: the one that other work on the machine disturbed least.
class FastestReporter final : public benchmark::ConsoleReporter {
  public:
    FastestReporter() : ConsoleReporter(isatty(STDOUT_FILENO) ? OO_ColorTabular : OO_Tabular) {}

    void ReportRuns(const std::vector<Run>& runs) override {
        if (runs.empty() || runs.front().run_type == Run::RT_Aggregate) return;
        ConsoleReporter::ReportRuns({*std::min_element(runs.begin(), runs.end(), [](const Run& a, const Run& b) {
            return a.GetAdjustedRealTime() < b.GetAdjustedRealTime();
        })});
    }
};

}  // namespace lockstep::bench
