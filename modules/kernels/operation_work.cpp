#include "kernels/operation_work.hpp"

#include <algorithm>

namespace lockstep::kernels {

double total_flop(const std::vector<Operation>& operations) {
    double flop = 0;
    for (const Operation& operation : operations) flop += operation.times * operation.flop;
    return flop;
}

Operation moved_work(OperationKind kind, Type type, double bytes) {
    Operation work;
    work.kind = kind;
    work.type = type;
    work.bytes = bytes;
    return work;
}

Operation product_work(OperationKind kind, Type type, std::int64_t rows, std::int64_t columns, std::int64_t depth) {
    Operation work;
    work.kind = kind;
    work.type = type;
    work.rows = static_cast<double>(rows);
    work.columns = static_cast<double>(columns);
    work.depth = static_cast<double>(depth);
    work.flop = 2 * work.rows * work.columns * work.depth;
    work.bytes = static_cast<double>(type_bytes(type)) *
                 (work.rows * work.depth + work.depth * work.columns + work.rows * work.columns);
    // Row strides of the first matrix, the second and the result.
    const std::int64_t first = kind == OperationKind::product_weight_gradient ? rows : depth;
    const std::int64_t second = kind == OperationKind::product_forward ? depth : columns;
    const auto aligned = static_cast<std::int64_t>(16 / type_bytes(type));
    for (const std::int64_t length : {first, second, columns})
        if (work.row_length == 0 || length % aligned != 0) work.row_length = length;
    return work;
}

namespace {

// Pairs of keys and queries at positions from `first` on: each query's keys are as many as its position, of `keys` at
// most. Positions below 0 have none.
double rising_pairs(double first, double queries, double keys) {
    const auto below = [keys](double position) {
        const double rising = std::clamp(position, 0.0, keys);
        return rising * rising / 2 + keys * std::max(position - keys, 0.0);
    };
    return below(first + queries) - below(first);
}

}  // namespace

Operation attention_work(const AttentionShape& shape, Type type, bool backward) {
    Operation work;
    work.kind = backward ? OperationKind::attention_backward : OperationKind::attention_forward;
    work.type = type;
    const auto queries = static_cast<double>(shape.query_length), keys = static_cast<double>(shape.key_length);
    const auto width = static_cast<double>(shape.head_width);
    work.batch = static_cast<double>(shape.batch * shape.heads);
    // Two products over what is seen; what a window hides is what the queries that far behind see.
    const auto position = static_cast<double>(shape.query_position);
    double pairs = rising_pairs(position, queries, keys);
    if (shape.window > 0) pairs -= rising_pairs(position - static_cast<double>(shape.window), queries, keys);
    work.flop = 4 * work.batch * width * pairs;
    const double query_rows = queries * static_cast<double>(shape.batch * shape.heads) * width;
    const double key_rows = static_cast<double>(shape.key_length - shape.first_seen(0)) *
                            static_cast<double>(shape.batch * shape.key_heads) * width;
    work.bytes = static_cast<double>(type_bytes(type)) * 2 * (query_rows + key_rows);
    if (backward) {
        work.flop *= 2;
        work.bytes *= 2;
    }
    return work;
}

Operation ttt_work(const TttShape& shape, Type type, bool backward) {
    Operation work;
    if (shape.mlp)
        work.kind = backward ? OperationKind::ttt_mlp_backward : OperationKind::ttt_mlp_forward;
    else
        work.kind = backward ? OperationKind::ttt_linear_backward : OperationKind::ttt_linear_forward;
    work.type = type;
    const auto f = static_cast<double>(shape.head_width), b = static_cast<double>(shape.mini_batch);
    work.batch = static_cast<double>(shape.batch * shape.heads);
    const double tokens = work.batch * static_cast<double>(shape.length);
    work.flop = tokens * (shape.mlp ? 56 * f * f + 20 * b * f : 6 * f * f + 4 * b * f);
    work.bytes = static_cast<double>(type_bytes(type)) * 4 * tokens * f;
    if (backward) {
        work.flop *= 2;
        work.bytes *= 2;
    }
    return work;
}

Operation delta_work(const DeltaShape& shape, Type type, bool backward) {
    Operation work;
    work.kind = backward ? OperationKind::delta_backward : OperationKind::delta_forward;
    work.type = type;
    const auto fk = static_cast<double>(shape.key_width), fv = static_cast<double>(shape.value_width);
    work.batch = static_cast<double>(shape.batch * shape.heads);
    const double tokens = static_cast<double>(shape.batch * shape.length);
    work.flop = 6 * tokens * static_cast<double>(shape.heads) * fk * fv;
    work.bytes = static_cast<double>(type_bytes(type)) * 2 * tokens *
                 (static_cast<double>(shape.key_heads) * fk + static_cast<double>(shape.heads) * fv);
    if (backward) {
        work.flop *= 2;
        work.bytes *= 2;
    }
    return work;
}

}  // namespace lockstep::kernels
