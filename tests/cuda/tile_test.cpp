// The operations of kernels/cuda/tile.hpp one by one: one warp, every layout, several widths and depths.
#define BOOST_TEST_MODULE cuda_tile
#include "kernels/cuda/tile.hpp"

#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/launch.hpp"
#include "operations/support.hpp"

using namespace lockstep;
using namespace lockstep::operation_tests;
using namespace lockstep::kernels::cuda;

namespace {

// [rows, columns] from global memory to rows of `stride` elements, by one warp.
template <class T>
__device__ void load_tile(T* to, int stride, const T* from, int rows, int columns) {
    for (int i = lane_index(); i < rows * columns; i += warp_width) to[i / columns * stride + i % columns] = from[i];
}

template <int N>
__device__ void write_sums(float* to, const Sums<N>& sums) {
    for (int n = 0; n < N; ++n)
        for (int i = 0; i < 4; ++i) to[Sums<N>::row(i) * 8 * N + Sums<N>::column(n, i)] = sums.at[n][i];
}
template <int N>
__device__ void read_sums(Sums<N>& sums, const float* from) {
    for (int n = 0; n < N; ++n)
        for (int i = 0; i < 4; ++i) sums.at[n][i] = from[Sums<N>::row(i) * 8 * N + Sums<N>::column(n, i)];
}

// What a product of 16 rows is made of: K steps of 16, N blocks of 8 columns.
template <class Element, int K_, int N_, bool transposed_, Right layout_>
struct Form {
    using T = Element;
    static constexpr int K = K_, N = N_, rows = 16, depth = 16 * K, columns = 8 * N;
    static constexpr bool transposed = transposed_;  // the left operand lies as [depth][rows]
    static constexpr Right layout = layout_;
    static constexpr int left_stride = (transposed ? rows : depth) + 8;
    static constexpr int right_stride = (layout == Right::rows_of_k ? columns : depth) + 8;
    static constexpr std::size_t shared_bytes =
        sizeof(T) * static_cast<std::size_t>((transposed ? depth : rows) * left_stride +
                                             (layout == Right::rows_of_k ? depth : columns) * right_stride);
};

// y [rows, columns] += left right.
template <class F>
__global__ void product_kernel(float* y, const typename F::T* left, const typename F::T* right) {
    using T = typename F::T;
    T* left_tile = shared_memory<T>();
    T* right_tile = left_tile + (F::transposed ? F::depth : F::rows) * F::left_stride;
    if constexpr (F::transposed)
        load_tile(left_tile, F::left_stride, left, F::depth, F::rows);
    else
        load_tile(left_tile, F::left_stride, left, F::rows, F::depth);
    if constexpr (F::layout == Right::rows_of_k)
        load_tile(right_tile, F::right_stride, right, F::depth, F::columns);
    else
        load_tile(right_tile, F::right_stride, right, F::columns, F::depth);
    __syncwarp(all_lanes);

    Left<T, F::K> operand;
    if constexpr (F::transposed)
        load_left_transposed(operand, left_tile, F::left_stride);
    else
        load_left(operand, left_tile, F::left_stride);
    Sums<F::N> sums;
    read_sums(sums, y);
    multiply<F::layout>(sums, operand, right_tile, F::right_stride);
    write_sums(y, sums);
}

// y [16, 8N] = (left [16, 16] right [16, 16K]) rounded, times second [16K, 8N]: the sums of one product in the next.
template <class T, int K, int N>
__global__ void chain_kernel(float* y, const T* left, const T* right, const T* second) {
    constexpr int stride = 24, right_stride = 16 * K + 8, second_stride = 8 * N + 8;
    T* left_tile = shared_memory<T>();
    T* right_tile = left_tile + 16 * stride;
    T* second_tile = right_tile + 16 * right_stride;
    load_tile(left_tile, stride, left, 16, 16);
    load_tile(right_tile, right_stride, right, 16, 16 * K);
    load_tile(second_tile, second_stride, second, 16 * K, 8 * N);
    __syncwarp(all_lanes);
    Left<T, 1> first;
    load_left(first, left_tile, stride);
    Sums<2 * K> between;
    between.clear();
    multiply<Right::rows_of_k>(between, first, right_tile, right_stride);
    Left<T, K> rounded;
    to_left(rounded, between);
    Sums<N> sums;
    sums.clear();
    multiply<Right::rows_of_k>(sums, rounded, second_tile, second_stride);
    write_sums(y, sums);
}

// y [16, 8N + 4] has 4 columns more than are stored; in pairs all 16 rows, else the first `rows`.
template <class T, int N>
__global__ void store_kernel(T* y, const float* x, int rows, bool pairs) {
    constexpr int stride = 8 * N + 4;
    Sums<N> sums;
    read_sums(sums, x);
    T* tile = shared_memory<T>();
    if (pairs) {
        for (int i = lane_index(); i < 16 * stride; i += warp_width) tile[i] = y[i];
        __syncwarp(all_lanes);
        store_sums_in_pairs(tile, stride, sums);
        __syncwarp(all_lanes);
        for (int i = lane_index(); i < 16 * stride; i += warp_width) y[i] = tile[i];
    } else {
        store_sums(y, stride, sums, rows);
    }
}

// Everything is issued on the default stream, between waits for the backend's.
template <class... Parameters, class... Arguments>
void run_warp(void (*kernel)(Parameters...), std::size_t shared_bytes, Arguments... arguments) {
    backend().synchronize();
    launch({"tile_test", dim3(1, 1, 1), 32, shared_bytes, nullptr}, kernel, arguments...);
    check_cuda(cudaStreamSynchronize(nullptr), "tile_test");
}

Values transposed_of(const Values& x, std::size_t rows, std::size_t columns) {
    Values y(x.size());
    for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < columns; ++j) y[j * rows + i] = x[i * columns + j];
    return y;
}

Values product_of(const Values& a, const Values& b, std::size_t rows, std::size_t depth, std::size_t columns) {
    Values y(rows * columns);
    for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t k = 0; k < depth; ++k)
            for (std::size_t j = 0; j < columns; ++j) y[i * columns + j] += a[i * depth + k] * b[k * columns + j];
    return y;
}

Values rounded_to(Type type, const Values& x) {
    return OnDevice(type, {static_cast<std::int64_t>(x.size())}, x).values();
}

template <class F>
void check_product(Type type) {
    constexpr std::size_t rows = F::rows, depth = F::depth, columns = F::columns;
    const Values left = random_rounded(type, rows * depth, "left"),
                 right = random_rounded(type, depth * columns, "right"),
                 before = random_rounded(Type::fp32, rows * columns, "before");
    const OnDevice left_tensor(type, {static_cast<std::int64_t>(rows * depth)},
                               F::transposed ? transposed_of(left, rows, depth) : left);
    const OnDevice right_tensor(type, {static_cast<std::int64_t>(depth * columns)},
                                F::layout == Right::rows_of_n ? transposed_of(right, depth, columns) : right);
    const Values expected = plus(product_of(left, right, rows, depth, columns), before);
    for_each_order([&] {
        const OnDevice y(Type::fp32, {static_cast<std::int64_t>(rows * columns)}, before);
        run_warp(product_kernel<F>, F::shared_bytes, y.tensor().fp32(), elements<typename F::T>(left_tensor),
                 elements<typename F::T>(right_tensor));
        check_close(y.values(), expected, Type::fp32, depth + 1,
                    fmt::format("{} K {} N {} transposed {} rows of {}", type_name(type), F::K, F::N, F::transposed,
                                F::layout == Right::rows_of_n ? "n" : "k"));
        return std::vector<std::vector<char>>{y.bytes()};
    });
}

template <class T, int K, int N>
void check_products(Type type) {
    check_product<Form<T, K, N, false, Right::rows_of_k>>(type);
    check_product<Form<T, K, N, false, Right::rows_of_n>>(type);
    check_product<Form<T, K, N, true, Right::rows_of_k>>(type);
    check_product<Form<T, K, N, true, Right::rows_of_n>>(type);
}

template <class T, int K, int N>
void check_chain(Type type) {
    const auto count = [](std::size_t n) { return Shape{static_cast<std::int64_t>(n)}; };
    const Values left = random_rounded(type, 16 * 16, "left"), right = random_rounded(type, 16 * 16 * K, "right"),
                 second = random_rounded(type, 16 * K * 8 * N, "second");
    const OnDevice a(type, count(left.size()), left), b(type, count(right.size()), right),
        c(type, count(second.size()), second), y(Type::fp32, {16 * 8 * N});
    run_warp(chain_kernel<T, K, N>, sizeof(T) * (16 * 24 + 16 * (16 * K + 8) + 16 * K * (8 * N + 8)), y.tensor().fp32(),
             elements<T>(a), elements<T>(b), elements<T>(c));
    const Values between = rounded_to(type, product_of(left, right, 16, 16, 16 * K));
    check_close(y.values(), product_of(between, second, 16, 16 * K, 8 * N), type, 16 * K + 16,
                fmt::format("{} chain K {} N {}", type_name(type), K, N));
}

template <class T, int N>
void check_stores(Type type) {
    const Values x = random_rounded(Type::fp32, 16 * 8 * N, "x");
    const OnDevice source(Type::fp32, {16 * 8 * N}, x);
    const Values rounded = rounded_to(type, x);
    for (const bool pairs : {false, true})
        for (const int rows : {16, 1, 7, 8, 9, 0}) {
            constexpr int stride = 8 * N + 4;
            const OnDevice y(type, {16, stride}, Values(16 * stride, 7.0));
            run_warp(store_kernel<T, N>, sizeof(T) * 16 * stride, elements<T>(y), source.tensor().fp32(), rows, pairs);
            const Values values = y.values();
            for (int i = 0; i < 16; ++i)
                for (int j = 0; j < stride; ++j) {
                    const bool stored = j < 8 * N && (pairs || i < rows);
                    const double expected = stored ? rounded[static_cast<std::size_t>(i * 8 * N + j)] : 7.0;
                    BOOST_REQUIRE_EQUAL(values[static_cast<std::size_t>(i * stride + j)], expected);
                }
        }
}

template <class Check>
void for_each_element(Check&& check) {
    for_each_type([&](Type type) { dispatch(type, [&](auto element) { check(type, element); }); });
}

}  // namespace

BOOST_AUTO_TEST_CASE(products_in_every_layout) {
    for_each_element([](Type type, auto element) {
        using T = decltype(element);
        check_products<T, 1, 2>(type);
        check_products<T, 2, 6>(type);
        check_products<T, 3, 4>(type);
        check_products<T, 5, 8>(type);
    });
}

BOOST_AUTO_TEST_CASE(sums_become_the_left_operand_of_the_next_product) {
    for_each_element([](Type type, auto element) {
        using T = decltype(element);
        check_chain<T, 1, 2>(type);
        check_chain<T, 2, 4>(type);
        check_chain<T, 3, 2>(type);
    });
}

BOOST_AUTO_TEST_CASE(sums_are_stored_rounded_and_nowhere_else) {
    for_each_element([](Type type, auto element) {
        using T = decltype(element);
        check_stores<T, 1>(type);
        check_stores<T, 2>(type);
        check_stores<T, 5>(type);
    });
}
