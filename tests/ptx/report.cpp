// What the kernels execute at the sizes of real models, counted on the machine for PTX: for every kernel the warp
// instructions by kind, bank conflicts, sectors and bytes of global memory, the hottest lines, and the shortest time
// that these counts allow on an A100 and an H100. Widths, heads and lengths are those of training, with one sequence,
// or as many rows, since all blocks do the same.
//
//   ptx_report [--filter TEXT] [--format text|markdown|csv|json] [--lines N]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/table.hpp"
#include "device/cuda/context.hpp"
#include "device/gpu.hpp"
#include "kernels/cuda.hpp"
#include "ptx/counts.hpp"

using namespace lockstep;
using namespace lockstep::kernels;

namespace {

struct Choices {
    std::string filter, format = "text";
    int lines = 0;
};

using Run = std::function<void()>;
using Setup = std::function<Run(Arena&)>;  // cuts the tensors, once measuring and once for good

// Of a data sheet: a bound on time, not a time.
struct Gpu {
    double multiprocessors, gigahertz;
    double tensor_flop, bytes_per_second;  // dense bf16
    double instructions_per_cycle = 4;     // warp instructions of a multiprocessor
};
constexpr Gpu a100 = {108, 1.41, 312e12, 1.555e12}, h100 = {132, 1.83, 989e12, 3.35e12};

double least_seconds(const ptx::Counts& counts, const Gpu& gpu) {
    constexpr double flop = 2.0 * 16 * 8 * 16, sector_bytes = 32;  // mma.m16n8k16
    const double cycles = gpu.multiprocessors * gpu.gigahertz * 1e9;
    return std::max({static_cast<double>(counts.instructions) / (gpu.instructions_per_cycle * cycles),
                     static_cast<double>(counts.shared_passes) / cycles,
                     static_cast<double>(counts.tensor) * flop / gpu.tensor_flop,
                     static_cast<double>(counts.global_sectors) * sector_bytes / gpu.bytes_per_second});
}

double share(std::uint64_t part, std::uint64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

class Report {
  public:
    explicit Report(const Choices& choices)
        : choices_(choices),
          backend_(make_cuda_backend(open_gpu(0))),
          table_({{"operation", "operation"},
                  {"shape", "shape"},
                  {"kernel", "kernel"},
                  {"launches", "launches"},
                  {"warps", "warps"},
                  {"shared_bytes", "shared, B"},
                  {"instructions", "warp instructions"},
                  {"tensor", "tensor", 3},
                  {"special", "special", 3},
                  {"floats", "float", 3},
                  {"integers", "integer", 3},
                  {"converts", "convert", 3},
                  {"shared", "shared", 3},
                  {"global", "global", 3},
                  {"branches", "branch", 3},
                  {"barriers", "barriers"},
                  {"lanes", "lanes active", 1},
                  {"passes", "passes a shared access", 2},
                  {"sectors", "sectors a global access", 2},
                  {"megabytes", "MB asked for", 2},
                  {"a100_microseconds", "A100, at least us", 2},
                  {"h100_microseconds", "H100, at least us", 2}}),
          lines_({{"operation", "operation"},
                  {"kernel", "kernel"},
                  {"line", "line"},
                  {"instructions", "warp instructions"},
                  {"share", "share", 3}}) {}

    void attention(std::int64_t length, std::int64_t heads, std::int64_t head_width);
    void ttt(bool mlp, std::int64_t length, std::int64_t heads);
    void rows(std::int64_t n, std::int64_t d);
    void heads(std::int64_t n, std::int64_t f);
    void head(std::int64_t n, std::int64_t vocabulary);
    void optimizer(std::int64_t count);
    void print() const {
        std::fputs((choices_.lines > 0 ? lines_ : table_).print(table_format(choices_.format)).c_str(), stdout);
    }

  private:
    static constexpr Type type = Type::bf16;

    Tensor make(Arena& arena, Type of, const Shape& shape, double deviation = 1) {
        const Tensor tensor = arena.allocate(of, shape);
        if (arena.measuring()) return tensor;
        Arena stage(backend_->device(), static_cast<std::size_t>(tensor.count()) * sizeof(float) + 256,
                    "random values");
        const Tensor values = stage.allocate(Type::fp32, {tensor.count()});
        std::vector<float> random(static_cast<std::size_t>(tensor.count()));
        const RandomStream stream(1, "report");
        for (std::size_t i = 0; i < random.size(); ++i) random[i] = static_cast<float>(deviation * stream.normal(i));
        backend_->upload(values, random.data());
        backend_->copy(tensor.reshaped({tensor.count()}), values);
        backend_->synchronize();
        return tensor;
    }
    Tensor make(Arena& arena, const Shape& shape, double deviation = 1) { return make(arena, type, shape, deviation); }
    Tensor fp32(Arena& arena, const Shape& shape, double deviation = 1) {
        return make(arena, Type::fp32, shape, deviation);
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

    void add(const std::string& operation, const std::string& shape, const Setup& setup) {
        if ((operation + " " + shape).find(choices_.filter) == std::string::npos) return;
        Arena measure(backend_->device());
        setup(measure);
        Arena arena(backend_->device(), measure.peak(), "a report");
        const Run run = setup(arena);
        backend_->synchronize();
        ptx::count_launches(true);
        run();
        backend_->synchronize();
        ptx::count_launches(false);
        for (const ptx::KernelCounts& one : ptx::take_counts()) add_kernel(operation, shape, one);
    }

    void add_kernel(const std::string& operation, const std::string& shape, const ptx::KernelCounts& one) {
        const ptx::Counts& c = one.counts;
        const std::uint64_t shared = c.shared_loads + c.shared_stores;
        const std::uint64_t global = c.global_loads + c.global_stores;
        const auto of_all = [&](std::uint64_t part) { return share(part, c.instructions); };
        const auto whole = [](std::uint64_t count) { return static_cast<std::int64_t>(count); };
        table_.add_row({operation,
                        shape,
                        one.kernel,
                        whole(one.launches),
                        whole(one.warps),
                        static_cast<std::int64_t>(one.most_shared_bytes),
                        whole(c.instructions),
                        of_all(c.tensor),
                        of_all(c.special),
                        of_all(c.floats),
                        of_all(c.integers),
                        of_all(c.converts),
                        of_all(shared),
                        of_all(global + c.asynchronous_copies),
                        of_all(c.branches),
                        whole(c.barriers),
                        share(c.lane_instructions, c.instructions),
                        share(c.shared_passes, shared),
                        share(c.global_sectors, global + c.asynchronous_copies),
                        static_cast<double>(c.global_bytes) * 1e-6,
                        least_seconds(c, a100) * 1e6,
                        least_seconds(c, h100) * 1e6});
        for (std::size_t i = 0; i < std::min<std::size_t>(c.lines.size(), static_cast<std::size_t>(choices_.lines));
             ++i) {
            const ptx::LineCounts& line = c.lines[i];
            lines_.add_row({operation, one.kernel,
                            line.file.substr(line.file.rfind('/') + 1) + fmt::format(":{}", line.line),
                            whole(line.instructions), of_all(line.instructions)});
        }
    }

    Choices choices_;
    std::unique_ptr<Backend> backend_;
    Table table_, lines_;
};

void Report::attention(std::int64_t length, std::int64_t heads, std::int64_t head_width) {
    const AttentionShape shape{1, length, length, heads, heads, head_width};
    const std::int64_t d = heads * head_width;
    const std::string text = fmt::format("{} tokens, {} heads of {}", length, heads, head_width);
    for (const bool backward : {false, true})
        add(backward ? "attention backward" : "attention forward", text, [=, this](Arena& arena) -> Run {
            const Tensor y = make(arena, {length, d}), q = make(arena, {length, d}), k = make(arena, {length, d});
            const Tensor v = make(arena, {length, d}), sums = fp32(arena, {1, heads, length});
            const Run forward = [=, this] { backend_->attention_forward(y, sums, q, k, v, shape); };
            if (!backward) return forward;
            if (!arena.measuring()) forward();
            const Tensor dy = make(arena, {length, d}), dq = make(arena, {length, d}), dk = make(arena, {length, d});
            const Tensor dv = make(arena, {length, d});
            return [=, this] { backend_->attention_backward(dq, dk, dv, dy, q, k, v, y, sums, shape); };
        });
}

void Report::ttt(bool mlp, std::int64_t length, std::int64_t heads) {
    const TttShape shape{mlp, 1, length, heads, 64, 16};
    const std::int64_t f = shape.head_width, g = shape.hidden(), d = heads * f;
    const std::string text = fmt::format("{} tokens, {} heads of {}", length, heads, f);
    for (const bool backward : {false, true})
        add(fmt::format("ttt-{} {}", mlp ? "mlp" : "linear", backward ? "backward" : "forward"), text,
            [=, this](Arena& arena) -> Run {
                const auto rows = [&](double deviation) { return make(arena, {length, d}, deviation); };
                const Tensor y = rows(1), q = rows(0.3), k = rows(0.3), v = rows(0.3);
                const Tensor step = fp32(arena, {length, heads}, 1e-3), scale = fp32(arena, {shape.mini_batch}, 0.1);
                const auto inner_of = [&](double deviation) {
                    return TttInner{fp32(arena, {heads, f, g}, deviation),
                                    fp32(arena, {heads, 1, g}, deviation),
                                    mlp ? fp32(arena, {heads, g, f}, deviation) : Tensor(),
                                    mlp ? fp32(arena, {heads, 1, f}, deviation) : Tensor(),
                                    fp32(arena, {heads, f}, deviation),
                                    fp32(arena, {heads, f}, deviation)};
                };
                const TttInner inner = inner_of(0.02);
                const Tensor saved = fp32(arena, {backend_->ttt_saved_count(shape)});
                const Run forward = [=, this] {
                    backend_->ttt_forward(y, saved, q, k, v, step, scale, inner, {}, {}, shape);
                };
                if (!backward) return forward;
                if (!arena.measuring()) forward();
                const Tensor dy = rows(1e-2), dq = rows(1), dk = rows(1), dv = rows(1);
                const Tensor dstep = fp32(arena, {length, heads}), dscale = fp32(arena, {shape.mini_batch});
                const TttInner dinner = inner_of(1);
                return [=, this] {
                    backend_->ttt_backward(dq, dk, dv, dstep, dscale, dinner, {}, dy, saved, q, k, v, step, scale,
                                           inner, {}, {}, shape);
                };
            });
}

// What is done row by row.
void Report::rows(std::int64_t n, std::int64_t d) {
    const std::string text = fmt::format("{} x {}", n, d);
    const auto several = [&](const char* name, int tensors, auto call) {
        add(name, text, [=, this](Arena& arena) -> Run {
            std::vector<Tensor> t;
            for (int i = 0; i < tensors; ++i) t.push_back(make(arena, {n, d}));
            const Tensor weight = fp32(arena, {d}), bias = fp32(arena, {d}), mean = fp32(arena, {n}, 0.1);
            const Tensor inverse = fp32(arena, {n}, 0.1), dweight = fp32(arena, {d}), dbias = fp32(arena, {d});
            const Tensor taps = fp32(arena, {d, 1, 4}), dtaps = fp32(arena, {d, 1, 4});
            const Tensor angles = fp32(arena, {n, 32});
            return [=, this] {
                call(*backend_, t,
                     std::vector<Tensor>{weight, bias, mean, inverse, dweight, dbias, taps, dtaps, angles});
            };
        });
    };
    using T = const std::vector<Tensor>&;
    several("rms norm forward", 3,
            [](Backend& b, T t, T w) { b.rms_norm_forward(t[0], w[3], t[1], t[2], w[0], 1e-6f); });
    several("rms norm backward", 3,
            [](Backend& b, T t, T w) { b.rms_norm_backward(t[0], w[4], t[1], t[2], w[0], w[3]); });
    several("layer norm forward", 3,
            [](Backend& b, T t, T w) { b.layer_norm_forward(t[0], w[2], w[3], t[1], t[2], w[0], w[1], 1e-5f); });
    several("layer norm backward", 3,
            [](Backend& b, T t, T w) { b.layer_norm_backward(t[0], w[4], w[5], t[1], t[2], w[0], w[2], w[3]); });
    several("gelu forward", 2, [](Backend& b, T t, T) { b.gelu_forward(t[0], t[1]); });
    several("gelu backward", 3, [](Backend& b, T t, T) { b.gelu_backward(t[0], t[1], t[2]); });
    several("swiglu forward", 3, [](Backend& b, T t, T) { b.swiglu_forward(t[0], t[1], t[2]); });
    several("swiglu backward", 5, [](Backend& b, T t, T) { b.swiglu_backward(t[0], t[1], t[2], t[3], t[4]); });
    several("copy", 2, [](Backend& b, T t, T) { b.copy(t[0], t[1]); });
    several("add", 2, [](Backend& b, T t, T) { b.add(t[0], t[1]); });
    several("bias backward", 1, [](Backend& b, T t, T w) { b.bias_backward(w[5], t[0]); });
    several("rotate", 1, [n](Backend& b, T t, T w) { b.rotate(t[0], w[8], w[8], n, 0, RotaryPairs::halves, false); });
    several("convolution forward", 2,
            [n](Backend& b, T t, T w) { b.convolution_forward(t[0], t[1], w[6], w[1], {}, n); });
    several("convolution backward", 3,
            [n](Backend& b, T t, T w) { b.convolution_backward(t[0], w[7], w[5], t[1], t[2], w[6], n); });
}

// Norms of heads.
void Report::heads(std::int64_t n, std::int64_t f) {
    const auto norm = [&](const char* name, auto call) {
        add(name, fmt::format("{} heads of {}", n, f), [=, this](Arena& arena) -> Run {
            const Tensor x = make(arena, {n, f}), dy = make(arena, {n, f}), out = make(arena, {n, f});
            const Tensor inverse = fp32(arena, {n}, 0.1), weight = fp32(arena, {f}), dweight = fp32(arena, {f});
            return [=, this] { call(*backend_, out, x, dy, inverse, weight, dweight); };
        });
    };
    norm("rms norm forward", [](Backend& b, Tensor y, Tensor x, Tensor, Tensor inverse, Tensor weight, Tensor) {
        b.rms_norm_forward(y, inverse, x, {}, weight, 1e-6f);
    });
    norm("rms norm backward", [](Backend& b, Tensor dx, Tensor x, Tensor dy, Tensor inverse, Tensor weight,
                                 Tensor dweight) { b.rms_norm_backward(dx, dweight, dy, x, weight, inverse); });
}

void Report::head(std::int64_t n, std::int64_t vocabulary) {
    const std::string text = fmt::format("{} x {}", n, vocabulary);
    add("cross entropy", text, [=, this](Arena& arena) -> Run {
        const Tensor losses = fp32(arena, {n}), logits = make(arena, {n, vocabulary});
        const Tensor targets = make_ids(arena, n, vocabulary);
        return [=, this] { backend_->cross_entropy(losses, logits, targets, 1.0f, {}); };
    });
    constexpr std::int64_t d = 768, tokens = 256;
    const auto embed = [=, this](Arena& arena, bool backward) -> Run {
        const Tensor y = make(arena, {tokens, d}), ids = make_ids(arena, tokens, 1000);
        const Tensor table = backward ? fp32(arena, {1000, d}) : make(arena, {1000, d});
        if (backward) return [=, this] { backend_->embedding_backward(table, {}, ids, y, 0, tokens); };
        return [=, this] { backend_->embedding_forward(y, ids, table, 0, {}, tokens, 0); };
    };
    add("embedding forward", "256 x 768", [=](Arena& arena) { return embed(arena, false); });
    add("embedding backward", "256 x 768", [=](Arena& arena) { return embed(arena, true); });
}

void Report::optimizer(std::int64_t count) {
    const std::string text = fmt::format("{}", count);
    add("adamw", text, [=, this](Arena& arena) -> Run {
        std::vector<Tensor> t;
        for (int i = 0; i < 4; ++i) t.push_back(fp32(arena, {count}, 0.1));
        const Tensor working = make(arena, {count}), decays = make_ids(arena, DecayBits::words_for(count), 1 << 30);
        const Tensor decision = arena.allocate(Type::fp64, {Decision::places});
        if (!arena.measuring()) backend_->fill(decision, 1);
        return [=, this] {
            backend_->adamw(t[0], working, t[1], t[2], t[3], decays, decision, {1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f});
        };
    });
    add("sum of squares", text, [=, this](Arena& arena) -> Run {
        const Tensor x = fp32(arena, {count}), totals = arena.allocate(Type::fp64, {2});
        return [=, this] { backend_->sum_of_squares(totals, x, Accumulate::no); };
    });
}

void run(const Choices& choices) {
    Report report(choices);
    report.attention(1024, 2, 64);  // gpt2-124m and gpt2-1.5b, of their 12 and 25 heads
    report.ttt(false, 2048, 1);     // ttt-linear-125m, ttt-mlp-125m, of their 12 heads
    report.ttt(true, 2048, 1);
    report.rows(256, 768);
    report.rows(256, 1600);
    report.heads(4096, 64);   // of 256 tokens with 16 heads
    report.heads(4096, 128);  // the queries of qwen3-0.6b
    report.head(8, 50257);
    report.optimizer(1 << 20);
    report.print();
}

}  // namespace

int main(int argc, char** argv) {
    Choices choices;
    CLI::App program("Counts what the kernels execute at the sizes of real models, on a machine that runs their PTX");
    program.add_option("--filter", choices.filter, "Only operations whose name and shape hold this text");
    program.add_option("--format", choices.format, "text, markdown, csv or json");
    program.add_option("--lines", choices.lines, "Instead, the N hottest source lines of each kernel")
        ->check(CLI::PositiveNumber);
    CLI11_PARSE(program, argc, argv);
    try {
        run(choices);
    } catch (const Error& error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return static_cast<int>(error.code());
    }
}
