// The machine-independent work of training operations: FLOP and bytes moved. The counting backend
// (counting_backend.hpp) makes a list of a model's operations; planner, calibration and benchmarks take FLOP and bytes
// from here, so that measured rates and predicted times agree about the work.
//
// Model FLOP, additive: a product 2 m n k, causal attention half of the square, a TTT scan H (6 f² + 4 b f) per token
// for the linear inner model and H (56 f² + 20 b f) for the MLP, the delta rule 6 H fk fv; a backward pass of each has
// twice the FLOP of its forward pass. Bytes: every large tensor once per read or write; accumulation reads and writes.
// Statistics, a few numbers per row, are ignored.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/backend.hpp"

namespace lockstep::kernels {

enum class OperationKind : std::uint8_t {
    product_forward,          // [m, k] times a transposed [n, k]: a layer's output
    product_input_gradient,   // neither transposed
    product_weight_gradient,  // the first transposed
    attention_forward,
    attention_backward,
    ttt_linear_forward,
    ttt_linear_backward,
    ttt_mlp_forward,
    ttt_mlp_backward,
    delta_forward,
    delta_backward,
    norm_forward,
    norm_backward,
    activation_forward,
    activation_backward,
    gated_forward,
    gated_backward,
    rotate,
    copy,  // copies, sums, fills and similar operations on activations
    bias_gradient,
    convolution_forward,
    convolution_backward,
    embedding_forward,
    embedding_backward,
    cross_entropy,
    optimizer,
    custom,
    launch,  // overhead of `times` kernel launches
    // Messages: bytes of the whole tensor.
    all_reduce,
    all_gather,
    reduce_scatter,
    send,
    receive,
};

// The ranks that communicate.
enum class MessageGroup : std::uint8_t { none, tensor, context };

struct Operation {
    OperationKind kind = OperationKind::copy;
    MessageGroup group = MessageGroup::none;
    Type type = Type::fp32;  // of inputs
    bool accumulates = false;
    double times = 1;  // repetitions; fractional for described programs
    double flop = 0, bytes = 0;
    // Of a product: c [rows, columns], sums of `depth` terms, in a batch of `batch`. `row_length`: row stride in
    // elements of the worst-aligned matrix; 0: aligned. Of attention and scans: batch is the number of independent
    // heads of sequences.
    double rows = 0, columns = 0, depth = 0, batch = 1;
    std::int64_t row_length = 0;
    std::int64_t distance = 1;   // of a message from rank to rank: places apart in their group
    const char* name = nullptr;  // of a custom operation

    bool is_product() const { return kind <= OperationKind::product_weight_gradient; }
    bool is_message() const { return kind >= OperationKind::all_reduce; }
};

double total_flop(const std::vector<Operation>& operations);

// Without accumulation; bytes of all three matrices.
Operation product_work(OperationKind kind, Type type, std::int64_t rows, std::int64_t columns, std::int64_t depth);
Operation attention_work(const AttentionShape& shape, Type type, bool backward);
Operation ttt_work(const TttShape& shape, Type type, bool backward);
Operation delta_work(const DeltaShape& shape, Type type, bool backward);
Operation moved_work(OperationKind kind, Type type, double bytes);

}  // namespace lockstep::kernels
