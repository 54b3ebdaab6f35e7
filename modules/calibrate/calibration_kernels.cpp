// The kernels of a training step, at the sizes of small models on CPUs and of large ones on GPUs.
#include <algorithm>
#include <array>

#include "base/random.hpp"
#include "calibrate/calibration.hpp"
#include "calibrate/rate_fit.hpp"
#include "config/machine.hpp"
#include "device/memory.hpp"
#include "kernels/counting_backend.hpp"

namespace lockstep::calibrate {
namespace {

using kernels::Accumulate;
using kernels::Backend;
using kernels::Transpose;

using Layers = std::vector<std::pair<std::int64_t, std::int64_t>>;  // inputs, outputs

constexpr std::size_t mebibyte = std::size_t{1} << 20;

struct Sizes {
    std::vector<std::int64_t> rows;  // of products, ascending
    Layers layers;
    std::vector<std::int64_t> head_rows;  // likewise
    Layers heads_of_models;
    std::int64_t loss_rows, parameters;
    std::vector<std::int64_t> lengths;  // of sequences, for attention, ascending
    std::int64_t heads, head_width;
    std::int64_t scan_batch, scan_length, scan_heads, scan_head_width;  // of TTT
    std::size_t pool_bytes, gradient_bytes;
    double budget_seconds;

    // Of memory-bound work.
    std::int64_t stream_rows() const { return rows.back(); }
    std::int64_t width() const { return heads * head_width; }
    std::int64_t wide() const { return 4 * width(); }
    std::int64_t vocabulary() const { return heads_of_models.back().second; }
    // Elements of an activation, and of the largest one: a layer's rows, or logits.
    std::int64_t activation() const { return stream_rows() * wide(); }
    std::int64_t largest_activation() const { return std::max(activation(), head_rows.back() * vocabulary()); }
};

Sizes sizes_for(DeviceKind kind, bool quick) {
    if (quick)
        return {.rows = {16, 64},
                .layers = {{32, 32}, {32, 128}, {128, 32}},
                .head_rows = {8, 16},
                .heads_of_models = {{16, 512}, {32, 512}},
                .loss_rows = 8,
                .parameters = 1 << 14,
                .lengths = {16, 64},
                .heads = 2,
                .head_width = 16,
                .scan_batch = 1,
                .scan_length = 32,
                .scan_heads = 2,
                .scan_head_width = 16,
                .pool_bytes = 4 * mebibyte,
                .gradient_bytes = 4 * mebibyte,
                .budget_seconds = 0.001};
    if (kind == DeviceKind::cuda)
        return {.rows = {1024, 4096, 16384},
                .layers = {{1024, 1024}, {2048, 2048}, {4096, 4096}, {4096, 16384}, {16384, 4096}},
                .head_rows = {1024, 4096},
                .heads_of_models = {{1024, 50304}, {4096, 50304}},
                .loss_rows = 4096,
                .parameters = std::int64_t{256} << 20,
                .lengths = {512, 2048, 8192},
                .heads = 32,
                .head_width = 128,
                .scan_batch = 16,
                .scan_length = 2048,
                .scan_heads = 12,
                .scan_head_width = 64,
                .pool_bytes = 4096 * mebibyte,
                .gradient_bytes = 2048 * mebibyte,
                .budget_seconds = 0.05};
    return {.rows = {128, 512, 1024},
            .layers = {{512, 512}, {768, 768}, {512, 2048}, {768, 3072}, {3072, 768}},
            .head_rows = {256, 512},
            .heads_of_models = {{512, 50257}, {768, 50257}},
            .loss_rows = 128,
            .parameters = std::int64_t{16} << 20,
            .lengths = {64, 256, 1024},
            .heads = 12,
            .head_width = 64,
            .scan_batch = 1,
            .scan_length = 512,
            .scan_heads = 12,
            .scan_head_width = 64,
            .pool_bytes = 320 * mebibyte,
            .gradient_bytes = 320 * mebibyte,
            .budget_seconds = 0.03};
}

// Memory with values in it. Every call takes another part, since the weights of a model are not in a cache when needed.
class Pool {
  public:
    Pool(Backend& backend, Type type, std::size_t bytes) : arena_(backend.device(), bytes, "a calibration") {
        const std::int64_t count = static_cast<std::int64_t>(bytes / type_bytes(type));
        const std::int64_t piece = std::min<std::int64_t>(count, std::int64_t{1} << 20);
        std::vector<float> values(static_cast<std::size_t>(piece));
        const RandomStream stream(1, "calibration");
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(stream.uniform(i)) - 0.5f;
        Arena staging(backend.device(), values.size() * sizeof(float), "a calibration");
        const Tensor from = staging.allocate(Type::fp32, {piece});
        const Tensor all = arena_.allocate(type, {count});
        backend.upload(from, values.data());
        for (std::int64_t first = 0; first < count; first += piece) {
            const std::int64_t now = std::min(piece, count - first);
            backend.copy(all.slice(first, now), from.slice(0, now));
        }
        backend.synchronize();
    }
    // The `number`-th tensor of this shape; the first follows the last that fits.
    Tensor at(int number, Type type, const Shape& shape) const {
        const std::size_t size = (static_cast<std::size_t>(element_count(shape)) * type_bytes(type) + 255) / 256 * 256;
        const std::size_t places = std::max<std::size_t>(1, arena_.capacity() / size);
        LOCKSTEP_ASSERT(size <= arena_.capacity());
        const std::size_t place = static_cast<std::size_t>(number) % places;
        return {static_cast<char*>(arena_.data()) + place * size, type, shape};
    }

  private:
    Arena arena_;
};

class KernelCalibration {
  public:
    KernelCalibration(const CalibrationRank& rank, const CalibrationOptions& options, Type type, const Sizes& sizes)
        : backend_(rank.backend),
          options_(options),
          type_(type),
          sizes_(sizes),
          meter_(rank, sizes.budget_seconds),
          pool_(rank.backend, type, sizes.pool_bytes),
          exact_(rank.backend, Type::fp32, sizes.gradient_bytes),
          workspace_(
              rank.backend, type,
              static_cast<std::size_t>(2 * sizes.largest_activation() + 8 * sizes.activation()) * type_bytes(type)) {}

    void products(config::PrecisionRates& rates) {
        say("matrix products of layers");
        rates.layer = products_of(sizes_.rows, sizes_.layers, true);
        say("matrix products of the head");
        rates.head = products_of(sizes_.head_rows, sizes_.heads_of_models, false);
    }

    void attention(config::PrecisionRates& rates) {
        say("attention");
        std::vector<TimedOperation> forward, backward;
        const std::int64_t rows = sizes_.lengths.back();
        const std::int64_t width = sizes_.heads * sizes_.head_width;
        for (const std::int64_t length : sizes_.lengths) {
            const kernels::AttentionShape shape{rows / length, length,       length,
                                                sizes_.heads,  sizes_.heads, sizes_.head_width};
            std::array<Tensor, 8> t;
            for (int i = 0; i < 8; ++i) t[static_cast<std::size_t>(i)] = workspace(i, {rows, width});
            const Tensor sums = exact_.at(0, Type::fp32, {shape.batch, shape.heads, length});
            forward.push_back(
                timed([&](Backend& backend, int) { backend.attention_forward(t[3], sums, t[0], t[1], t[2], shape); }));
            backward.push_back(timed([&](Backend& backend, int) {
                backend.attention_backward(t[4], t[5], t[6], t[7], t[0], t[1], t[2], t[3], sums, shape);
            }));
        }
        const auto fit = [](const std::vector<TimedOperation>& timed) {
            const config::ProductRate rate = fit_rate(timed, false);
            return config::MixingRate{rate.tflops, rate.gb_per_second};
        };
        rates.attention_forward = fit(forward);
        rates.attention_backward = fit(backward);
    }

    void ttt(bool mlp, config::MixingRate& forward, config::MixingRate& backward) {
        say(mlp ? "TTT-MLP" : "TTT-Linear");
        constexpr std::int64_t mini_batch = 16;
        const std::int64_t length = sizes_.scan_length, rows = sizes_.scan_batch * length, heads = sizes_.scan_heads;
        const std::int64_t f = sizes_.scan_head_width, width = heads * f;
        const kernels::TttShape shape{mlp, sizes_.scan_batch, length, heads, f, mini_batch};
        std::array<Tensor, 8> t;
        for (int i = 0; i < 8; ++i) t[static_cast<std::size_t>(i)] = workspace(i, {rows, width});
        Tensors at;
        const Arena memory =
            planned(backend_.device(), "a calibration", [&](Arena& arena) { plan(arena, shape, rows, at); });
        for (auto& [tensor, value] : at.filled) backend_.fill(tensor, value);
        const bool waves = mlp && options_.multiprocessors > 0;  // one head of one sequence a multiprocessor
        const double filled =
            waves ? config::filled_share(static_cast<double>(sizes_.scan_batch * heads), options_.multiprocessors) : 1;
        const auto rate = [&](const Issue& issue) {
            const TimedOperation scan = timed(issue);
            return config::MixingRate{scan.flop / scan.seconds * 1e-12 / filled, 0};
        };
        forward = rate([&](Backend& backend, int) {
            backend.ttt_forward(t[3], at.saved, t[0], t[1], t[2], at.step, at.token, at.inner, {}, {}, shape);
        });
        backward = rate([&](Backend& backend, int) {
            backend.ttt_backward(t[4], t[5], t[6], at.dstep, at.dtoken, at.dinner, {}, t[7], at.saved, t[0], t[1], t[2],
                                 at.step, at.token, at.inner, {}, {}, shape);
        });
    }

    void delta(config::PrecisionRates& rates) {
        say("the gated delta rule");
        const std::int64_t rows = sizes_.scan_batch * sizes_.scan_length, heads = sizes_.scan_heads;
        const std::int64_t f = sizes_.scan_head_width;
        const kernels::DeltaShape shape{sizes_.scan_batch, sizes_.scan_length, heads, heads, f, f};
        std::array<Tensor, 8> t;
        for (int i = 0; i < 8; ++i) t[static_cast<std::size_t>(i)] = workspace(i, {rows, heads * f});
        Tensor saved, decay, strength, ddecay, dstrength;
        const Arena memory = planned(backend_.device(), "a calibration", [&](Arena& arena) {
            saved = arena.allocate(Type::fp32, {backend_.delta_saved_count(shape, type_)});
            for (Tensor* gate : {&decay, &strength, &ddecay, &dstrength})
                *gate = arena.allocate(Type::fp32, {rows, heads});
        });
        backend_.fill(saved, 0);
        backend_.fill(decay, -0.1f);
        backend_.fill(strength, 0.1f);  // of keys that are longer than 1: the state stays bounded
        const auto rate = [&](const Issue& issue) {
            const TimedOperation scan = timed(issue);
            return config::MixingRate{scan.flop / scan.seconds * 1e-12, 0};
        };
        rates.delta_forward = rate([&](Backend& backend, int) {
            backend.delta_forward(t[3], saved, t[0], t[1], t[2], decay, strength, {}, {}, shape);
        });
        rates.delta_backward = rate([&](Backend& backend, int) {
            backend.delta_backward(t[4], t[5], t[6], ddecay, dstrength, {}, t[7], saved, t[0], t[1], t[2], decay,
                                   strength, {}, {}, shape);
        });
    }

    void memory_bound(config::PrecisionRates::Memory& memory) {
        say("memory-bound operations");
        const std::int64_t rows = sizes_.stream_rows(), width = sizes_.width(), wide = sizes_.wide(), kernel = 4;
        std::array<Tensor, 4> t, w;
        for (int i = 0; i < 4; ++i) {
            t[static_cast<std::size_t>(i)] = workspace(i, {rows, width});
            w[static_cast<std::size_t>(i)] = workspace(4 + i, {rows, wide});
        }
        const Tensor fifth = workspace(8, {rows, wide});
        const auto small = [&](int i, const Shape& shape) { return exact_.at(i, Type::fp32, shape); };
        const Tensor mean = small(0, {rows}), inverse = small(1, {rows});
        backend_.fill(mean, 0);
        backend_.fill(inverse, 1);
        const Tensor weight = small(32, {wide}), bias = small(33, {wide}), dw = small(34, {wide});
        const Tensor db = small(35, {wide}), of_width = weight.slice(0, width), bias_of_width = bias.slice(0, width);
        memory.norm_forward = rate([&](Backend& backend, int) {
            backend.layer_norm_forward(t[0], mean, inverse, t[1], {}, of_width, bias_of_width, 1e-5f);
        });
        memory.norm_backward = rate([&](Backend& backend, int) {
            backend.layer_norm_backward(t[0], dw.slice(0, width), db.slice(0, width), t[2], t[1], of_width, mean,
                                        inverse, Accumulate::yes);
        });
        memory.activation_forward = rate([&](Backend& backend, int) { backend.gelu_forward(w[0], w[1]); });
        memory.activation_backward = rate([&](Backend& backend, int) { backend.gelu_backward(w[0], w[1], w[2]); });
        memory.gated_forward = rate([&](Backend& backend, int) { backend.swiglu_forward(w[0], w[1], w[2]); });
        memory.gated_backward =
            rate([&](Backend& backend, int) { backend.swiglu_backward(w[0], w[1], w[2], w[3], fifth); });
        const std::int64_t period = 16, half = sizes_.head_width / 2;
        const Tensor cosine = small(64, {period, half}), sine = small(65, {period, half});
        backend_.fill(cosine, 1);
        backend_.fill(sine, 0);
        memory.rotate = rate([&](Backend& backend, int) {
            backend.rotate(t[0], cosine, sine, rows, 0, kernels::RotaryPairs::interleaved, false);
        });
        memory.copy = rate([&](Backend& backend, int) { backend.copy(t[0], t[1]); });
        memory.bias_gradient = rate([&](Backend& backend, int) { backend.bias_backward(dw, w[0]); });
        const Tensor taps = small(8, {width, 1, kernel}), dtaps = small(9, {width, 1, kernel});
        memory.convolution_forward = rate(
            [&](Backend& backend, int) { backend.convolution_forward(t[0], t[1], taps, bias_of_width, {}, rows, {}); });
        memory.convolution_backward = rate([&](Backend& backend, int) {
            backend.convolution_backward(t[0], dtaps, db.slice(0, width), t[1], t[2], taps, rows, {},
                                         kernels::Accumulate::no);
        });
        embedding(memory);
        const Tensor logits = pool_.at(0, type_, {sizes_.loss_rows, sizes_.vocabulary()});
        const Tensor losses = small(1, {sizes_.loss_rows});
        const Tensor targets = ids(sizes_.loss_rows);
        memory.cross_entropy =
            rate([&](Backend& backend, int) { backend.cross_entropy(losses, logits, targets, {1e-3f}, {}); });
        optimizer(memory);
    }

    void gradients(config::Rates& rates) {
        say("gradients as a whole");
        const Tensor all = exact_.at(0, Type::fp32, {sizes_.parameters});
        Arena memory(backend_.device(), Arena::device_alignment, "a calibration");
        const Tensor totals = memory.allocate(Type::fp64, {2});
        rates.norm_gb_per_second =
            rate([&](Backend& backend, int) { backend.sum_of_squares(totals, all, Accumulate::no); });
        rates.fill_gb_per_second = rate([&](Backend& backend, int) { backend.fill(all, 0); });
        const Tensor tiny = exact_.at(0, Type::fp32, {16});
        rates.operation_us = meter_.seconds([&](int) { backend_.scale(tiny, 1); }) * 1e6;
    }

  private:
    struct Tensors {
        Tensor saved, step, token, dstep, dtoken;
        kernels::TttInner inner, dinner;
        std::vector<std::pair<Tensor, float>> filled;
    };

    using Issue = std::function<void(Backend& backend, int call)>;

    // The operation's counted work and measured time.
    TimedOperation timed(const Issue& issue) const {
        const kernels::Work work =
            kernels::work_of(backend_.device().kind, [&](Backend& counting) { issue(counting, 0); });
        return {work.flop, work.bytes, meter_.seconds([&](int call) { issue(backend_, call); })};
    }
    // GB/s of a memory-bound operation.
    double rate(const Issue& issue) const {
        const TimedOperation operation = timed(issue);
        return operation.bytes / operation.seconds * 1e-9;
    }

    config::ProductRates products_of(const std::vector<std::int64_t>& row_counts, const Layers& layers,
                                     bool with_overhead) {
        std::vector<TimedOperation> forward, input, weight;
        for (const std::int64_t rows : row_counts)
            for (const auto& layer : layers) {
                const std::int64_t in = layer.first, out = layer.second;
                // Activations are in the caches, weights and their gradients are not.
                const Tensor x = workspace(0, {rows, in}), y = workspace(1, {rows, out});
                const auto weights = [&](int i) { return pool_.at(i, type_, {out, in}); };
                const auto gradients = [&](int i) { return exact_.at(i, Type::fp32, {out, in}); };
                forward.push_back(
                    timed([&](Backend& backend, int i) { backend.linear_forward(y, x, weights(i), {}, {}); }));
                input.push_back(timed([&](Backend& backend, int i) {
                    backend.product(x, y, Transpose::no, weights(i), Transpose::no, Accumulate::no);
                }));
                weight.push_back(timed([&](Backend& backend, int i) {
                    backend.product(gradients(i), y, Transpose::yes, x, Transpose::no, Accumulate::yes);
                }));
            }
        return {fit_rate(forward, with_overhead), fit_rate(input, with_overhead), fit_rate(weight, with_overhead)};
    }

    void say(const std::string& what) const {
        if (options_.say) options_.say(what + ", " + type_name(type_));
    }

    // The `number`-th activation: always the same memory. The first two may be as large as logits.
    Tensor workspace(int number, const Shape& shape) const {
        const std::int64_t first =
            std::min(number, 2) * sizes_.largest_activation() + std::max(number - 2, 0) * sizes_.activation();
        return {static_cast<char*>(workspace_.at(0, type_, {1}).data()) +
                    static_cast<std::size_t>(first) * type_bytes(type_),
                type_, shape};
    }

    void plan(Arena& arena, const kernels::TttShape& shape, std::int64_t rows, Tensors& at) const {
        const std::int64_t f = shape.head_width, g = shape.hidden();
        const auto make = [&](const Shape& of, float value) {
            const Tensor tensor = arena.allocate(Type::fp32, of);
            at.filled.emplace_back(tensor, value);
            return tensor;
        };
        at.filled.clear();
        at.saved = arena.allocate(Type::fp32, {backend_.ttt_saved_count(shape, type_)});
        at.step = make({rows, shape.heads}, (shape.mlp ? 0.05f : 0.5f) / static_cast<float>(f));
        at.token = make({shape.mini_batch}, 0.2f);
        at.dstep = make({rows, shape.heads}, 0);
        at.dtoken = make({shape.mini_batch}, 0);
        for (kernels::TttInner* inner : {&at.inner, &at.dinner}) {
            inner->weight1 = make({shape.heads, f, g}, 0.01f);
            inner->bias1 = make({shape.heads, 1, g}, 0);
            if (shape.mlp) {
                inner->weight2 = make({shape.heads, g, f}, 0.01f);
                inner->bias2 = make({shape.heads, 1, f}, 0);
            }
            inner->norm_weight = make({shape.heads, f}, 1);
            inner->norm_bias = make({shape.heads, f}, 0);
        }
    }

    Tensor ids(std::int64_t count) {
        ids_ = Arena(backend_.device(),
                     static_cast<std::size_t>(count) * sizeof(std::int32_t) + Arena::device_alignment, "a calibration");
        const Tensor tensor = ids_.allocate(Type::int32, {count});
        const RandomStream stream(1, "ids");
        std::vector<std::int32_t> values(static_cast<std::size_t>(count));
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = static_cast<std::int32_t>(stream.bits(i) % static_cast<std::uint64_t>(sizes_.vocabulary()));
        backend_.upload(tensor, values.data());
        return tensor;
    }

    void embedding(config::PrecisionRates::Memory& memory) {
        const std::int64_t rows = sizes_.stream_rows(), width = sizes_.width(), vocabulary = sizes_.vocabulary();
        const Tensor y = workspace(0, {rows, width}), numbers = ids(rows);
        const Tensor table = pool_.at(0, type_, {vocabulary, width});
        memory.embedding_forward =
            rate([&](Backend& backend, int) { backend.embedding_forward(y, numbers, table, 0, {}, rows, 0); });
        const Tensor gradient = exact_.at(0, Type::fp32, {vocabulary, width});
        memory.embedding_backward =
            rate([&](Backend& backend, int) { backend.embedding_backward(gradient, {}, numbers, y, 0, rows); });
    }

    void optimizer(config::PrecisionRates::Memory& memory) {
        const std::int64_t count = sizes_.parameters / 2;
        const bool copies = type_ != Type::fp32;
        std::array<Tensor, 4> t;
        Tensor working, groups, decision;
        const Arena arena = planned(backend_.device(), "a calibration", [&](Arena& in) {
            for (Tensor& tensor : t) tensor = in.allocate(Type::fp32, {count});
            if (copies) working = in.allocate(type_, {count});
            groups = in.allocate(Type::int32, {kernels::WeightGroups::words_for(count)});
            decision = in.allocate(Type::fp64, {kernels::Decision::places});
        });
        for (const Tensor& tensor : t) backend_.fill(tensor, 0.5f);
        if (copies) backend_.fill(working, 0);
        backend_.fill(groups, 0);
        backend_.fill(decision, 1);
        memory.adamw = rate([&](Backend& backend, int) {
            backend.adamw(t[0], working, t[1], t[2], t[3], groups, decision,
                          {1e-4f, 0.9f, 0.95f, 1e-8f, {{{1, 0.1f}}}});
        });
    }

    Backend& backend_;
    const CalibrationOptions& options_;
    Type type_;
    const Sizes& sizes_;
    Meter meter_;
    Pool pool_, exact_, workspace_;  // weights, gradients, activations
    Arena ids_;
};

}  // namespace

void calibrate_kernels(const CalibrationRank& rank, const CalibrationOptions& options, config::Rates& rates) {
    const Sizes sizes = sizes_for(rank.backend.device().kind, options.quick);
    for (const Type type : {Type::fp32, Type::bf16}) {
        if (type == Type::fp32 ? !options.fp32 : !options.bf16) continue;
        config::PrecisionRates& of_type = type == Type::fp32 ? rates.fp32 : rates.bf16;
        KernelCalibration kernels(rank, options, type, sizes);
        kernels.products(of_type);
        kernels.attention(of_type);
        kernels.ttt(false, of_type.ttt_linear_forward, of_type.ttt_linear_backward);
        kernels.ttt(true, of_type.ttt_mlp_forward, of_type.ttt_mlp_backward);
        kernels.delta(of_type);
        kernels.memory_bound(of_type.memory);
        kernels.gradients(rates);
    }
}

TeamProbe probe_team(const CalibrationRank& rank, bool quick) {
    const std::int64_t size = quick ? 64 : rank.backend.device().kind == DeviceKind::cuda ? 4096 : 1024;
    const Pool pool(rank.backend, Type::fp32, 3 * static_cast<std::size_t>(size * size) * sizeof(float));
    const auto matrix = [&](int i) { return pool.at(i, Type::fp32, {size, size}); };
    const Meter meter(rank, quick ? 0.001 : 0.3);
    const double seconds = meter.seconds_alone([&](int) {
        rank.backend.product(matrix(0), matrix(1), Transpose::no, matrix(2), Transpose::yes, Accumulate::no);
    });
    const Tensor values = pool.at(0, Type::fp32, {size * size / 4});  // enough for every thread to have a part
    const double operation = meter.seconds_alone([&](int) { rank.backend.scale(values, 1); });
    return {2.0 * static_cast<double>(size * size * size) / seconds, operation};
}

}  // namespace lockstep::calibrate
