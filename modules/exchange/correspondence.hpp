// Where a parameter of ours lies among the tensors of a Hugging Face model.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "device/tensor.hpp"
#include "exchange/tensor_files.hpp"

namespace lockstep::exchange {

// Our tensor, seen as rows [shape[0]] of the rest of its axes, is rows [first_row, first_row + shape[0]) of theirs,
// which has `their_rows`. `transposed`: theirs is [columns, rows], as the weights of GPT-2 are.
struct Correspondence {
    std::string ours;  // "blocks/0/mixer/query/weight"
    Shape shape;
    std::string theirs;  // "model.layers.0.self_attn.q_proj.weight"
    bool transposed = false;
    std::int64_t first_row = 0, their_rows = 0;

    Shape their_shape() const;
    std::int64_t columns() const { return element_count(shape) / shape[0]; }
};

// Elements [first, first + count) of ours, from theirs.
void read_ours(const Correspondence& names, const TensorFiles::Place& theirs, std::int64_t first, std::int64_t count,
               float* to);

// Elements [first, first + count) of ours, as runs of theirs: sink(first element of theirs, count, values).
using RunSink = std::function<void(std::int64_t first, std::int64_t count, const float* values)>;
void write_theirs(const Correspondence& names, std::int64_t first, std::int64_t count, const float* values,
                  const RunSink& sink);

}  // namespace lockstep::exchange
