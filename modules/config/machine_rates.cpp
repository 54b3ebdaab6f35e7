#include "config/machine_rates.hpp"

#include <fmt/format.h>

namespace lockstep::config {
namespace {

double over(double amount, double rate) {
    return rate > 0 ? amount / rate : 0;
}

}  // namespace

double ProductRate::seconds(double flop, double bytes) const {
    return us * 1e-6 + over(flop, tflops * 1e12) + over(bytes, gb_per_second * 1e9);
}

double MixingRate::seconds(double flop, double bytes) const {
    return over(flop, tflops * 1e12) + over(bytes, gb_per_second * 1e9);
}

void PrecisionRates::add_keys(const std::string& section, const std::string& type, std::vector<Key>& list) {
    const auto add = [&](const std::string& name, double& value, const std::string& meaning) {
        list.push_back({section + "." + name, &value, meaning, 0});
    };
    const auto product = [&](const std::string& name, ProductRate& rate, const std::string& what) {
        add(name + ".us", rate.us, "microseconds of " + what + " in addition to the terms below");
        add(name + ".tflops", rate.tflops, "TFLOP/s of " + what + ", " + type);
        add(name + ".gb_per_second", rate.gb_per_second, "GB/s of its three matrices; 0: they cost nothing");
    };
    const auto mixing = [&](const std::string& name, MixingRate& rate, const std::string& what) {
        add(name + ".tflops", rate.tflops, "TFLOP/s of " + what + ", model FLOP");
        add(name + ".gb_per_second", rate.gb_per_second, "GB/s of its rows; 0: they cost nothing");
    };
    const auto products = [&](const std::string& name, ProductRates& rates, const std::string& of) {
        product(name + ".forward", rates.forward, "products of " + of + ", forward");
        product(name + ".input_gradient", rates.input_gradient, "gradients of the inputs of " + of);
        product(name + ".weight_gradient", rates.weight_gradient, "gradients of the weights of " + of + ", added");
    };
    products("layer", layer, "layers");
    products("head", head, "the head");
    mixing("attention_forward", attention_forward, "causal attention");
    mixing("attention_backward", attention_backward, "its backward");
    mixing("ttt_linear_forward", ttt_linear_forward, "the scan of TTT-Linear");
    mixing("ttt_linear_backward", ttt_linear_backward, "its backward");
    mixing("ttt_mlp_forward", ttt_mlp_forward, "the scan of TTT-MLP");
    mixing("ttt_mlp_backward", ttt_mlp_backward, "its backward");
    mixing("delta_forward", delta_forward, "the gated delta rule");
    mixing("delta_backward", delta_backward, "its backward");
    const auto moved = [&](const std::string& name, double& value, const std::string& what) {
        add("memory." + name, value, "GB/s read and written by " + what);
    };
    moved("norm_forward", memory.norm_forward, "a norm");
    moved("norm_backward", memory.norm_backward, "its backward");
    moved("activation_forward", memory.activation_forward, "GELU");
    moved("activation_backward", memory.activation_backward, "its backward");
    moved("gated_forward", memory.gated_forward, "SwiGLU");
    moved("gated_backward", memory.gated_backward, "its backward");
    moved("rotate", memory.rotate, "rotary positions");
    moved("copy", memory.copy, "copies and sums of activations");
    moved("bias_gradient", memory.bias_gradient, "sums of columns");
    moved("convolution_forward", memory.convolution_forward, "a convolution along the sequence");
    moved("convolution_backward", memory.convolution_backward, "its backward");
    moved("embedding_forward", memory.embedding_forward, "the embedding");
    moved("embedding_backward", memory.embedding_backward, "its gradient, added in fp32");
    moved("cross_entropy", memory.cross_entropy, "cross-entropy and its gradient");
    moved("adamw", memory.adamw, "AdamW");
    add("all_reduce_gb_per_second", all_reduce_gb_per_second, "GB/s per rank in an all-reduce of activations");
}

std::string Rates::doubt() const {
    std::string why;
    if (busy_share > most_busy_share) why = fmt::format("other programs used {:.0f} % of the cores", 100 * busy_share);
    if (repeat_spread > most_spread)
        why += fmt::format("{}repeats of a measurement differ by {:.0f} %", why.empty() ? "" : ", and ",
                           100 * repeat_spread);
    return why;
}

void Rates::add_keys(std::vector<Key>& list) {
    const auto add = [&](const std::string& name, double& value, const std::string& meaning) {
        list.push_back({"rates." + name, &value, meaning, 0});
    };
    add("ranks", ranks, "ranks per node that were busy at once");
    add("threads", threads, "threads per rank, or 1 GPU");
    add("cores", cores, "cores of the node, or its GPUs");
    add("bf16_is_fp32", bf16_is_fp32, "1: the processors have no bf16; bf16 runs compute in fp32");
    list.back().most = 1;
    add("repeat_spread", repeat_spread, "spread of repeated measurements, as a share: busy if above 0.2");
    add("busy_share", busy_share, "share of the cores that other programs used: busy if above 0.1");
    list.back().most = 1;
    add("operation_us", operation_us, "microseconds of an operation on almost no data");
    add("team_us", team_us, "extra microseconds where a rank has several threads");
    add("team_efficiency", team_efficiency,
        "rate of products of one rank with all cores, relative to ranks of one thread");
    add("fill_gb_per_second", fill_gb_per_second, "GB/s of zeroing gradients");
    add("norm_gb_per_second", norm_gb_per_second, "GB/s of summing their squares");
    add("loading_mtokens_per_second", loading_mtokens_per_second, "million tokens per second loaded into a batch");
    add("checkpoint_gb_per_second", checkpoint_gb_per_second, "GB/s from a node to the calibration's folder");
    add("messages.latency_us", messages.latency_us, "microseconds of a small message to the next rank");
    add("messages.gb_per_second", messages.gb_per_second, "GB/s of a large one");
    add("messages.all_reduce_us", messages.all_reduce_us, "microseconds per step of an 8-byte all-reduce");
    add("messages.bucket_gb_per_second", messages.bucket_gb_per_second, "GB/s per rank in an all-reduce of gradients");
    add("messages.scatter_gb_per_second", messages.scatter_gb_per_second,
        "GB/s per rank in a reduce-scatter of gradients");
    add("messages.gather_gb_per_second", messages.gather_gb_per_second, "GB/s per rank in a gather of parameters");
    fp32.add_keys("rates.fp32", "fp32", list);
    bf16.add_keys("rates.bf16", "bf16 or fp16", list);
}

}  // namespace lockstep::config
