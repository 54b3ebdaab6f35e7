// Times the GPU's kernels at the sizes of real models and sets each against what this GPU gave in the same run: a
// product of 8192 x 8192 matrices in bf16 for arithmetic, a copy of 2 GiB for memory. Inputs are random; every kernel
// goes round several sets of tensors, together larger than the cache. Times are medians of batches of launches between
// two events.
//
//   bench_gpu_kernels [--filter TEXT] [--repetitions N] [--format text|markdown|csv|json]
#include <cuda_runtime.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/table.hpp"
#include "device/cuda/check.hpp"
#include "device/cuda/context.hpp"
#include "device/gpu.hpp"
#include "gpu_operations.hpp"
#include "kernels/cuda.hpp"

using namespace lockstep;
using namespace lockstep::bench;
using namespace lockstep::kernels;

namespace {

constexpr std::size_t cycled_bytes = std::size_t{256} << 20;  // more than any cache

struct Options {
    std::string filter, format = "text";
    int repetitions = 20;
};

class Suite {
  public:
    Suite(const Options& options, std::shared_ptr<CudaContext> context)
        : options_(options),
          context_(std::move(context)),
          backend_(make_cuda_backend(context_)),
          operations_(*backend_),
          table_({{"kernel", "kernel"},
                  {"shape", "shape"},
                  {"type", "type"},
                  {"microseconds", "time, us", 1},
                  {"spread", "spread", 3},
                  {"megabytes", "MB", 1},
                  {"gigaflop", "GFLOP", 2},
                  {"gigabytes_per_second", "GB/s", 0},
                  {"teraflop_per_second", "TFLOP/s", 1},
                  {"share_of_limit", "share of limit", 3}}) {
        for (cudaEvent_t* event : {&begin_, &end_}) check_cuda(cudaEventCreate(event), "an event of the benchmark");
        measure_limits();
    }
    ~Suite() {
        for (cudaEvent_t event : {begin_, end_}) static_cast<void>(cudaEventDestroy(event));
    }
    Suite(const Suite&) = delete;
    Suite& operator=(const Suite&) = delete;

    void time_all();
    void print() const;

  private:
    struct Time {
        double seconds = 0, spread = 0;  // median; (largest - smallest) / median
    };
    Time time(const Setup& setup) {
        Arena measure(backend_->device());
        setup(measure);
        const std::size_t sets =
            std::clamp<std::size_t>(cycled_bytes / std::max<std::size_t>(measure.peak(), 1), 1, 16);
        std::vector<Arena> arenas;
        std::vector<Run> runs;
        for (std::size_t i = 0; i < sets; ++i) {
            arenas.emplace_back(backend_->device(), measure.peak(), "a benchmark");
            runs.push_back(setup(arenas.back()));
        }
        const auto batch = [&](int launches) {
            check_cuda(cudaEventRecord(begin_, context_->compute()), "an event of the benchmark");
            for (int i = 0; i < launches; ++i) runs[next_++ % runs.size()]();
            check_cuda(cudaEventRecord(end_, context_->compute()), "an event of the benchmark");
            check_cuda(cudaEventSynchronize(end_), "a benchmark");
            float milliseconds = 0;
            check_cuda(cudaEventElapsedTime(&milliseconds, begin_, end_), "an event of the benchmark");
            return static_cast<double>(milliseconds) * 1e-3 / launches;
        };
        batch(static_cast<int>(2 * runs.size()));
        // So many launches a batch that the events do not show.
        const int launches = std::clamp(static_cast<int>(2e-3 / batch(4)), 4, 400);
        std::vector<double> times;
        for (int i = 0; i < options_.repetitions; ++i) times.push_back(batch(launches));
        std::sort(times.begin(), times.end());
        const double median = times[times.size() / 2];
        return {median, (times.back() - times.front()) / median};
    }

    void add(const GpuOperation& one) {
        if ((one.name + " " + one.shape).find(options_.filter) == std::string::npos) return;
        const Time taken = time(one.setup);
        const double limit = std::max(one.bytes / bytes_per_second_, one.flop / flop_per_second_);
        table_.add_row({one.name, one.shape, std::string(type_name(one.type)), taken.seconds * 1e6, taken.spread,
                        one.bytes * 1e-6, one.flop * 1e-9, one.bytes / taken.seconds * 1e-9,
                        one.flop / taken.seconds * 1e-12, limit / taken.seconds});
        std::fprintf(stderr, "%s %s\n", one.name.c_str(), one.shape.c_str());
    }

    void measure_limits() {
        constexpr std::int64_t n = 8192, copied = std::int64_t{1} << 29;
        const Time product = time([&](Arena& arena) -> Run {
            const Tensor c = operations_.make(arena, Type::bf16, {n, n}),
                         a = operations_.make(arena, Type::bf16, {n, n});
            const Tensor b = operations_.make(arena, Type::bf16, {n, n});
            return [=, this] { backend_->product(c, a, Transpose::no, b, Transpose::yes, Accumulate::no); };
        });
        const Time copy = time([&](Arena& arena) -> Run {
            const Tensor y = operations_.make(arena, Type::fp32, {copied}),
                         x = operations_.make(arena, Type::fp32, {copied});
            return [=, this] { backend_->copy(y, x); };
        });
        flop_per_second_ = 2.0 * n * n * n / product.seconds;
        bytes_per_second_ = 8.0 * copied / copy.seconds;
    }

    Options options_;
    std::shared_ptr<CudaContext> context_;
    std::unique_ptr<Backend> backend_;
    GpuOperations operations_;
    Table table_;
    cudaEvent_t begin_ = nullptr, end_ = nullptr;
    std::size_t next_ = 0;
    double flop_per_second_ = 1, bytes_per_second_ = 1;
};

void Suite::time_all() {
    constexpr std::int64_t n = 32768, vocabulary = 50304;
    for (const Type type : {Type::bf16, Type::fp16}) {
        operations_.attention({8, 2048, 2048, 16, 16, 128}, type);
        operations_.ttt({false, 16, 2048, 12, 64, 16}, type);
    }
    const Type type = Type::bf16;
    operations_.products(n, 768, 768, type);
    operations_.products(n, 768, 3072, type);
    operations_.products(n, 3072, 768, type);
    operations_.products(8192, 768, vocabulary, type);
    operations_.products(n, 1536, 8960, type);
    operations_.norms(n, 768, type);
    operations_.norms(n, 2048, type);
    operations_.activations(n, 3072, type);
    operations_.small_operations(n, 768, type);
    operations_.embedding(n, 768, vocabulary, type);
    operations_.head(5337, vocabulary, type);
    operations_.head(1766, 151936, type);
    operations_.optimizer(124475904, type);
    for (const std::int64_t length : {512, 1024, 4096})
        operations_.attention({n / length, length, length, 12, 12, 64}, type);
    operations_.attention({8, 2048, 2048, 12, 12, 96}, type);
    operations_.attention({8, 2048, 2048, 16, 4, 128}, type);
    operations_.attention({8, 4096, 4096, 12, 12, 64, 0, 512}, type);
    operations_.attention({8, 4096, 4096, 12, 12, 64, 0, 0, 50}, type);
    operations_.ttt({false, 16, 128, 12, 64, 16}, type);
    operations_.ttt({false, 32, 2048, 16, 96, 16}, type);
    operations_.delta({16, 2048, 12, 12, 64, 64}, type);
    operations_.delta({1, 32768, 12, 12, 64, 64}, type);
    operations_.delta({8, 2048, 32, 16, 128, 128}, type);  // of Qwen3-Next
    operations_.ttt({true, 16, 128, 12, 64, 16}, type);
    operations_.ttt({true, 16, 2048, 12, 64, 16}, type);
    operations_.attention({2, 1024, 1024, 12, 12, 64}, Type::fp32);
    operations_.delta({16, 512, 12, 12, 64, 64}, Type::fp32);
    operations_.ttt({false, 16, 512, 12, 64, 16}, Type::fp32);
    operations_.ttt({true, 16, 512, 12, 64, 16}, Type::fp32);
    for (const GpuOperation& one : operations_.list()) add(one);
}

void Suite::print() const {
    std::printf("%s: products %.0f TFLOP/s (bf16, 8192 x 8192 x 8192, random values), copies %.0f GB/s\n\n",
                context_->properties().name, flop_per_second_ * 1e-12, bytes_per_second_ * 1e-9);
    std::fputs(table_.print(table_format(options_.format)).c_str(), stdout);
}

void run(const Options& options) {
    const Gpus gpus = find_gpus();
    if (gpus.list.empty()) throw usage_error("no GPU to measure: {}", gpus.why_none);
    Suite suite(options, open_gpu(gpus.list.front().index));
    suite.time_all();
    suite.print();
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App program("Times the GPU's kernels against the limits of this GPU, measured in the same run");
    program.add_option("--filter", options.filter, "Only rows whose kernel and shape contain this text");
    program.add_option("--repetitions", options.repetitions, "Batches per kernel; the median is shown")
        ->check(CLI::PositiveNumber);
    program.add_option("--format", options.format, "text, markdown, csv or json");
    CLI11_PARSE(program, argc, argv);
    try {
        run(options);
    } catch (const Error& error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return static_cast<int>(error.code());
    }
}
