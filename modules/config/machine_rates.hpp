// What the operations of our own program cost on a machine: measured by `lockstep bench --calibrate`, read by
// own_step_time. Every number is that of one rank while all ranks of the calibration are busy at once.
// docs/planner-own-program.md has the equations in which each stands.
#pragma once

#include <string>
#include <vector>

#include "config/key.hpp"

namespace lockstep::config {

// A matrix product takes us + FLOP / rate + bytes of its three matrices / bandwidth. A rate of 0: its term is nothing.
struct ProductRate {
    double us = 0, tflops = 0, gb_per_second = 0;
    double seconds(double flop, double bytes) const;
};

struct ProductRates {
    ProductRate forward, input_gradient, weight_gradient;
};

// Attention and the scans of TTT and DeltaNet: model FLOP (causal attention half of the square; backward twice forward)
// / rate + bytes of queries, keys, values and outputs / bandwidth.
struct MixingRate {
    double tflops = 0, gb_per_second = 0;
    bool measured() const { return tflops > 0 || gb_per_second > 0; }
    double seconds(double flop, double bytes) const;
};

// In one compute type. Operations that are bound by memory move each tensor once.
struct PrecisionRates {
    ProductRates layer, head;  // the head's matrix is many times as large as the caches
    MixingRate attention_forward, attention_backward;
    MixingRate ttt_linear_forward, ttt_linear_backward, ttt_mlp_forward, ttt_mlp_backward;
    MixingRate delta_forward, delta_backward;
    struct Memory {  // GB/s
        double norm_forward = 0, norm_backward = 0, activation_forward = 0, activation_backward = 0;
        double gated_forward = 0, gated_backward = 0, rotate = 0, copy = 0, bias_gradient = 0;
        double convolution_forward = 0, convolution_backward = 0, embedding_forward = 0, embedding_backward = 0;
        double cross_entropy = 0, adamw = 0;
    } memory;
    double all_reduce_gb_per_second = 0;  // of activations: 2 (R - 1) / R of the bytes at this rate
    // A fit may find any one of a product's costs to be nothing.
    bool measured() const {
        return layer.forward.us > 0 || layer.forward.tflops > 0 || layer.forward.gb_per_second > 0;
    }
    void add_keys(const std::string& section, const std::string& type, std::vector<Key>& list);
};

struct Rates {
    double ranks = 0, threads = 0;  // of the calibration: on a node; of a rank. 0: not calibrated
    double cores = 0;               // of the node that the calibration could use; GPUs on a machine of GPUs
    double bf16_is_fp32 = 0;        // 1: its processors have no bf16, and runs in it compute in fp32
    double repeat_spread = 0;       // how far repeats of a measurement lay apart, as a share; 0: not known
    double busy_share = 0;          // of the cores, used by other programs when the calibration began
    double operation_us = 0;        // of an operation on next to nothing
    double team_us = 0;             // more, where a rank has several threads
    double team_efficiency = 1;     // of a rank that has all cores, against as many ranks of one thread: products
    double fill_gb_per_second = 0, norm_gb_per_second = 0;  // fp32 gradients set to zero; their sum of squares
    PrecisionRates fp32, bf16;                              // bf16: fp16 too, on GPUs
    struct Messages {                                       // between ranks of a node
        double latency_us = 0, gb_per_second = 0;           // from one rank to the next
        double all_reduce_us = 0;                           // of 8 bytes, two ranks
        // Of gradients, in buckets: an all-reduce moves 2 (R - 1) / R of the bytes, a scatter or gather (R - 1) / R.
        double bucket_gb_per_second = 0, scatter_gb_per_second = 0, gather_gb_per_second = 0;
    } messages;
    double loading_mtokens_per_second = 0;  // tokens of a memory-mapped file into a batch
    double checkpoint_gb_per_second = 0;    // into the folder of the calibration, to the disk

    bool measured() const { return ranks > 0; }
    static constexpr double most_busy_share = 0.1, most_spread = 0.2;
    // Why they should not be trusted: "" or "other programs used 95 % of the cores, and repeats …".
    std::string doubt() const;
    void add_keys(std::vector<Key>& list);
};

}  // namespace lockstep::config
