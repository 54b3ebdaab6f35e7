// What the operations of a training step cost apart from any machine: their arithmetic and the bytes they move. The
// backend that counts (counting_backend.hpp) makes such a list of what a model issues; planner, calibration and
// benchmarks take FLOP and bytes from it, so that a measured rate and a predicted time cannot disagree about the work.
//
// FLOP are model FLOP in their additive form: a product 2 m n k, causal attention half of the square, a TTT scan
// H (6 f² + 4 b f) a token for the linear inner model and H (56 f² + 20 b f) for the MLP; a backward pass of either has
// twice the FLOP of its forward pass. Bytes are those of every large tensor read or written once; what is added to is
// read and written. Statistics, a few numbers a row, are left out.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/backend.hpp"

namespace lockstep::kernels {

enum class OperationKind : std::uint8_t {
    product_forward,          // [m, k] times the transpose of [n, k]: a layer's output
    product_input_gradient,   // neither is transposed
    product_weight_gradient,  // the first is transposed
    attention_forward,
    attention_backward,
    ttt_linear_forward,
    ttt_linear_backward,
    ttt_mlp_forward,
    ttt_mlp_backward,
    norm_forward,
    norm_backward,
    activation_forward,
    activation_backward,
    gated_forward,
    gated_backward,
    rotate,
    copy,  // copies, sums and fills of activations, and what is as simple
    bias_gradient,
    convolution_forward,
    convolution_backward,
    embedding_forward,
    embedding_backward,
    cross_entropy,
    optimizer,
    custom,
    launch,  // of kernels, `times` of them, apart from what they do
    // Messages: bytes of the whole tensor.
    all_reduce,
    all_gather,
    reduce_scatter,
    send,
    receive,
};

// The ranks that a message goes among.
enum class MessageGroup : std::uint8_t { none, tensor, context };

struct Operation {
    OperationKind kind = OperationKind::copy;
    MessageGroup group = MessageGroup::none;
    Type type = Type::fp32;  // of what is read
    bool accumulates = false;
    double times = 1;  // it is done; a described program may have shares of operations
    double flop = 0, bytes = 0;
    // Of a product: c [rows, columns], sums of `depth` terms, `batch` of them at once. `row_length`: elements from row
    // to row in memory, of the matrix that is worst aligned; 0: aligned. Of attention and scans: batch is the number of
    // heads of sequences, which are independent of each other.
    double rows = 0, columns = 0, depth = 0, batch = 1;
    std::int64_t row_length = 0;
    const char* name = nullptr;  // of a custom operation

    bool is_product() const { return kind <= OperationKind::product_weight_gradient; }
    bool is_message() const { return kind >= OperationKind::all_reduce; }
};

double total_flop(const std::vector<Operation>& operations);

// Without accumulation; bytes of the three matrices.
Operation product_work(OperationKind kind, Type type, std::int64_t rows, std::int64_t columns, std::int64_t depth);
Operation attention_work(const AttentionShape& shape, Type type, bool backward);
Operation ttt_work(const TttShape& shape, Type type, bool backward);
Operation moved_work(OperationKind kind, Type type, double bytes);

}  // namespace lockstep::kernels
