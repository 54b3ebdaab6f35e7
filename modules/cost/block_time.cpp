#include "cost/block_time.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "cost/product_time.hpp"
#include "model/mixers/registry.hpp"

namespace lockstep::cost {
namespace {

struct Linear {
    double columns, depth;  // of this rank's part of the weight
    double trained = 1;     // share of its weights
};

struct Sizes {
    double rows, width, heads, head_width, hidden;  // heads and hidden of this rank
    double keys;                                    // heads of keys and values, of this rank
    double length, sequences;
};

Sizes sizes_of(const Job& job, const ModelLoad& load, const Layout& layout) {
    const config::ModelDescription& model = load.shape;
    const auto t = static_cast<double>(layout.tensor);
    Sizes sizes{};
    sizes.length = static_cast<double>(job.run.batch.length) / static_cast<double>(layout.context);
    sizes.sequences = static_cast<double>(layout.micro);
    sizes.rows = sizes.length * sizes.sequences;
    sizes.width = static_cast<double>(model.width);
    sizes.heads = static_cast<double>(model.heads) / t;
    sizes.keys = static_cast<double>(model.kv_heads) / t;
    sizes.head_width = static_cast<double>(model.head_width());
    sizes.hidden = static_cast<double>(model.mlp_width) / t;
    return sizes;
}

struct Mixing {
    double forward = 0, backward = 0;
};

// Scores and their products with the values, in memory (Shoeybi et al. 2019).
Mixing scores_in_memory(const config::Machine& hardware, const Job& job, const Sizes& sizes) {
    config::Precision precision = job.run.precision.compute;
    const auto inner = static_cast<std::int64_t>(sizes.head_width);
    const double batch = sizes.sequences * sizes.heads;
    const double scores =
        product_seconds(hardware, precision, {sizes.length, sizes.length, sizes.head_width, batch, inner});
    const double sums =
        product_seconds(hardware, precision, {sizes.length, sizes.head_width, sizes.length, batch, inner});
    const double pass = sizes.length * sizes.length * batch * bytes_of(precision) / hardware.bytes_per_second();
    return {scores + sums + job.program.score_passes_forward * pass,
            scores + 3 * sums + job.program.score_passes_backward * pass};
}

Mixing mixing_time(const config::Machine& hardware, const Job& job, const ModelLoad& load, const Sizes& sizes) {
    const config::ModelDescription& model = load.shape;
    const model::MixerType& mixer = model::mixer_type(model);
    if (!mixer.scores_pairs()) {
        const double flop = mixer.mixing_flop(model, job.run.batch.length) / static_cast<double>(model.heads);
        // A head of a sequence is one after the other: fewer of them than multiprocessors leave some idle.
        const double blocks = sizes.sequences * sizes.heads;
        const double fill = blocks / (std::ceil(blocks / hardware.device.units) * hardware.device.units);
        const double seconds =
            flop * sizes.heads * sizes.rows /
            (hardware.peak_flops(job.run.precision.compute) * hardware.products.inner_efficiency * fill);
        return {seconds, 2 * seconds};
    }
    if (job.program.attention_scores) return scores_in_memory(hardware, job, sizes);
    const double flop = 2 * sizes.length * sizes.head_width * sizes.heads * sizes.rows;  // causal
    const double seconds =
        flop / (hardware.peak_flops(job.run.precision.compute) * hardware.products.attention_efficiency);
    return {seconds, 2.5 * seconds};
}

}  // namespace

double bytes_of(config::Precision precision) {
    return precision == config::Precision::fp32 ? 4 : 2;
}

double tensor_reduction_seconds(const config::Machine& hardware, const Layout& layout, double bytes) {
    if (layout.tensor == 1) return 0;
    const auto t = static_cast<double>(layout.tensor);
    const double in_node = hardware.node_link.gb_per_second * 1e9 * hardware.node_link.efficiency;
    double rate = in_node, latency = hardware.node_link.latency_us;
    const bool inside =
        static_cast<double>(layout.ranks()) <= hardware.device.per_node || std::fmod(hardware.device.per_node, t) == 0;
    if (!inside) {
        rate = std::min(in_node, hardware.network_bytes_per_second() * hardware.network.efficiency);
        latency = hardware.network.latency_us;
    }
    return 2 * (t - 1) / t * bytes / rate + 2 * std::ceil(std::log2(t)) * latency * 1e-6;
}

PassTime block_time(const config::Machine& hardware, const Job& job, const ModelLoad& load, const Layout& layout) {
    const config::ModelDescription& model = load.shape;
    config::Precision precision = job.run.precision.compute;
    const Program& program = job.program;
    const Sizes sizes = sizes_of(job, load, layout);
    const double share = load.block > 0 ? load.block_trained / load.block : 0;
    const double up = model.mlp == config::MlpKind::swiglu ? 2 : 1;
    const std::array<Linear, 4> linears = {{{(sizes.heads + 2 * sizes.keys) * sizes.head_width, sizes.width, share},
                                            {sizes.width, sizes.heads * sizes.head_width, share},
                                            {up * sizes.hidden, sizes.width, share},
                                            {sizes.width, sizes.hidden, share}}};
    PassTime time;
    for (const Linear& linear : linears) {
        const auto product = [&](double rows, double columns, double depth, double inner) {
            return product_seconds(hardware, precision, {rows, columns, depth, 1, static_cast<std::int64_t>(inner)});
        };
        const double inner = std::fmod(linear.columns, 8) != 0 ? linear.columns : linear.depth;
        time.forward += product(sizes.rows, linear.columns, linear.depth, inner);
        time.backward += product(sizes.rows, linear.depth, linear.columns, inner);
        time.backward += linear.trained * product(linear.columns, linear.depth, sizes.rows, inner);
    }
    const Mixing mixing = mixing_time(hardware, job, load, sizes);
    const double rate = hardware.bytes_per_second(), number = bytes_of(precision);
    const auto t = static_cast<double>(layout.tensor);
    const double stream = sizes.rows * sizes.width * number;
    const double stream_here = layout.sequence ? stream / t : stream;
    const double hidden = sizes.rows * sizes.hidden * number;
    const double hidden_passes = model.mlp == config::MlpKind::swiglu ? 3 : 2;
    time.forward += mixing.forward + (program.stream_passes_forward * stream_here + hidden_passes * hidden) / rate +
                    program.forward_kernels * hardware.device.kernel_us * 1e-6;
    const double remade = time.forward;
    time.backward += mixing.backward +
                     (program.stream_passes_backward * stream_here + (hidden_passes + 1) * hidden) / rate +
                     program.backward_kernels * hardware.device.kernel_us * 1e-6;
    time.backward += load.block_trained / t * program.accumulated_bytes / rate;
    const double reductions = 2 * tensor_reduction_seconds(hardware, layout, stream);
    time.tensor_forward = time.tensor_backward = reductions;
    if (layout.recompute == config::Recompute::full) {
        time.recomputation = remade;
        time.tensor_recomputation = reductions;
    } else if (layout.recompute == config::Recompute::selective) {
        time.recomputation = mixing.forward;
    }
    if (!load.trains()) {  // a pass forward, nothing to come back for
        time.recomputation = time.tensor_recomputation = time.backward = time.tensor_backward = 0;
    }
    return time;
}

double head_seconds(const config::Machine& hardware, const Job& job, const ModelLoad& load, const Layout& layout) {
    config::Precision precision = job.run.precision.compute;
    const auto vocabulary = static_cast<double>(load.shape.vocabulary) / static_cast<double>(layout.tensor);
    const auto width = static_cast<double>(load.shape.width);
    // Parts differ by a row where t does not divide the vocabulary: then one of them is not aligned.
    const std::int64_t inner = load.shape.vocabulary % layout.tensor == 0 ? load.shape.vocabulary / layout.tensor : 1;
    const double rows = static_cast<double>(layout.micro * job.run.batch.length) / static_cast<double>(layout.context);
    double seconds = product_seconds(hardware, precision, {rows, vocabulary, width, 1, inner});
    if (load.trains()) {
        seconds += product_seconds(hardware, precision, {rows, width, vocabulary, 1, inner});
        const double trained = load.head > 0 ? load.head_trained / load.head : 0;
        seconds += trained * product_seconds(hardware, precision, {vocabulary, width, rows, 1, inner});
    }
    return seconds +
           rows * vocabulary * job.program.logit_moved_bytes * bytes_of(precision) / 2 / hardware.bytes_per_second();
}

}  // namespace lockstep::cost
