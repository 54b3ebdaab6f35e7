// Times the CPU backend's kernels at the sizes of gpt2-124m, ttt-linear-125m and ttt-mlp-125m: N = 512 rows, one
// sequence, in fp32 and in bf16. Each kernel is set against what this machine gave in the same run: a large product of
// square matrices of its type for arithmetic, a copy of 256 MiB for memory. FLOP and bytes are counted
// (kernels/counting_backend.hpp): model FLOP, so that a kernel that computes something twice shows it as a lower rate,
// and every tensor read or written once.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <exception>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/format.hpp"
#include "cluster/placement.hpp"
#include "device/parallel.hpp"
#include "fastest_reporter.hpp"
#include "kernels/counting_backend.hpp"
#include "measure.hpp"

using namespace lockstep;
using namespace lockstep::kernels;
using namespace lockstep::bench;

namespace {

constexpr std::int64_t rows = 512, width = 768, heads = 12, head_width = 64, mini_batch = 16, vocabulary = 50257;

// The kernels in one type.
class Suite {
  public:
    Suite(Backend& backend, Type type, double flop_per_second, double bytes_per_second)
        : backend_(&backend), type_(type), flop_limit_(flop_per_second), bytes_limit_(bytes_per_second) {}

    void arithmetic(const std::string& name, const Setup& setup) {
        add(name, "FLOP/s", counted(setup).flop, flop_limit_, setup);
    }
    void memory(const std::string& name, const Setup& setup) {
        add(name, "bytes/s", counted(setup).bytes, bytes_limit_, setup);
    }

    // y = x Wᵀ, dx = dy W, dW += dyᵀ x.
    void linear(const std::string& name, std::int64_t n, std::int64_t in, std::int64_t out) {
        const Shape x = {n, in}, y = {n, out}, w = {out, in};
        using T = Transpose;
        const auto product = [this](const Shape& c, const Shape& a, T transpose_a, const Shape& b, T transpose_b,
                                    Accumulate accumulate) -> Setup {
            return [=, this](Arena& arena) {
                return product_of(backend(), type_, c, a, transpose_a, b, transpose_b, accumulate)(arena);
            };
        };
        arithmetic(name + "/forward", product(y, x, T::no, w, T::yes, Accumulate::no));
        arithmetic(name + "/dx", product(x, y, T::no, w, T::no, Accumulate::no));
        arithmetic(name + "/dweight", product(w, y, T::yes, x, T::no, Accumulate::yes));
    }
    void attention();
    void ttt(bool mlp);
    void delta();
    void norms();
    void elementwise();
    void vocabulary_sized();

  private:
    Backend& backend() const { return *backend_; }

    // What one run of the kernel costs.
    Work counted(const Setup& setup) {
        CountingBackend counting(DeviceKind::cpu);
        Arena nowhere(counting.device(), std::size_t{1} << 40, "a count");
        Backend* const running = std::exchange(backend_, &counting);
        const Run run = setup(nowhere);
        counting.take();  // what prepares the run
        run();
        backend_ = running;
        Work work;
        for (const Operation& operation : counting.operations()) {
            work.flop += operation.flop;
            work.bytes += operation.bytes;
        }
        return work;
    }

    // The tensors of one kernel at a time are kept, over all its repetitions.
    void add(const std::string& kernel, const char* unit, double amount, double limit, Setup setup) {
        const std::string name = kernel + "/" + type_name(type_);
        const auto function = [this, name, unit, amount, limit, setup](benchmark::State& state) {
            if (prepared_name_ != name) {
                prepared_ = Kernel();
                prepared_name_.clear();
                try {
                    prepared_ = prepare(setup);
                    prepared_.run();
                } catch (const std::exception& problem) {
                    state.SkipWithError(problem.what());
                    return;
                }
                prepared_name_ = name;
            }
            const double start = seconds_now();
            for (auto _ : state) prepared_.run();
            const double seconds = (seconds_now() - start) / static_cast<double>(state.iterations());
            state.counters[unit] = amount / seconds;
            state.counters["share_of_limit"] = amount / seconds / limit;
        };
        benchmark::RegisterBenchmark(name.c_str(), function)->UseRealTime()->Unit(benchmark::kMillisecond);
    }

    Tensor rows_of(Arena& arena, std::int64_t columns = width) const { return make(arena, type_, {rows, columns}); }

    Backend* backend_;  // the one that runs, or, for a moment, one that counts
    Type type_;
    double flop_limit_, bytes_limit_;
    std::string prepared_name_;
    Kernel prepared_;
};

void Suite::attention() {
    const AttentionShape shape{1, rows, rows, heads, heads, head_width};
    for (const bool backward : {false, true})
        arithmetic(backward ? "attention/backward" : "attention/forward", [this, shape, backward](Arena& arena) -> Run {
            const Tensor q = rows_of(arena), k = rows_of(arena), v = rows_of(arena), y = rows_of(arena);
            const Tensor sums = make(arena, {1, heads, rows});
            const Run forward = [=, this] { backend().attention_forward(y, sums, q, k, v, shape); };
            if (!backward) return forward;
            if (!arena.measuring()) forward();
            const Tensor dy = rows_of(arena), dq = rows_of(arena), dk = rows_of(arena), dv = rows_of(arena);
            return [=, this] { backend().attention_backward(dq, dk, dv, dy, q, k, v, y, sums, shape); };
        });
}

TttInner make_inner(Arena& arena, const TttShape& shape) {
    const std::int64_t f = shape.head_width, g = shape.hidden();
    TttInner inner;
    inner.weight1 = make(arena, {heads, f, g}, 0, 0.02);
    inner.bias1 = make(arena, {heads, 1, g}, 0, 0);
    if (shape.mlp) {
        inner.weight2 = make(arena, {heads, g, f}, 0, 0.02);
        inner.bias2 = make(arena, {heads, 1, f}, 0, 0);
    }
    inner.norm_weight = make(arena, {heads, f}, 1, 0);
    inner.norm_bias = make(arena, {heads, f}, 0, 0);
    return inner;
}

void Suite::ttt(bool mlp) {
    const TttShape shape{mlp, 1, rows, heads, head_width, mini_batch};
    const std::string name = mlp ? "ttt_mlp/" : "ttt_linear/";
    for (const bool backward : {false, true})
        arithmetic(name + (backward ? "backward" : "forward"), [this, shape, backward](Arena& arena) -> Run {
            const Tensor q = rows_of(arena), k = rows_of(arena), v = rows_of(arena), y = rows_of(arena);
            const Tensor step = make(arena, {rows, heads}, (shape.mlp ? 0.05 : 0.5) / head_width, 0);
            const Tensor token = make(arena, {mini_batch}, 0.2, 0);
            const Tensor saved = make(arena, {backend().ttt_saved_count(shape, q.type())});
            const TttInner inner = make_inner(arena, shape);
            const Run forward = [=, this] {
                backend().ttt_forward(y, saved, q, k, v, step, token, inner, {}, {}, shape);
            };
            if (!backward) return forward;
            if (!arena.measuring()) forward();
            const Tensor dy = rows_of(arena), dq = rows_of(arena), dk = rows_of(arena), dv = rows_of(arena);
            const Tensor dstep = make(arena, {rows, heads}), dtoken = make(arena, {mini_batch});
            const TttInner dinner = make_inner(arena, shape);
            return [=, this] {
                backend().ttt_backward(dq, dk, dv, dstep, dtoken, dinner, {}, dy, saved, q, k, v, step, token, inner,
                                       {}, {}, shape);
            };
        });
}

void Suite::delta() {
    const DeltaShape shape{1, rows, heads, heads, head_width, head_width};
    for (const bool backward : {false, true})
        arithmetic(backward ? "delta/backward" : "delta/forward", [this, shape, backward](Arena& arena) -> Run {
            const Tensor q = rows_of(arena), k = rows_of(arena), v = rows_of(arena), y = rows_of(arena);
            const Tensor decay = make(arena, {rows, heads}, -0.05, 0);
            // Of keys that are longer than 1: the state stays bounded.
            const Tensor strength = make(arena, {rows, heads}, 0.5 / head_width, 0);
            const Tensor saved = make(arena, {backend().delta_saved_count(shape, q.type())});
            const Run forward = [=, this] {
                backend().delta_forward(y, saved, q, k, v, decay, strength, {}, {}, shape);
            };
            if (!backward) return forward;
            if (!arena.measuring()) forward();
            const Tensor dy = rows_of(arena), dq = rows_of(arena), dk = rows_of(arena), dv = rows_of(arena);
            const Tensor ddecay = make(arena, {rows, heads}), dstrength = make(arena, {rows, heads});
            return [=, this] {
                backend().delta_backward(dq, dk, dv, ddecay, dstrength, {}, dy, saved, q, k, v, decay, strength, {}, {},
                                         shape);
            };
        });
}

void Suite::norms() {
    for (const bool layer : {false, true})
        for (const bool backward : {false, true})
            memory(std::string(layer ? "layer_norm/" : "rms_norm/") + (backward ? "backward" : "forward"),
                   [this, layer, backward](Arena& arena) -> Run {
                       const Tensor x = rows_of(arena), y = rows_of(arena), dx = rows_of(arena);
                       const Tensor mean = make(arena, {rows}, 0, 0), inverse = make(arena, {rows}, 1, 0);
                       const Tensor w = make(arena, {width}, 1, 0), bias = make(arena, {width}, 0, 0);
                       const Tensor dw = make(arena, {width}), dbias = make(arena, {width});
                       return [=, this] {
                           if (layer && backward)
                               backend().layer_norm_backward(dx, dw, dbias, y, x, w, mean, inverse,
                                                             kernels::Accumulate::yes);
                           else if (layer)
                               backend().layer_norm_forward(y, mean, inverse, x, {}, w, bias, 1e-5f);
                           else if (backward)
                               backend().rms_norm_backward(dx, dw, y, x, w, inverse, kernels::Accumulate::yes);
                           else
                               backend().rms_norm_forward(y, inverse, x, {}, w, 1e-6f);
                       };
                   });
}

void Suite::elementwise() {
    constexpr std::int64_t gelu = rows * 3072, swiglu = rows * 2048, parameters = 10'000'000;
    const auto flat = [this](const std::string& name, int tensors, std::int64_t count, auto call) {
        memory(name, [this, tensors, count, call](Arena& arena) -> Run {
            std::vector<Tensor> t;
            for (int i = 0; i < tensors; ++i) t.push_back(make(arena, type_, {count}, 0.5, 0.25));
            return [call, t] { call(t); };
        });
    };
    using T = const std::vector<Tensor>&;
    flat("gelu/forward", 2, gelu, [this](T t) { backend().gelu_forward(t[0], t[1]); });
    flat("gelu/backward", 3, gelu, [this](T t) { backend().gelu_backward(t[0], t[1], t[2]); });
    flat("swiglu/forward", 3, swiglu, [this](T t) { backend().swiglu_forward(t[0], t[1], t[2]); });
    flat("swiglu/backward", 5, swiglu, [this](T t) { backend().swiglu_backward(t[0], t[1], t[2], t[3], t[4]); });
    const bool keeps_a_copy = type_ != Type::fp32;  // the parameters that products take
    memory("adamw/10M", [this, keeps_a_copy](Arena& arena) -> Run {
        std::vector<Tensor> t;
        for (int i = 0; i < 4; ++i) t.push_back(make(arena, {parameters}, 0.5, 0.25));
        const Tensor working = keeps_a_copy ? make(arena, type_, {parameters}) : Tensor();
        const Tensor groups = arena.allocate(Type::int32, {kernels::WeightGroups::words_for(parameters)});
        const Tensor decision = arena.allocate(Type::fp64, {kernels::Decision::places});
        if (!arena.measuring()) {
            backend().fill(groups, 0);
            backend().fill(decision, 1);
        }
        return [=, this] {
            backend().adamw(t[0], working, t[1], t[2], t[3], groups, decision,
                            {1e-4f, 0.9f, 0.95f, 1e-8f, {{{1, 0.1f}}}});
        };
    });
    if (type_ != Type::fp32) return;  // gradients are fp32
    memory("sum_of_squares/10M", [this](Arena& arena) -> Run {
        const Tensor x = make(arena, {parameters}), totals = arena.allocate(Type::fp64, {2});
        return [=, this] { backend().sum_of_squares(totals, x, Accumulate::no); };
    });
}

void Suite::vocabulary_sized() {
    memory("cross_entropy", [this](Arena& arena) -> Run {
        const Tensor losses = make(arena, {rows}), logits = rows_of(arena, vocabulary);
        const Tensor targets = make_ids(arena, rows, vocabulary);
        return [=, this] { backend().cross_entropy(losses, logits, targets, {1.0f / rows}, {}); };
    });
    for (const bool backward : {false, true})
        memory(backward ? "embedding/backward" : "embedding/forward", [this, backward](Arena& arena) -> Run {
            const Type table_type = backward ? Type::fp32 : type_;  // the tables, or their gradients
            const Tensor table = make(arena, table_type, {vocabulary, width});
            const Tensor position = make(arena, table_type, {1024, width});
            const Tensor ids = make_ids(arena, rows, vocabulary), y = rows_of(arena);
            return [=, this] {
                if (backward)
                    backend().embedding_backward(table, position, ids, y, 0, rows);
                else
                    backend().embedding_forward(y, ids, table, 0, position, rows, 0);
            };
        });
}

int run(int argc, char** argv) {
    char repetitions[] = "--benchmark_repetitions=5", least_time[] = "--benchmark_min_time=0.1";
    std::vector<char*> arguments(argv, argv + argc);
    arguments.insert(std::next(arguments.begin()), {repetitions, least_time});  // what the user says comes later
    int count = static_cast<int>(arguments.size());
    arguments.push_back(nullptr);
    benchmark::Initialize(&count, arguments.data());
    if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 2;

    set_threads(cluster::place_alone({}).seat().threads);
    const auto backend = make_cpu_backend();
    benchmark::AddCustomContext("threads", std::to_string(threads()));
    benchmark::AddCustomContext("instruction set", cpu_instruction_set());
    const double bytes_per_second = measure_copy(*backend);
    benchmark::AddCustomContext("copy of 256 MiB, read and written", human_rate(bytes_per_second, "B"));

    std::vector<std::unique_ptr<Suite>> suites;
    for (const Type type : {Type::fp32, Type::bf16}) {
        if (type == Type::bf16 && !cpu_multiplies_bf16()) continue;
        const ProductRate product = measure_product(*backend, type, 10);
        benchmark::AddCustomContext(fmt::format("product of {0} x {0} {1}", product.size, type_name(type)),
                                    human_rate(product.flop_per_second, "FLOP"));
        suites.push_back(std::make_unique<Suite>(*backend, type, product.flop_per_second, bytes_per_second));
    }
    for (const auto& [in, out] : {std::pair{768, 768}, {768, 2048}, {2048, 768}, {768, 3072}, {3072, 768}})
        for (const auto& suite : suites) suite->linear(fmt::format("linear_{}_{}", in, out), rows, in, out);
    for (const auto& suite : suites) suite->linear("head_768_50257", rows, width, vocabulary);
    for (const auto& suite : suites) suite->attention();
    for (const bool mlp : {false, true})
        for (const auto& suite : suites) suite->ttt(mlp);
    for (const auto& suite : suites) suite->delta();
    for (const auto& suite : suites) suite->norms();
    for (const auto& suite : suites) suite->elementwise();
    for (const auto& suite : suites) suite->vocabulary_sized();
    FastestReporter reporter;
    benchmark::RunSpecifiedBenchmarks(&reporter);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(argc, argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "bench_kernels: %s\n", error.what());
        return 1;
    }
}
