#include "gpu_operations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/random.hpp"
#include "kernels/operation_work.hpp"

namespace lockstep::bench {

using namespace kernels;

namespace {

double size_of(Type type) {
    return static_cast<double>(type_bytes(type));
}

}  // namespace

GpuOperations::GpuOperations(Backend& backend) : backend_(backend), random_(std::size_t{1} << 20) {
    const RandomStream stream(1, "bench");
    for (std::size_t i = 0; i < random_.size(); ++i) random_[i] = static_cast<float>(stream.normal(i));
}

void GpuOperations::add(const std::string& name, const std::string& shape, Type type, double bytes, double flop,
                        Setup setup) {
    list_.push_back({name, shape, type, bytes, flop, std::move(setup)});
}

Tensor GpuOperations::make(Arena& arena, Type type, const Shape& shape, double deviation) {
    const Tensor tensor = arena.allocate(type, shape);
    if (arena.measuring()) return tensor;
    const std::int64_t count = tensor.count(), most = std::min(count, static_cast<std::int64_t>(random_.size()));
    std::vector<float> scaled(random_.begin(), random_.begin() + most);
    for (float& value : scaled) value *= static_cast<float>(deviation);
    Arena stage(backend_.device(), scaled.size() * sizeof(float) + Arena::device_alignment, "random values");
    const Tensor values = stage.allocate(Type::fp32, {most});
    backend_.upload(values, scaled.data());
    const Tensor flat = tensor.reshaped({count});
    for (std::int64_t first = 0; first < count; first += most) {
        const std::int64_t now = std::min(most, count - first);
        backend_.copy(flat.slice(first, now), values.slice(0, now));
    }
    backend_.synchronize();
    return tensor;
}

Tensor GpuOperations::make_ids(Arena& arena, std::int64_t count, std::int64_t below) {
    const Tensor tensor = arena.allocate(Type::int32, {count});
    if (arena.measuring()) return tensor;
    std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
    const RandomStream stream(2, "ids");
    for (std::size_t i = 0; i < ids.size(); ++i)
        ids[i] = static_cast<std::int32_t>(stream.bits(i) % static_cast<std::uint64_t>(below));
    backend_.upload(tensor, ids.data());
    return tensor;
}

// y = x Wᵀ, dx = dy W, dW += dyᵀ x.
void GpuOperations::products(std::int64_t n, std::int64_t in, std::int64_t out, Type type) {
    const std::string shape = fmt::format("{} x {} x {}", n, in, out);
    const double flop = 2.0 * static_cast<double>(n * in * out), bytes = size_of(type);
    const auto all = static_cast<double>(n * in + in * out + n * out);
    add("linear forward", shape, type, bytes * all, flop, [=, this](Arena& arena) -> Run {
        const Tensor y = make(arena, type, {n, out}), x = make(arena, type, {n, in}), w = make(arena, type, {out, in});
        return [=, this] { backend_.linear_forward(y, x, w, {}, {}); };
    });
    add("linear backward, inputs", shape, type, bytes * all, flop, [=, this](Arena& arena) -> Run {
        const Tensor dx = make(arena, type, {n, in}), dy = make(arena, type, {n, out});
        const Tensor w = make(arena, type, {out, in});
        return [=, this] { backend_.product(dx, dy, Transpose::no, w, Transpose::no, Accumulate::no); };
    });
    const double weights = bytes * static_cast<double>(n * in + n * out) + 8.0 * static_cast<double>(in * out);
    add("linear backward, weights", shape, type, weights, flop, [=, this](Arena& arena) -> Run {
        const Tensor dw = make(arena, Type::fp32, {out, in}), dy = make(arena, type, {n, out});
        const Tensor x = make(arena, type, {n, in});
        return [=, this] { backend_.product(dw, dy, Transpose::yes, x, Transpose::no, Accumulate::yes); };
    });
    add("linear with gelu forward", shape, type, bytes * (all + static_cast<double>(n * out)), flop,
        [=, this](Arena& arena) -> Run {
            const Tensor y = make(arena, type, {n, out}), before = make(arena, type, {n, out});
            const Tensor x = make(arena, type, {n, in}), w = make(arena, type, {out, in});
            const Tensor bias = make(arena, type, {out});
            return [=, this] { backend_.linear_gelu_forward(y, before, x, w, bias); };
        });
}

void GpuOperations::norms(std::int64_t n, std::int64_t d, Type type) {
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
                            backend_.layer_norm_forward(y, mean, inverse, x, residual, w, bias, 1e-5f);
                        else
                            backend_.rms_norm_forward(y, inverse, x, residual, w, 1e-6f);
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
                        backend_.layer_norm_backward(dx, dw, dbias, dy, x, w, mean, inverse, kernels::Accumulate::yes);
                    else
                        backend_.rms_norm_backward(dx, dw, dy, x, w, inverse, kernels::Accumulate::yes);
                };
            });
}

void GpuOperations::activations(std::int64_t n, std::int64_t d, Type type) {
    const std::string shape = fmt::format("{} x {}", n, d);
    const double pass = size_of(type) * static_cast<double>(n * d);
    const auto flat = [&](const char* name, int tensors, auto call) {
        add(name, shape, type, tensors * pass, 0, [=, this](Arena& arena) -> Run {
            std::vector<Tensor> t;
            for (int i = 0; i < tensors; ++i) t.push_back(make(arena, type, {n, d}));
            return [=, this] { call(backend_, t); };
        });
    };
    using T = const std::vector<Tensor>&;
    flat("gelu forward", 2, [](Backend& b, T t) { b.gelu_forward(t[0], t[1]); });
    flat("gelu backward", 3, [](Backend& b, T t) { b.gelu_backward(t[0], t[1], t[2]); });
    flat("swiglu forward", 3, [](Backend& b, T t) { b.swiglu_forward(t[0], t[1], t[2]); });
    flat("swiglu backward", 5, [](Backend& b, T t) { b.swiglu_backward(t[0], t[1], t[2], t[3], t[4]); });
    flat("copy", 2, [](Backend& b, T t) { b.copy(t[0], t[1]); });
    flat("add", 3, [](Backend& b, T t) { b.add(t[0], t[1]); });
}

void GpuOperations::embedding(std::int64_t n, std::int64_t d, std::int64_t vocabulary, Type type) {
    const std::string shape = fmt::format("{} x {} of {}", n, d, vocabulary);
    const double pass = size_of(type) * static_cast<double>(n * d);
    add("embedding forward", shape, type, 2 * pass, 0, [=, this](Arena& arena) -> Run {
        const Tensor y = make(arena, type, {n, d}), table = make(arena, type, {vocabulary, d});
        const Tensor ids = make_ids(arena, n, vocabulary);
        return [=, this] { backend_.embedding_forward(y, ids, table, 0, {}, n, 0); };
    });
    const double touched = 8.0 * static_cast<double>(std::min(n, vocabulary) * d);
    add("embedding backward", shape, type, pass + touched, 0, [=, this](Arena& arena) -> Run {
        const Tensor dy = make(arena, type, {n, d}), dtable = make(arena, Type::fp32, {vocabulary, d});
        const Tensor ids = make_ids(arena, n, vocabulary);
        return [=, this] { backend_.embedding_backward(dtable, {}, ids, dy, 0, n); };
    });
}

void GpuOperations::small_operations(std::int64_t n, std::int64_t d, Type type) {
    const std::string shape = fmt::format("{} x {}", n, d);
    const double pass = size_of(type) * static_cast<double>(n * d);
    constexpr std::int64_t head_width = 64;
    const std::int64_t length = std::min<std::int64_t>(n, 1024);
    add("rotate", shape, type, 2 * pass, 0, [=, this](Arena& arena) -> Run {
        const Tensor x = make(arena, type, {n, d}), cosine = make(arena, Type::fp32, {length, head_width / 2});
        const Tensor sine = make(arena, Type::fp32, {length, head_width / 2});
        return [=, this] { backend_.rotate(x, cosine, sine, length, 0, RotaryPairs::halves, false); };
    });
    add("convolution forward", shape, type, 2 * pass, 0, [=, this](Arena& arena) -> Run {
        const Tensor y = make(arena, type, {n, d}), x = make(arena, type, {n, d});
        const Tensor w = make(arena, Type::fp32, {d, 1, 4}), bias = make(arena, Type::fp32, {d});
        return [=, this] { backend_.convolution_forward(y, x, w, bias, {}, length, {}); };
    });
    add("convolution backward", shape, type, 3 * pass, 0, [=, this](Arena& arena) -> Run {
        const Tensor dx = make(arena, type, {n, d}), dy = make(arena, type, {n, d}), x = make(arena, type, {n, d});
        const Tensor w = make(arena, Type::fp32, {d, 1, 4}), dw = make(arena, Type::fp32, {d, 1, 4});
        const Tensor dbias = make(arena, Type::fp32, {d});
        return
            [=, this] { backend_.convolution_backward(dx, dw, dbias, dy, x, w, length, {}, kernels::Accumulate::no); };
    });
    add("bias backward", shape, type, pass, 0, [=, this](Arena& arena) -> Run {
        const Tensor dbias = make(arena, Type::fp32, {d}), dy = make(arena, type, {n, d});
        return [=, this] { backend_.bias_backward(dbias, dy); };
    });
}

void GpuOperations::head(std::int64_t rows, std::int64_t vocabulary, Type type) {
    const double bytes = 2 * size_of(type) * static_cast<double>(rows * vocabulary);
    add("cross entropy", fmt::format("{} x {}", rows, vocabulary), type, bytes, 0, [=, this](Arena& arena) -> Run {
        const Tensor losses = make(arena, Type::fp32, {rows}), logits = make(arena, type, {rows, vocabulary});
        const Tensor targets = make_ids(arena, rows, vocabulary);
        return [=, this] { backend_.cross_entropy(losses, logits, targets, {1.0f}, {}); };
    });
}

void GpuOperations::optimizer(std::int64_t count, Type type) {
    const auto all = static_cast<double>(count);
    const std::string shape = fmt::format("{}", count);
    add("adamw", shape, type, (28 + size_of(type)) * all, 0, [=, this](Arena& arena) -> Run {
        std::vector<Tensor> t;
        for (int i = 0; i < 4; ++i) t.push_back(make(arena, Type::fp32, {count}, 0.1));
        const Tensor working = make(arena, type, {count});
        const Tensor groups = make_ids(arena, kernels::WeightGroups::words_for(count), 1 << 30);
        const Tensor decision = arena.allocate(Type::fp64, {kernels::Decision::places});
        if (!arena.measuring()) backend_.fill(decision, 1);
        return [=, this] {
            backend_.adamw(t[0], working, t[1], t[2], t[3], groups, decision,
                           {1e-4f, 0.9f, 0.95f, 1e-8f, {{{1, 0.1f}}}});
        };
    });
    add("sum of squares", shape, Type::fp32, 4 * all, 0, [=, this](Arena& arena) -> Run {
        const Tensor x = make(arena, Type::fp32, {count}), totals = arena.allocate(Type::fp64, {2});
        return [=, this] { backend_.sum_of_squares(totals, x, Accumulate::no); };
    });
}

void GpuOperations::attention(const AttentionShape& shape, Type type) {
    const std::int64_t n = shape.batch * shape.query_length, d = shape.heads * shape.head_width;
    const std::int64_t dk = shape.key_heads * shape.head_width;
    std::string text = fmt::format("{} x {}, {} / {} heads of {}", shape.batch, shape.query_length, shape.heads,
                                   shape.key_heads, shape.head_width);
    if (shape.window > 0) text += fmt::format(", window {}", shape.window);
    if (shape.score_cap > 0) text += fmt::format(", cap {:g}", shape.score_cap);
    const double flop = attention_work(shape, type, false).flop;
    const double pass = size_of(type) * static_cast<double>(n);
    add("attention forward", text, type, pass * static_cast<double>(2 * d + 2 * dk), flop,
        [=, this](Arena& arena) -> Run {
            const Tensor y = make(arena, type, {n, d}), q = make(arena, type, {n, d}), k = make(arena, type, {n, dk});
            const Tensor v = make(arena, type, {n, dk});
            const Tensor lse = make(arena, Type::fp32, {shape.batch, shape.heads, shape.query_length});
            return [=, this] { backend_.attention_forward(y, lse, q, k, v, shape); };
        });
    add("attention backward", text, type, pass * static_cast<double>(4 * d + 4 * dk), 2.5 * flop,
        [=, this](Arena& arena) -> Run {
            const Tensor y = make(arena, type, {n, d}), q = make(arena, type, {n, d}), k = make(arena, type, {n, dk});
            const Tensor v = make(arena, type, {n, dk}), dy = make(arena, type, {n, d}, 1e-2);
            const Tensor dq = make(arena, type, {n, d}), dk_out = make(arena, type, {n, dk});
            const Tensor dv = make(arena, type, {n, dk});
            const Tensor lse = make(arena, Type::fp32, {shape.batch, shape.heads, shape.query_length});
            if (!arena.measuring()) backend_.attention_forward(y, lse, q, k, v, shape);
            return [=, this] { backend_.attention_backward(dq, dk_out, dv, dy, q, k, v, y, lse, shape); };
        });
}

void GpuOperations::delta(const kernels::DeltaShape& shape, Type type) {
    const std::int64_t n = shape.batch * shape.length, keys = shape.key_heads * shape.key_width;
    const std::int64_t values = shape.heads * shape.value_width;
    const std::string text = fmt::format("{} x {}, {} / {} heads of {}", shape.batch, shape.length, shape.heads,
                                         shape.key_heads, shape.key_width);
    const double flop = delta_work(shape, type, false).flop;
    const double pass = size_of(type) * static_cast<double>(2 * n * (keys + values));
    const auto prepare = [=, this](Arena& arena, bool backward) -> Run {
        // Keys of norm 1, but for their spread.
        const double of_one = 1 / std::sqrt(static_cast<double>(shape.key_width));
        const Tensor q = make(arena, type, {n, keys}, of_one * of_one), k = make(arena, type, {n, keys}, of_one);
        const Tensor v = make(arena, type, {n, values}), y = make(arena, type, {n, values});
        const Tensor decay = make(arena, Type::fp32, {n, shape.heads});
        const Tensor strength = make(arena, Type::fp32, {n, shape.heads});
        const Tensor saved = arena.allocate(Type::fp32, {backend_.delta_saved_count(shape, type)});
        if (!arena.measuring()) {
            backend_.fill(decay, -0.05f);
            backend_.fill(strength, 0.5f);
        }
        if (!backward) return [=, this] { backend_.delta_forward(y, saved, q, k, v, decay, strength, {}, {}, shape); };
        const Tensor dq = make(arena, type, {n, keys}), dk = make(arena, type, {n, keys});
        const Tensor dv = make(arena, type, {n, values}), dy = make(arena, type, {n, values}, 1e-2);
        const Tensor ddecay = make(arena, Type::fp32, {n, shape.heads});
        const Tensor dstrength = make(arena, Type::fp32, {n, shape.heads});
        if (!arena.measuring()) backend_.delta_forward(y, saved, q, k, v, decay, strength, {}, {}, shape);
        return [=, this] {
            backend_.delta_backward(dq, dk, dv, ddecay, dstrength, {}, dy, saved, q, k, v, decay, strength, {}, {},
                                    shape);
        };
    };
    add("delta forward", text, type, pass, flop, [=](Arena& arena) { return prepare(arena, false); });
    add("delta backward", text, type, 2 * pass, 2 * flop, [=](Arena& arena) { return prepare(arena, true); });
}

void GpuOperations::ttt(const TttShape& shape, Type type) {
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
        const Tensor saved = learned({backend_.ttt_saved_count(shape, type)}, 1);
        if (!backward) return [=, this] { backend_.ttt_forward(y, saved, q, k, v, step, scale, inner, {}, {}, shape); };
        const Tensor dy = tensor({n, d}, 1e-2), dq = tensor({n, d}), dk = tensor({n, d}), dv = tensor({n, d});
        const Tensor dstep = learned({n, H}, 1), dscale = learned({b}, 1);
        const TttInner dinner = inner_of(1);
        if (!arena.measuring()) backend_.ttt_forward(y, saved, q, k, v, step, scale, inner, {}, {}, shape);
        return [=, this] {
            backend_.ttt_backward(dq, dk, dv, dstep, dscale, dinner, {}, dy, saved, q, k, v, step, scale, inner, {}, {},
                                  shape);
        };
    };
    add(name + " forward", text, type, 4 * pass, flop, [=](Arena& arena) { return prepare(arena, false); });
    add(name + " backward", text, type, 8 * pass, 2 * flop, [=](Arena& arena) { return prepare(arena, true); });
}

}  // namespace lockstep::bench
