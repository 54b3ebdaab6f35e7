// Shared by the attention kernels: shapes, strides, and which variant takes which heads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "kernels/attention_limits.hpp"
#include "kernels/backend.hpp"
#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/documents.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/tile.hpp"

namespace lockstep::kernels::cuda {

// Heads of up to `width_` columns; columns beyond a head's own are zeros in shared memory. exact_: the head has all of
// them, of 16 bits each, as the tuned kernels require. vectors_: rows begin 16-byte aligned and heads are whole
// vectors.
template <class Element, int width_, bool exact_, bool vectors_>
struct HeadWidth {
    using T = Element;
    static constexpr int width = width_, vector = 16 / static_cast<int>(sizeof(T));
    static constexpr bool exact = exact_, vectors = vectors_;
    static constexpr int stride = width + vector;  // of a row in shared memory: no ldmatrix bank conflicts
    static constexpr int row_bytes = stride * static_cast<int>(sizeof(T));
};

// Elements from a row of a tensor to the next; y and dy are dense.
struct RowStrides {
    int q, k, v, dq, dk, dv;  // the last three: backward's
};

// Of kernels that are `bounded`: with a window, documents, a cap of scores, or several of these. The others are as fast
// as they can be.
struct ScoreBounds {
    int window;         // keys a query sees at most, its own position's the last
    float scale;        // from a product to what tanh is taken of, or without a cap to the score in units of log2
    float cap;          // in units of log2; 0: none
    float inverse_cap;  // 0 without one

    // d score / d product, over what it would be without a cap. Not NaN for a hidden score, -INFINITY.
    __device__ float slope(float score) const {
        const float share = score * inverse_cap;
        return fmaxf(fmaf(-share, share, 1.0f), 0.0f);
    }
};

struct AttentionSizes {
    int query_length, key_length, heads, group, width;  // group: query heads per key head
    int query_position;                                 // of the first query, counted from the first key
    RowStrides strides;
    float scale, scale_log2;  // 1/sqrt(f), and times log2(e)
    ScoreBounds bounds;
    DocumentPlaces documents;

    // Of bounded kernels: the first key that a query sees, ascending; and the position, counted from the first key,
    // behind that of the last query that sees a key, ascending. Queries and keys beyond the last count as that.
    __device__ int first_key(int sequence, int token) const {
        const int query = min(token, query_length - 1);
        const int key = max(query + query_position - bounds.window + 1, 0);
        return documents.starts ? max(key, documents.begin(sequence, query) + query_position) : key;
    }
    __device__ int end_of_queries(int sequence, int key) const {
        const int of_all = min(key, key_length - 1), end = of_all + bounds.window;
        return documents.ends ? min(end, documents.end(sequence, of_all - query_position) + query_position) : end;
    }

    __device__ int key_heads() const { return heads / group; }
    __device__ int output_stride() const { return heads * width; }  // of y and dy
    // The first element of a head of a sequence, in queries and what is like them, and in keys.
    __device__ std::int64_t query_head(int sequence, int head, int stride) const {
        return static_cast<std::int64_t>(sequence) * query_length * stride + head * width;
    }
    __device__ std::int64_t key_head(int sequence, int head, int stride) const {
        return static_cast<std::int64_t>(sequence) * key_length * stride + head * width;
    }
};

constexpr float log2_of_e = 1.44269504088896340736f, log_of_2 = 0.69314718055994530942f;

// Elements from a row of a matrix of `columns` columns to the next.
inline int row_stride(const Tensor& tensor, std::int64_t columns) {
    LOCKSTEP_ASSERT(tensor.dense() || tensor.size(-1) == columns);
    const std::int64_t stride = tensor.dense() ? columns : tensor.stride();
    LOCKSTEP_ASSERT(stride < (std::int64_t{1} << 23));  // times the rows of a tile: 32 bit
    return static_cast<int>(stride);
}

inline bool is_bounded(const AttentionShape& shape) {
    return shape.window > 0 || shape.score_cap > 0 || !shape.documents.joined();
}

// Shape checks common to forward and backward, and the kernels' view of the shapes.
inline AttentionSizes attention_sizes(const AttentionShape& shape, const Tensor& q, const Tensor& k, const Tensor& v,
                                      const Tensor& y, const Tensor& log_sum_exp) {
    LOCKSTEP_ASSERT(shape.valid());
    // Rows of a key head, and elements of a tile: 32 bit.
    const std::int64_t longest = std::max(shape.key_length, shape.query_length) * (shape.heads / shape.key_heads);
    LOCKSTEP_ASSERT(longest < (std::int64_t{1} << 30));
    const std::int64_t queries = shape.heads * shape.head_width, keys = shape.key_heads * shape.head_width;
    const std::int64_t query_rows = shape.batch * shape.query_length, key_rows = shape.batch * shape.key_length;
    LOCKSTEP_ASSERT(q.count() == query_rows * queries && y.count() == query_rows * queries);
    LOCKSTEP_ASSERT(k.count() == key_rows * keys && v.count() == key_rows * keys);
    LOCKSTEP_ASSERT(k.type() == q.type() && v.type() == q.type() && y.type() == q.type());
    LOCKSTEP_ASSERT(log_sum_exp.type() == Type::fp32 && log_sum_exp.count() == query_rows * shape.heads);
    LOCKSTEP_ASSERT(shape.query_position < (std::int64_t{1} << 30));
    const float scale = 1.0f / std::sqrt(static_cast<float>(shape.head_width)), cap = shape.score_cap;
    // A window beyond all positions hides nothing.
    const std::int64_t window = shape.window > 0 ? shape.window : std::int64_t{1} << 30;
    return {
        static_cast<int>(shape.query_length),
        static_cast<int>(shape.key_length),
        static_cast<int>(shape.heads),
        static_cast<int>(shape.heads / shape.key_heads),
        static_cast<int>(shape.head_width),
        // Beyond the last key it makes no difference, but to a window.
        static_cast<int>(is_bounded(shape) ? shape.query_position : std::min(shape.query_position, shape.key_length)),
        {row_stride(q, queries), row_stride(k, keys), row_stride(v, keys), 0, 0, 0},
        scale,
        scale * log2_of_e,
        {static_cast<int>(std::min(window, std::int64_t{1} << 30)), cap > 0 ? scale / cap : scale * log2_of_e,
         cap * log2_of_e, cap > 0 ? 1.0f / (cap * log2_of_e) : 0.0f},
        DocumentPlaces(shape.documents)};
}

// Whether rows of `tensor`, `stride` elements apart, begin 16-byte aligned.
inline bool aligned_rows(const Tensor& tensor, std::int64_t stride) {
    return reinterpret_cast<std::uintptr_t>(tensor.strided_data()) % 16 == 0 &&
           stride * static_cast<std::int64_t>(type_bytes(tensor.type())) % 16 == 0;
}

// Calls function(HeadWidth<T, …>()) for the kernels of this head width; `aligned`: the rows of all tensors are.
template <class T, class Function>
void with_head_width(const AttentionSizes& sizes, bool aligned, Function&& function) {
    const int width = sizes.width;
    if (aligned && width * sizeof(T) % 16 == 0) {
        if constexpr (sizeof(T) == 2) {
            if (width == 64) return function(HeadWidth<T, 64, true, true>{});
            if (width == 96) return function(HeadWidth<T, 96, true, true>{});
            if (width == 128) return function(HeadWidth<T, 128, true, true>{});
        }
        if (width <= 32) return function(HeadWidth<T, 32, false, true>{});
        if (width <= 64) return function(HeadWidth<T, 64, false, true>{});
        if (width <= 128) return function(HeadWidth<T, 128, false, true>{});
        if (width <= widest_head_on_gpu) return function(HeadWidth<T, widest_head_on_gpu, false, true>{});
    }
    if (width <= 64) return function(HeadWidth<T, 64, false, false>{});
    if (width <= widest_head_on_gpu) return function(HeadWidth<T, widest_head_on_gpu, false, false>{});
    throw usage_error("attention on a GPU supports heads of up to {} columns, but these have {}: use more heads",
                      widest_head_on_gpu, width);
}

// Calls function(std::bool_constant<…>()) for kernels that are bounded or not.
template <class Function>
void with_bounds(const AttentionShape& shape, Function&& function) {
    if (is_bounded(shape)) return function(std::true_type{});
    function(std::false_type{});
}

// A one-dimensional grid of `count` blocks.
inline dim3 grid_of(std::int64_t count) {
    LOCKSTEP_ASSERT(count < (std::int64_t{1} << 31));
    return dim3(static_cast<unsigned>(count), 1, 1);
}

}  // namespace lockstep::kernels::cuda
