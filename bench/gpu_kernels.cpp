// Times the GPU's kernels at the sizes of real models and sets each against what this GPU gave in the same run: a
// product of 8192 x 8192 matrices in bf16 for arithmetic, a copy of 2 GiB for memory. Inputs are random; every kernel
// goes round several sets of tensors, together larger than the cache. FLOP are those of the model
// (kernels/operation_work.hpp), but attention's backward has 2.5 times the forward; bytes are those of every tensor
// read or written once. Times are medians of batches of launches between two events.
//
//   bench_gpu_kernels [--filter TEXT] [--repetitions N] [--format text|markdown|csv|json]
#include <cuda_runtime.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "base/table.hpp"
#include "device/cuda/check.hpp"
#include "device/cuda/context.hpp"
#include "device/gpu.hpp"
#include "kernels/cuda.hpp"
#include "kernels/operation_work.hpp"

using namespace lockstep;
using namespace lockstep::kernels;

namespace {

constexpr std::size_t cycled_bytes = std::size_t{256} << 20;  // more than any cache

struct Options {
    std::string filter, format = "text";
    int repetitions = 20;
};

using Run = std::function<void()>;
using Setup = std::function<Run(Arena&)>;  // cuts the tensors, once measuring and once for good

class Suite {
  public:
    Suite(const Options& options, std::shared_ptr<CudaContext> context)
        : options_(options),
          context_(std::move(context)),
          backend_(make_cuda_backend(context_)),
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
        random_.resize(std::size_t{1} << 20);
        const RandomStream stream(1, "bench");
        for (std::size_t i = 0; i < random_.size(); ++i) random_[i] = static_cast<float>(stream.normal(i));
        measure_limits();
    }
    ~Suite() {
        for (cudaEvent_t event : {begin_, end_}) static_cast<void>(cudaEventDestroy(event));
    }
    Suite(const Suite&) = delete;
    Suite& operator=(const Suite&) = delete;

    void products(std::int64_t n, std::int64_t in, std::int64_t out, Type type);
    void norms(std::int64_t n, std::int64_t d, Type type);
    void activations(std::int64_t n, std::int64_t d, Type type);
    void embedding(std::int64_t n, std::int64_t d, std::int64_t vocabulary, Type type);
    void small_operations(std::int64_t n, std::int64_t d, Type type);
    void head(std::int64_t rows, std::int64_t vocabulary, Type type);
    void optimizer(std::int64_t count, Type type);
    void attention(const AttentionShape& shape, Type type);
    void ttt(const TttShape& shape, Type type);
    void print() const;

  private:
    // Random values; not zeros, on which products run faster than on data.
    Tensor make(Arena& arena, Type type, const Shape& shape, double deviation = 1) {
        const Tensor tensor = arena.allocate(type, shape);
        if (arena.measuring()) return tensor;
        const std::int64_t count = tensor.count(), most = static_cast<std::int64_t>(random_.size());
        Arena stage(backend_->device(), random_.size() * sizeof(float), "random values");
        const Tensor values = stage.allocate(Type::fp32, {most});
        backend_->upload(values, random_.data());
        if (deviation != 1) backend_->scale(values, static_cast<float>(deviation));
        const Tensor flat = tensor.reshaped({count});
        for (std::int64_t first = 0; first < count; first += most) {
            const std::int64_t now = std::min(most, count - first);
            backend_->copy(flat.slice(first, now), values.slice(0, now));
        }
        backend_->synchronize();
        return tensor;
    }
    Tensor make_ids(Arena& arena, std::int64_t count, std::int64_t below) {
        const Tensor tensor = arena.allocate(Type::int32, {count});
        if (arena.measuring()) return tensor;
        std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
        const RandomStream stream(2, "ids");
        for (std::size_t i = 0; i < ids.size(); ++i)
            ids[i] = static_cast<std::int32_t>(stream.bits(i) % static_cast<std::uint64_t>(below));
        backend_->upload(tensor, ids.data());
        return tensor;
    }

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

    void add(const std::string& kernel, const std::string& shape, Type type, double bytes, double flop,
             const Setup& setup) {
        if ((kernel + " " + shape).find(options_.filter) == std::string::npos) return;
        const Time taken = time(setup);
        const double limit = std::max(bytes / bytes_per_second_, flop / flop_per_second_);
        table_.add_row({kernel, shape, std::string(type_name(type)), taken.seconds * 1e6, taken.spread, bytes * 1e-6,
                        flop * 1e-9, bytes / taken.seconds * 1e-9, flop / taken.seconds * 1e-12,
                        limit / taken.seconds});
        std::fprintf(stderr, "%s %s\n", kernel.c_str(), shape.c_str());
    }

    void measure_limits() {
        constexpr std::int64_t n = 8192, copied = std::int64_t{1} << 29;
        const Time product = time([&](Arena& arena) -> Run {
            const Tensor c = make(arena, Type::bf16, {n, n}), a = make(arena, Type::bf16, {n, n});
            const Tensor b = make(arena, Type::bf16, {n, n});
            return [=, this] { backend_->product(c, a, Transpose::no, b, Transpose::yes, Accumulate::no); };
        });
        const Time copy = time([&](Arena& arena) -> Run {
            const Tensor y = make(arena, Type::fp32, {copied}), x = make(arena, Type::fp32, {copied});
            return [=, this] { backend_->copy(y, x); };
        });
        flop_per_second_ = 2.0 * n * n * n / product.seconds;
        bytes_per_second_ = 8.0 * copied / copy.seconds;
    }

    Options options_;
    std::shared_ptr<CudaContext> context_;
    std::unique_ptr<Backend> backend_;
    Table table_;
    std::vector<float> random_;
    cudaEvent_t begin_ = nullptr, end_ = nullptr;
    std::size_t next_ = 0;
    double flop_per_second_ = 1, bytes_per_second_ = 1;
};

double size_of(Type type) {
    return static_cast<double>(type_bytes(type));
}

// y = x Wᵀ, dx = dy W, dW += dyᵀ x.
void Suite::products(std::int64_t n, std::int64_t in, std::int64_t out, Type type) {
    const std::string shape = fmt::format("{} x {} x {}", n, in, out);
    const double flop = 2.0 * static_cast<double>(n * in * out), bytes = size_of(type);
    const auto all = static_cast<double>(n * in + in * out + n * out);
    add("linear forward", shape, type, bytes * all, flop, [=, this](Arena& arena) -> Run {
        const Tensor y = make(arena, type, {n, out}), x = make(arena, type, {n, in}), w = make(arena, type, {out, in});
        return [=, this] { backend_->linear_forward(y, x, w, {}, {}); };
    });
    add("linear backward, inputs", shape, type, bytes * all, flop, [=, this](Arena& arena) -> Run {
        const Tensor dx = make(arena, type, {n, in}), dy = make(arena, type, {n, out});
        const Tensor w = make(arena, type, {out, in});
        return [=, this] { backend_->product(dx, dy, Transpose::no, w, Transpose::no, Accumulate::no); };
    });
    const double weights = bytes * static_cast<double>(n * in + n * out) + 8.0 * static_cast<double>(in * out);
    add("linear backward, weights", shape, type, weights, flop, [=, this](Arena& arena) -> Run {
        const Tensor dw = make(arena, Type::fp32, {out, in}), dy = make(arena, type, {n, out});
        const Tensor x = make(arena, type, {n, in});
        return [=, this] { backend_->product(dw, dy, Transpose::yes, x, Transpose::no, Accumulate::yes); };
    });
    add("linear with gelu forward", shape, type, bytes * (all + static_cast<double>(n * out)), flop,
        [=, this](Arena& arena) -> Run {
            const Tensor y = make(arena, type, {n, out}), before = make(arena, type, {n, out});
            const Tensor x = make(arena, type, {n, in}), w = make(arena, type, {out, in});
            const Tensor bias = make(arena, type, {out});
            return [=, this] { backend_->linear_gelu_forward(y, before, x, w, bias); };
        });
}

void Suite::norms(std::int64_t n, std::int64_t d, Type type) {
    const std::string shape = fmt::format("{} x {}", n, d);
    const double pass = size_of(type) * static_cast<double>(n * d);
    for (const bool centred : {false, true})
        for (const bool fused : {false, true})
            add(fmt::format("{} norm forward{}", centred ? "layer" : "rms", fused ? " with residual" : ""), shape, type,
                (fused ? 4 : 2) * pass, 0, [=, this](Arena& arena) -> Run {
                    const Tensor y = make(arena, type, {n, d}), x = make(arena, type, {n, d});
                    const Tensor residual = fused ? make(arena, type, {n, d}, 1e-6) : Tensor();
                    const Tensor w = make(arena, Type::fp32, {d}), bias = make(arena, Type::fp32, {d});
                    const Tensor mean = make(arena, Type::fp32, {n}), inverse = make(arena, Type::fp32, {n});
                    return [=, this] {
                        if (centred)
                            backend_->layer_norm_forward(y, mean, inverse, x, residual, w, bias, 1e-5f);
                        else
                            backend_->rms_norm_forward(y, inverse, x, residual, w, 1e-6f);
                    };
                });
    for (const bool centred : {false, true})
        add(centred ? "layer norm backward" : "rms norm backward", shape, type, 4 * pass, 0,
            [=, this](Arena& arena) -> Run {
                const Tensor dx = make(arena, type, {n, d}), dy = make(arena, type, {n, d}, 1e-3);
                const Tensor x = make(arena, type, {n, d}), w = make(arena, Type::fp32, {d});
                const Tensor dw = make(arena, Type::fp32, {d}), dbias = make(arena, Type::fp32, {d});
                const Tensor mean = make(arena, Type::fp32, {n}, 0.1), inverse = make(arena, Type::fp32, {n}, 0.1);
                return [=, this] {
                    if (centred)
                        backend_->layer_norm_backward(dx, dw, dbias, dy, x, w, mean, inverse);
                    else
                        backend_->rms_norm_backward(dx, dw, dy, x, w, inverse);
                };
            });
}

void Suite::activations(std::int64_t n, std::int64_t d, Type type) {
    const std::string shape = fmt::format("{} x {}", n, d);
    const double pass = size_of(type) * static_cast<double>(n * d);
    const auto flat = [&](const char* name, int tensors, auto call) {
        add(name, shape, type, tensors * pass, 0, [=, this](Arena& arena) -> Run {
            std::vector<Tensor> t;
            for (int i = 0; i < tensors; ++i) t.push_back(make(arena, type, {n, d}));
            return [=, this] { call(*backend_, t); };
        });
    };
    using T = const std::vector<Tensor>&;
    flat("gelu forward", 2, [](Backend& b, T t) { b.gelu_forward(t[0], t[1]); });
    flat("gelu backward", 3, [](Backend& b, T t) { b.gelu_backward(t[0], t[1], t[2]); });
    flat("swiglu forward", 3, [](Backend& b, T t) { b.swiglu_forward(t[0], t[1], t[2]); });
    flat("swiglu backward", 5, [](Backend& b, T t) { b.swiglu_backward(t[0], t[1], t[2], t[3], t[4]); });
    flat("copy", 2, [](Backend& b, T t) { b.copy(t[0], t[1]); });
    flat("add", 2, [](Backend& b, T t) { b.add(t[0], t[1]); });
}

void Suite::embedding(std::int64_t n, std::int64_t d, std::int64_t vocabulary, Type type) {
    const std::string shape = fmt::format("{} x {} of {}", n, d, vocabulary);
    const double pass = size_of(type) * static_cast<double>(n * d);
    add("embedding forward", shape, type, 2 * pass, 0, [=, this](Arena& arena) -> Run {
        const Tensor y = make(arena, type, {n, d}), table = make(arena, type, {vocabulary, d});
        const Tensor ids = make_ids(arena, n, vocabulary);
        return [=, this] { backend_->embedding_forward(y, ids, table, 0, {}, n, 0); };
    });
    const double touched = 8.0 * static_cast<double>(std::min(n, vocabulary) * d);
    add("embedding backward", shape, type, pass + touched, 0, [=, this](Arena& arena) -> Run {
        const Tensor dy = make(arena, type, {n, d}), dtable = make(arena, Type::fp32, {vocabulary, d});
        const Tensor ids = make_ids(arena, n, vocabulary);
        return [=, this] { backend_->embedding_backward(dtable, {}, ids, dy, 0, n); };
    });
}

void Suite::small_operations(std::int64_t n, std::int64_t d, Type type) {
    const std::string shape = fmt::format("{} x {}", n, d);
    const double pass = size_of(type) * static_cast<double>(n * d);
    constexpr std::int64_t length = 1024, head_width = 64;
    add("rotate", shape, type, 2 * pass, 0, [=, this](Arena& arena) -> Run {
        const Tensor x = make(arena, type, {n, d}), cosine = make(arena, Type::fp32, {length, head_width / 2});
        const Tensor sine = make(arena, Type::fp32, {length, head_width / 2});
        return [=, this] { backend_->rotate(x, cosine, sine, length, 0, RotaryPairs::halves, false); };
    });
    add("convolution forward", shape, type, 2 * pass, 0, [=, this](Arena& arena) -> Run {
        const Tensor y = make(arena, type, {n, d}), x = make(arena, type, {n, d});
        const Tensor w = make(arena, Type::fp32, {d, 1, 4}), bias = make(arena, Type::fp32, {d});
        return [=, this] { backend_->convolution_forward(y, x, w, bias, {}, length); };
    });
    add("convolution backward", shape, type, 3 * pass, 0, [=, this](Arena& arena) -> Run {
        const Tensor dx = make(arena, type, {n, d}), dy = make(arena, type, {n, d}), x = make(arena, type, {n, d});
        const Tensor w = make(arena, Type::fp32, {d, 1, 4}), dw = make(arena, Type::fp32, {d, 1, 4});
        const Tensor dbias = make(arena, Type::fp32, {d});
        return [=, this] { backend_->convolution_backward(dx, dw, dbias, dy, x, w, length); };
    });
    add("bias backward", shape, type, pass, 0, [=, this](Arena& arena) -> Run {
        const Tensor dbias = make(arena, Type::fp32, {d}), dy = make(arena, type, {n, d});
        return [=, this] { backend_->bias_backward(dbias, dy); };
    });
}

void Suite::head(std::int64_t rows, std::int64_t vocabulary, Type type) {
    const double bytes = 2 * size_of(type) * static_cast<double>(rows * vocabulary);
    add("cross entropy", fmt::format("{} x {}", rows, vocabulary), type, bytes, 0, [=, this](Arena& arena) -> Run {
        const Tensor losses = make(arena, Type::fp32, {rows}), logits = make(arena, type, {rows, vocabulary});
        const Tensor targets = make_ids(arena, rows, vocabulary);
        return [=, this] { backend_->cross_entropy(losses, logits, targets, 1.0f, {}); };
    });
}

void Suite::optimizer(std::int64_t count, Type type) {
    const auto all = static_cast<double>(count);
    const std::string shape = fmt::format("{}", count);
    add("adamw", shape, type, (28 + size_of(type)) * all, 0, [=, this](Arena& arena) -> Run {
        std::vector<Tensor> t;
        for (int i = 0; i < 4; ++i) t.push_back(make(arena, Type::fp32, {count}, 0.1));
        const Tensor working = make(arena, type, {count});
        const Tensor decays = make_ids(arena, kernels::DecayBits::words_for(count), 1 << 30);
        const Tensor decision = arena.allocate(Type::fp64, {kernels::Decision::places});
        if (!arena.measuring()) backend_->fill(decision, 1);
        return [=, this] {
            backend_->adamw(t[0], working, t[1], t[2], t[3], decays, decision, {1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f});
        };
    });
    add("sum of squares", shape, Type::fp32, 4 * all, 0, [=, this](Arena& arena) -> Run {
        const Tensor x = make(arena, Type::fp32, {count}), totals = arena.allocate(Type::fp64, {2});
        return [=, this] { backend_->sum_of_squares(totals, x, Accumulate::no); };
    });
}

void Suite::attention(const AttentionShape& shape, Type type) {
    const std::int64_t n = shape.batch * shape.query_length, d = shape.heads * shape.head_width;
    const std::int64_t dk = shape.key_heads * shape.head_width;
    const std::string text = fmt::format("{} x {}, {} / {} heads of {}", shape.batch, shape.query_length, shape.heads,
                                         shape.key_heads, shape.head_width);
    const double flop = attention_work(shape, type, false).flop;
    const double pass = size_of(type) * static_cast<double>(n);
    add("attention forward", text, type, pass * static_cast<double>(2 * d + 2 * dk), flop,
        [=, this](Arena& arena) -> Run {
            const Tensor y = make(arena, type, {n, d}), q = make(arena, type, {n, d}), k = make(arena, type, {n, dk});
            const Tensor v = make(arena, type, {n, dk});
            const Tensor lse = make(arena, Type::fp32, {shape.batch, shape.heads, shape.query_length});
            return [=, this] { backend_->attention_forward(y, lse, q, k, v, shape); };
        });
    add("attention backward", text, type, pass * static_cast<double>(4 * d + 4 * dk), 2.5 * flop,
        [=, this](Arena& arena) -> Run {
            const Tensor y = make(arena, type, {n, d}), q = make(arena, type, {n, d}), k = make(arena, type, {n, dk});
            const Tensor v = make(arena, type, {n, dk}), dy = make(arena, type, {n, d}, 1e-2);
            const Tensor dq = make(arena, type, {n, d}), dk_out = make(arena, type, {n, dk});
            const Tensor dv = make(arena, type, {n, dk});
            const Tensor lse = make(arena, Type::fp32, {shape.batch, shape.heads, shape.query_length});
            if (!arena.measuring()) backend_->attention_forward(y, lse, q, k, v, shape);
            return [=, this] { backend_->attention_backward(dq, dk_out, dv, dy, q, k, v, y, lse, shape); };
        });
}

void Suite::ttt(const TttShape& shape, Type type) {
    const std::int64_t n = shape.batch * shape.length, H = shape.heads, f = shape.head_width, g = shape.hidden();
    const std::int64_t b = shape.mini_batch, d = H * f;
    const std::string name = shape.mlp ? "ttt-mlp" : "ttt-linear";
    const std::string text = fmt::format("{} x {}, {} heads of {}", shape.batch, shape.length, H, f);
    const double flop = ttt_work(shape, type, false).flop;
    const double pass = size_of(type) * static_cast<double>(n * d);
    const auto prepare = [=, this](Arena& arena, bool backward) -> Run {
        const auto tensor = [&](const Shape& of, double deviation = 1) { return make(arena, type, of, deviation); };
        const auto learned = [&](const Shape& of, double deviation) { return make(arena, Type::fp32, of, deviation); };
        const Tensor y = tensor({n, d}), q = tensor({n, d}, 0.3), k = tensor({n, d}, 0.3), v = tensor({n, d}, 0.3);
        const Tensor step = learned({n, H}, 1e-3), scale = learned({b}, 0.1);
        const auto inner_of = [&](double deviation) {
            return TttInner{learned({H, f, g}, deviation),
                            learned({H, 1, g}, deviation),
                            shape.mlp ? learned({H, g, f}, deviation) : Tensor(),
                            shape.mlp ? learned({H, 1, f}, deviation) : Tensor(),
                            learned({H, f}, deviation),
                            learned({H, f}, deviation)};
        };
        const TttInner inner = inner_of(0.02);
        const Tensor saved = learned({backend_->ttt_saved_count(shape)}, 1);
        if (!backward)
            return [=, this] { backend_->ttt_forward(y, saved, q, k, v, step, scale, inner, {}, {}, shape); };
        const Tensor dy = tensor({n, d}, 1e-2), dq = tensor({n, d}), dk = tensor({n, d}), dv = tensor({n, d});
        const Tensor dstep = learned({n, H}, 1), dscale = learned({b}, 1);
        const TttInner dinner = inner_of(1);
        if (!arena.measuring()) backend_->ttt_forward(y, saved, q, k, v, step, scale, inner, {}, {}, shape);
        return [=, this] {
            backend_->ttt_backward(dq, dk, dv, dstep, dscale, dinner, {}, dy, saved, q, k, v, step, scale, inner, {},
                                   {}, shape);
        };
    };
    add(name + " forward", text, type, 4 * pass, flop, [=](Arena& arena) { return prepare(arena, false); });
    add(name + " backward", text, type, 8 * pass, 2 * flop, [=](Arena& arena) { return prepare(arena, true); });
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
    constexpr std::int64_t n = 32768, vocabulary = 50304;
    for (const Type type : {Type::bf16, Type::fp16}) {
        suite.attention({8, 2048, 2048, 16, 16, 128}, type);
        suite.ttt({false, 16, 2048, 12, 64, 16}, type);
    }
    const Type type = Type::bf16;
    suite.products(n, 768, 768, type);
    suite.products(n, 768, 3072, type);
    suite.products(n, 3072, 768, type);
    suite.products(8192, 768, vocabulary, type);
    suite.products(n, 1536, 8960, type);
    suite.norms(n, 768, type);
    suite.norms(n, 2048, type);
    suite.activations(n, 3072, type);
    suite.small_operations(n, 768, type);
    suite.embedding(n, 768, vocabulary, type);
    suite.head(5337, vocabulary, type);
    suite.head(1766, 151936, type);
    suite.optimizer(124475904, type);
    for (const std::int64_t length : {512, 1024, 4096}) suite.attention({n / length, length, length, 12, 12, 64}, type);
    suite.attention({8, 2048, 2048, 12, 12, 96}, type);
    suite.attention({8, 2048, 2048, 16, 4, 128}, type);
    suite.ttt({false, 16, 128, 12, 64, 16}, type);
    suite.ttt({false, 32, 2048, 16, 96, 16}, type);
    suite.ttt({true, 16, 128, 12, 64, 16}, type);
    suite.ttt({true, 16, 2048, 12, 64, 16}, type);
    suite.attention({2, 1024, 1024, 12, 12, 64}, Type::fp32);
    suite.ttt({false, 16, 512, 12, 64, 16}, Type::fp32);
    suite.ttt({true, 16, 512, 12, 64, 16}, Type::fp32);
    suite.print();
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App program("Times the GPU's kernels against the limits of this GPU, measured in the same run");
    program.add_option("--filter", options.filter, "Only rows whose kernel and shape hold this text");
    program.add_option("--repetitions", options.repetitions, "Batches a kernel; the median counts")
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
