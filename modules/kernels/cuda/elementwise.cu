// Fills, copies, sums, biases. All are memory-bound.
#include "kernels/cuda/columns.hpp"
#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/pack.hpp"
#include "kernels/cuda/reduce.hpp"

namespace lockstep::kernels::cuda {
namespace {

struct Copy {
    __device__ void operator()(const float (&x)[1], float (&y)[1]) const { y[0] = x[0]; }
};
struct Add {
    __device__ void operator()(const float (&x)[2], float (&y)[1]) const { y[0] = x[0] + x[1]; }
};
struct Scale {
    float factor;
    __device__ void operator()(const float (&x)[1], float (&y)[1]) const { y[0] = x[0] * factor; }
};

constexpr unsigned threads = 256;
constexpr int pieces = 4;  // packs in flight per thread

template <class Element>
__global__ void fill_kernel(Element* y, std::int64_t count, bool aligned, Element value) {
    constexpr int width = pack_width<Element>();
    constexpr std::int64_t tile = static_cast<std::int64_t>(threads) * width * pieces;
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * tile;
    const int thread = static_cast<int>(threadIdx.x);
    if (aligned && first + tile <= count) {
        Pack<Element, width> values;
#pragma unroll
        for (int e = 0; e < width; ++e) values.at[e] = value;
#pragma unroll
        for (int p = 0; p < pieces; ++p)
            store_pack(y + first + (p * static_cast<int>(threads) + thread) * width, values);
        return;
    }
    const std::int64_t last = first + tile < count ? first + tile : count;
    for (std::int64_t i = first + thread; i < last; i += threads) y[i] = value;
}

template <class Element>
void fill_with(cudaStream_t stream, const Tensor& y, Element value) {
    constexpr int width = pack_width<Element>();
    launch(
        {"fill", dim3(blocks_for(y.count(), static_cast<std::int64_t>(threads) * width * pieces)), threads, 0, stream},
        fill_kernel<Element>, elements<Element>(y), y.count(), aligned_for(width, 0, elements<Element>(y)), value);
}

// Small tensors, a row of blocks each.
constexpr int cleared_at_once = 32;
constexpr std::int64_t longest_cleared_at_once = std::int64_t{1} << 16, clear_tile = std::int64_t{threads} * pieces;
struct ToClear {
    float* at[cleared_at_once];
    int count[cleared_at_once];
};

__global__ void __launch_bounds__(threads) clear_kernel(ToClear tensors) {
    // Selected by comparing: an index into the parameters would copy them to local memory.
    float* at = tensors.at[0];
    int count = tensors.count[0];
#pragma unroll
    for (unsigned number = 1; number < cleared_at_once; ++number)
        if (blockIdx.y == number) {
            at = tensors.at[number];
            count = tensors.count[number];
        }
    const int first = static_cast<int>(blockIdx.x * clear_tile + threadIdx.x);
#pragma unroll
    for (int piece = 0; piece < pieces; ++piece) {
        const int i = first + piece * static_cast<int>(threads);
        if (i < count) at[i] = 0;
    }
}

// Partial sums in fp64, one per block; the number of blocks depends only on the count. With squares, the blocks'
// numbers of zeros follow.
constexpr int sum_width = pack_width<float>();
constexpr std::int64_t sum_tile = static_cast<std::int64_t>(threads) * sum_width * pieces;

template <bool squares>
__global__ void __launch_bounds__(threads, 6)
    partial_sums_kernel(double* partials, const float* x, std::int64_t count, bool aligned) {
    const int thread = static_cast<int>(threadIdx.x);
    const auto term = [](float value) {
        const double wide = static_cast<double>(value);
        return squares ? wide * wide : wide;
    };
    double sums[sum_width] = {};
    std::uint32_t zeros = 0;
    for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * sum_tile; first < count;
         first += static_cast<std::int64_t>(gridDim.x) * sum_tile) {
        if (aligned && first + sum_tile <= count) {
            Pack<float, sum_width> values[pieces];
#pragma unroll
            for (int p = 0; p < pieces; ++p)
                values[p] = load_pack<sum_width>(x + first + (p * static_cast<int>(threads) + thread) * sum_width);
#pragma unroll
            for (int p = 0; p < pieces; ++p)
#pragma unroll
                for (int e = 0; e < sum_width; ++e) {
                    sums[e] += term(values[p].at[e]);
                    if (squares) zeros += values[p].at[e] == 0.0f ? 1 : 0;
                }
        } else {
            const std::int64_t last = first + sum_tile < count ? first + sum_tile : count;
            for (std::int64_t i = first + thread; i < last; i += threads) {
                sums[0] += term(x[i]);
                if (squares) zeros += x[i] == 0.0f ? 1 : 0;
            }
        }
    }
    double sum = sums[0];
#pragma unroll
    for (int e = 1; e < sum_width; ++e) sum += sums[e];
    sum = block_sum(sum, shared_memory<double>());
    if (thread == 0) partials[blockIdx.x] = sum;
    if (squares) {
        const double all_zeros = block_sum(static_cast<double>(zeros), shared_memory<double>());
        if (thread == 0) partials[gridDim.x + blockIdx.x] = all_zeros;
    }
}

// A thread block for each block of elements.
__global__ void __launch_bounds__(threads)
    block_sums_of_squares_kernel(double* totals, const float* x, std::int64_t count, std::int64_t block) {
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * block;
    const std::int64_t last = first + block < count ? first + block : count;
    double sum = 0;
    std::uint32_t zeros = 0;
    for (std::int64_t i = first + static_cast<int>(threadIdx.x); i < last; i += threads) {
        const double value = static_cast<double>(x[i]);
        sum += value * value;
        zeros += value == 0 ? 1 : 0;
    }
    sum = block_sum(sum, shared_memory<double>());
    const double all_zeros = block_sum(static_cast<double>(zeros), shared_memory<double>());
    if (threadIdx.x != 0) return;
    totals[2 * blockIdx.x] = sum;
    totals[2 * blockIdx.x + 1] = all_zeros;
}

// One block per column.
__global__ void __launch_bounds__(threads) sum_rows_kernel(double* total, const double* rows, std::int64_t count) {
    double sum = 0;
    for (std::int64_t row = static_cast<int>(threadIdx.x); row < count; row += threads)
        sum += rows[row * gridDim.x + blockIdx.x];
    sum = block_sum(sum, shared_memory<double>());
    if (threadIdx.x == 0) total[blockIdx.x] = sum;
}

// One block per total.
__global__ void __launch_bounds__(threads)
    total_kernel(double* totals, const double* partials, int count, bool accumulate) {
    partials += static_cast<std::int64_t>(blockIdx.x) * count;
    double sum = 0;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(threads)) sum += partials[i];
    sum = block_sum(sum, shared_memory<double>());
    if (threadIdx.x == 0) totals[blockIdx.x] = sum + (accumulate ? totals[blockIdx.x] : 0);
}

constexpr unsigned most_partials = 792;  // 6 on each of 132 multiprocessors

unsigned partial_count(std::int64_t count) {
    return static_cast<unsigned>(std::clamp<std::int64_t>((count + sum_tile - 1) / sum_tile, 1, most_partials));
}

template <bool squares>
void sum_with(cudaStream_t stream, const char* name, double* partials, const Tensor& totals, const Tensor& x,
              Accumulate accumulate) {
    LOCKSTEP_ASSERT(totals.count() == (squares ? 2 : 1));
    constexpr std::size_t shared_bytes = warp_width * sizeof(double);
    const unsigned blocks = partial_count(x.count());
    launch({name, dim3(blocks), threads, shared_bytes, stream}, partial_sums_kernel<squares>, partials, x.fp32(),
           x.count(), aligned_for(sum_width, 0, x.fp32()));
    launch({name, dim3(squares ? 2 : 1), threads, shared_bytes, stream}, total_kernel, totals.fp64(), partials, blocks,
           accumulate == Accumulate::yes);
}

template <class T, int width>
__global__ void __launch_bounds__(threads)
    add_bias_kernel(T* __restrict__ y, const T* __restrict__ bias, std::int64_t packs, unsigned row_packs,
                    std::int64_t stride) {
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * (threads * pieces);
    const std::int64_t first_row = first / row_packs;
    const unsigned first_column = static_cast<unsigned>(first % row_packs);
    Pack<T, width> values[pieces];
    T* places[pieces];
    unsigned columns[pieces];
#pragma unroll
    for (int p = 0; p < pieces; ++p) {
        const unsigned offset = first_column + static_cast<unsigned>(p) * threads + threadIdx.x;
        columns[p] = offset % row_packs * width;
        places[p] = y + (first_row + offset / row_packs) * stride + columns[p];
        if (first + p * static_cast<int>(threads) + threadIdx.x < packs) values[p] = load_pack<width>(places[p]);
    }
#pragma unroll
    for (int p = 0; p < pieces; ++p) {
        if (first + p * static_cast<int>(threads) + threadIdx.x >= packs) return;
        const Pack<T, width> add = load_pack<width>(bias + columns[p]);
#pragma unroll
        for (int e = 0; e < width; ++e)
            values[p].at[e] = from_float<T>(to_float(values[p].at[e]) + to_float(add.at[e]));
        store_pack(places[p], values[p]);
    }
}

template <class T, int width>
void add_bias_with(cudaStream_t stream, const Tensor& y, const Tensor& bias) {
    const std::int64_t packs = y.count() / width;
    launch({"add_bias", dim3(blocks_for(packs, static_cast<std::int64_t>(threads) * pieces)), threads, 0, stream},
           add_bias_kernel<T, width>, strided_elements<T>(y), elements<T>(bias), packs, bias.count() / width,
           y.stride());
}

template <class T, int width>
__global__ void __launch_bounds__(column_threads)
    column_sums_kernel(float* __restrict__ partials, const T* __restrict__ x, std::int64_t rows, std::int64_t row_width,
                       std::int64_t row_stride, int lanes) {
    const int lane = static_cast<int>(threadIdx.x) % lanes, row_lane = static_cast<int>(threadIdx.x) / lanes;
    const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * lanes * width;
    const std::int64_t column = first_column + lane * width;
    const std::int64_t row_lanes = column_threads / lanes, stride = row_lanes * gridDim.y;
    float sums[width] = {};
    if (column < row_width) {
        std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * row_lanes + row_lane;
        for (; row + (pieces - 1) * stride < rows; row += pieces * stride) {
            Pack<T, width> values[pieces];
#pragma unroll
            for (int p = 0; p < pieces; ++p) values[p] = load_pack<width>(x + (row + p * stride) * row_stride + column);
#pragma unroll
            for (int p = 0; p < pieces; ++p)
#pragma unroll
                for (int e = 0; e < width; ++e) sums[e] += to_float(values[p].at[e]);
        }
        for (; row < rows; row += stride) {
            const Pack<T, width> values = load_pack<width>(x + row * row_stride + column);
#pragma unroll
            for (int e = 0; e < width; ++e) sums[e] += to_float(values.at[e]);
        }
    }
    store_column_sums(partials + static_cast<std::int64_t>(blockIdx.y) * row_width + first_column,
                      row_width - first_column, sums, lanes, shared_memory<float>());
}

// y += x, 16 bit into fp32.
template <class T>
__global__ void __launch_bounds__(threads)
    add_to_fp32_kernel(float* __restrict__ y, const T* __restrict__ x, std::int64_t packs) {
    constexpr int width = 4, in_flight = 2;
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * threads * in_flight + threadIdx.x;
    Pack<float, width> sums[in_flight];
    Pack<T, width> values[in_flight];
#pragma unroll
    for (int p = 0; p < in_flight; ++p) {
        const std::int64_t pack = first + p * static_cast<std::int64_t>(threads);
        if (pack >= packs) break;
        sums[p] = load_pack<width>(y + pack * width);
        values[p] = load_pack<width>(x + pack * width);
    }
#pragma unroll
    for (int p = 0; p < in_flight; ++p) {
        const std::int64_t pack = first + p * static_cast<std::int64_t>(threads);
        if (pack >= packs) return;
#pragma unroll
        for (int e = 0; e < width; ++e) sums[p].at[e] += to_float(values[p].at[e]);
        store_pack(y + pack * width, sums[p]);
    }
}

// Matrices whose rows lie apart, and what is not aligned.
template <class Sum, class T>
__global__ void __launch_bounds__(threads)
    add_rows_kernel(Sum* __restrict__ y, const T* __restrict__ x, std::int64_t count, std::int64_t width,
                    std::int64_t y_stride, std::int64_t x_stride) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
    if (i >= count) return;
    const std::int64_t row = i / width, column = i - row * width;
    Sum* const to = y + row * y_stride + column;
    *to = from_float<Sum>(to_float(*to) + to_float(x[row * x_stride + column]));
}

struct BiasPlace {
    float* dbias;
    __device__ float* operator()(std::int64_t column) const { return dbias + column; }
};

}  // namespace

void CudaBackend::fill(Tensor y, float value) {
    switch (y.type()) {
        case Type::fp32:
            return fill_with(stream(), y, value);
        case Type::bf16:
            return fill_with(stream(), y, from_float<bf16>(value));
        case Type::fp16:
            return fill_with(stream(), y, from_float<fp16>(value));
        case Type::int32:
            return fill_with(stream(), y, static_cast<std::int32_t>(value));
        case Type::fp64:
            return fill_with(stream(), y, static_cast<double>(value));
    }
}

void CudaBackend::clear(const std::vector<Tensor>& tensors) {
    ToClear group{};
    unsigned size = 0;
    std::int64_t longest = 0;
    const auto flush = [&] {
        if (size == 0) return;
        launch({"clear", dim3(blocks_for(longest, clear_tile), size), threads, 0, stream()}, clear_kernel, group);
        size = 0;
        longest = 0;
    };
    for (const Tensor& tensor : tensors) {
        LOCKSTEP_ASSERT(tensor.type() == Type::fp32);
        if (tensor.count() == 0) continue;
        if (tensor.count() > longest_cleared_at_once) {
            fill(tensor, 0.0f);
            continue;
        }
        group.at[size] = tensor.fp32();
        group.count[size] = static_cast<int>(tensor.count());
        longest = std::max(longest, tensor.count());
        if (++size == cleared_at_once) flush();
    }
    flush();
}

void CudaBackend::copy(Tensor y, Tensor x) {
    LOCKSTEP_ASSERT(y.count() == x.count());
    if (y.count() == 0) return;
    if (!y.dense() || !x.dense()) {
        LOCKSTEP_ASSERT(y.type() == x.type() && y.shape() == x.shape());
        const auto bytes = [&](std::int64_t elements) {
            return static_cast<std::size_t>(elements) * type_bytes(y.type());
        };
        check_cuda(cudaMemcpy2DAsync(y.strided_data(), bytes(y.stride()), x.strided_data(), bytes(x.stride()),
                                     bytes(y.size(-1)), static_cast<std::size_t>(y.rows()), cudaMemcpyDeviceToDevice,
                                     stream()),
                   "copy");
        return;
    }
    if (y.type() == x.type()) {
        if (y.data() != x.data())
            check_cuda(cudaMemcpyAsync(y.data(), x.data(), y.bytes(), cudaMemcpyDefault, stream()), "copy");
        return;
    }
    const auto converts = [](Type type) { return type == Type::fp32 || type == Type::bf16 || type == Type::fp16; };
    LOCKSTEP_ASSERT(converts(y.type()) && converts(x.type()));
    dispatch(y.type(), [&](auto to) {
        using Out = decltype(to);
        dispatch(x.type(), [&](auto from) {
            using In = decltype(from);
            if constexpr (!std::is_same_v<Out, In>)
                map("copy", stream(), y.count(), Operands<Out, 1, In, 1>{{elements<Out>(y)}, {elements<In>(x)}},
                    Copy());
        });
    });
}

void CudaBackend::add(Tensor y, Tensor x) {
    LOCKSTEP_ASSERT((y.type() == x.type() || y.type() == Type::fp32) && y.count() == x.count());
    if (!y.dense() || !x.dense() || y.type() != x.type()) {
        LOCKSTEP_ASSERT(y.shape() == x.shape());
        if (y.count() == 0) return;
        const auto add_rows = [&](auto sum, auto element) {
            using Sum = decltype(sum);
            using T = decltype(element);
            launch({"add", dim3(blocks_for(y.count(), threads)), threads, 0, stream()}, add_rows_kernel<Sum, T>,
                   strided_elements<Sum>(y), strided_elements<T>(x), y.count(), y.size(-1), y.stride(), x.stride());
        };
        dispatch(x.type(), [&](auto element) {
            using T = decltype(element);
            if (y.type() == x.type()) return add_rows(element, element);
            if constexpr (!std::is_same_v<T, float>) {
                if (!y.dense() || !x.dense() || !aligned_for(4, y.count(), y.fp32(), elements<T>(x)))
                    return add_rows(float{}, element);
                launch({"add", dim3(blocks_for(y.count() / 4, 2 * threads)), threads, 0, stream()},
                       add_to_fp32_kernel<T>, y.fp32(), elements<T>(x), y.count() / 4);
            }
        });
        return;
    }
    dispatch(y.type(), [&](auto element) {
        using T = decltype(element);
        map("add", stream(), y.count(), Operands<T, 1, T, 2>{{elements<T>(y)}, {elements<T>(y), elements<T>(x)}},
            Add());
    });
}

void CudaBackend::scale(Tensor y, float factor) {
    map("scale", stream(), y.count(), Operands<float, 1, float, 1>{{y.fp32()}, {y.fp32()}}, Scale{factor});
}

void CudaBackend::sum(Tensor total, Tensor x, Accumulate accumulate) {
    sum_with<false>(stream(), "sum", scratch_of<double>(partial_count(x.count())), total, x, accumulate);
}

void CudaBackend::sum_of_squares(Tensor totals, Tensor x, Accumulate accumulate) {
    sum_with<true>(stream(), "sum_of_squares", scratch_of<double>(2 * partial_count(x.count())), totals, x, accumulate);
}

void CudaBackend::block_sums_of_squares(Tensor totals, Tensor x, std::int64_t block) {
    const std::int64_t blocks = (x.count() + block - 1) / block;
    LOCKSTEP_ASSERT(totals.count() == 2 * blocks);
    if (blocks == 0) return;
    launch(
        {"block_sums_of_squares", dim3(static_cast<unsigned>(blocks)), threads, warp_width * sizeof(double), stream()},
        block_sums_of_squares_kernel, totals.fp64(), x.fp32(), x.count(), block);
}

void CudaBackend::sum_rows(Tensor total, Tensor rows) {
    const std::int64_t n = total.count();
    LOCKSTEP_ASSERT(rows.count() % n == 0);
    launch({"sum_rows", dim3(static_cast<unsigned>(n)), threads, warp_width * sizeof(double), stream()},
           sum_rows_kernel, total.fp64(), rows.fp64(), rows.count() / n);
}

void CudaBackend::add_bias(Tensor y, Tensor bias) {
    const std::int64_t width = bias.count();
    LOCKSTEP_ASSERT(y.type() == bias.type() && y.size(-1) == width);
    dispatch(y.type(), [&](auto element) {
        using T = decltype(element);
        constexpr int pack = pack_width<T>();
        if (y.stride() % pack == 0 && aligned_for(pack, width, strided_elements<T>(y), elements<T>(bias)))
            add_bias_with<T, pack>(stream(), y, bias);
        else
            add_bias_with<T, 1>(stream(), y, bias);
    });
}

void CudaBackend::bias_backward(Tensor dbias, Tensor dy) {
    const std::int64_t width = dbias.count(), rows = dy.rows();
    LOCKSTEP_ASSERT(dy.size(-1) == width);
    const BiasPlace place{dbias.fp32()};
    dispatch(dy.type(), [&](auto element) {
        using T = decltype(element);
        const auto run = [&](auto kernel, int pack) {
            const ColumnGrid grid = column_grid(rows, width / pack, 16);
            float* const partials = scratch_of<float>(grid.row_blocks * width);
            launch({"bias_backward", dim3(grid.column_blocks, grid.row_blocks), column_threads,
                    static_cast<std::size_t>(column_threads * pack) * sizeof(float), stream()},
                   kernel, partials, strided_elements<T>(dy), rows, width, dy.stride(), grid.lanes);
            add_partials("bias_backward", stream(), place, partials, grid.row_blocks, width);
        };
        constexpr int pack = pack_width<T>();
        if (aligned_for(pack, width, strided_elements<T>(dy)) && dy.stride() % pack == 0)
            run(column_sums_kernel<T, pack>, pack);
        else
            run(column_sums_kernel<T, 1>, 1);
    });
}

}  // namespace lockstep::kernels::cuda
