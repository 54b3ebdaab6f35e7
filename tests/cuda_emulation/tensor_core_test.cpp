// mma, ldmatrix and movmatrix against the formulas of the PTX ISA, element by element, and a tiled product against
// plain loops.
#include <boost/test/unit_test.hpp>
#include <vector>

#include "base/random.hpp"
#include "cuda_emulation/test_support.hpp"
#include "kernels/cuda/tile.hpp"

namespace lockstep::emulation::test {

namespace cuda = kernels::cuda;
using cuda::bf16;
using cuda::fp16;
using cuda::shared_memory;

namespace {

std::vector<float> numbers(std::size_t count, const char* purpose) {
    const RandomStream stream(3, purpose);
    std::vector<float> values(count);  // small whole numbers: exact in every type, and so are their sums
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(static_cast<int>(stream.bits(i) % 17) - 8);
    return values;
}

template <class T>
unsigned pair(float low, float high) {
    return static_cast<unsigned>(cuda::from_float<T>(low).bits) | static_cast<unsigned>(cuda::from_float<T>(high).bits)
                                                                      << 16;
}

// PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type": element i of lane's fragment.
struct Place {
    int row, column;
};
Place place_in_a(int lane, int i) {
    const int group = lane >> 2, in_group = lane % 4;
    const bool upper = i < 2 || (i >= 4 && i < 6);
    return {upper ? group : group + 8, i < 4 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8};
}
Place place_in_b(int lane, int i) {
    const int group = lane >> 2, in_group = lane % 4;
    return {i < 2 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8, group};
}
Place place_in_c(int lane, int i) {
    const int group = lane >> 2, in_group = lane % 4;
    return {i < 2 ? group : group + 8, in_group * 2 + (i & 1)};
}

template <class T>
void check_mma() {
    const std::vector<float> a = numbers(256, "a"), b = numbers(128, "b"), c = numbers(128, "c");
    run_now("mma", 1, 64, 0, [&] {
        const int lane = static_cast<int>(threadIdx.x % 32);
        const auto a_at = [&](int i) {
            const Place place = place_in_a(lane, i);
            return a[static_cast<std::size_t>(place.row * 16 + place.column)];
        };
        const auto b_at = [&](int i) {
            const Place place = place_in_b(lane, i);
            return b[static_cast<std::size_t>(place.row * 8 + place.column)];
        };
        unsigned a_registers[4], b_registers[2];
        for (int i = 0; i < 4; ++i) a_registers[i] = pair<T>(a_at(2 * i), a_at(2 * i + 1));
        for (int i = 0; i < 2; ++i) b_registers[i] = pair<T>(b_at(2 * i), b_at(2 * i + 1));
        float d[4];
        for (int i = 0; i < 4; ++i) {
            const Place place = place_in_c(lane, i);
            d[i] = c[static_cast<std::size_t>(place.row * 8 + place.column)];
        }
        cuda::mma_16x8x16(d, a_registers, b_registers, T{});
        for (int i = 0; i < 4; ++i) {
            const Place place = place_in_c(lane, i);
            float expected = c[static_cast<std::size_t>(place.row * 8 + place.column)];
            for (int k = 0; k < 16; ++k)
                expected +=
                    a[static_cast<std::size_t>(place.row * 16 + k)] * b[static_cast<std::size_t>(k * 8 + place.column)];
            BOOST_TEST(d[i] == expected);
        }
    });
}

// Four 8 × 8 matrices in shared memory, rows 48 bytes apart; element (i, r, c) is 64 i + 8 r + c.
constexpr int row_stride = 24;
void fill_matrices() {
    auto* shared = shared_memory<std::uint16_t>();
    if (threadIdx.x == 0)
        for (int i = 0; i < 4; ++i)
            for (int r = 0; r < 8; ++r)
                for (int c = 0; c < 8; ++c)
                    shared[(8 * i + r) * row_stride + c] = static_cast<std::uint16_t>(64 * i + 8 * r + c);
    __syncthreads();
}
unsigned expected_fragment(int matrix, int lane, bool transposed) {
    const auto element = [&](int j) {
        const int row = lane / 4, column = 2 * (lane % 4) + j;
        return static_cast<unsigned>(64 * matrix + (transposed ? 8 * column + row : 8 * row + column));
    };
    return element(0) | element(1) << 16;
}

// c [16 M, 8 N] = a [16 M, 16 K] b, a warp each 16 rows, with tile.hpp.
template <class T, cuda::Right layout, int K, int N>
void check_tiled_product() {
    constexpr int M = 2, rows = 16 * M, depth = 16 * K, columns = 8 * N;
    constexpr int a_stride = depth + 8, b_stride = (layout == cuda::Right::rows_of_k ? columns : depth) + 8;
    constexpr int b_rows = layout == cuda::Right::rows_of_k ? depth : columns;
    const std::vector<float> a = numbers(rows * depth, "left"), b = numbers(depth * columns, "right");
    std::vector<float> c(static_cast<std::size_t>(rows * columns));
    run_now("tiled", 1, 32 * M, (rows * a_stride + b_rows * b_stride) * sizeof(T), [&] {
        T* a_tile = shared_memory<T>();
        T* b_tile = a_tile + rows * a_stride;
        const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
        for (int i = thread; i < rows * depth; i += 32 * M)
            a_tile[i / depth * a_stride + i % depth] = cuda::from_float<T>(a[static_cast<std::size_t>(i)]);
        for (int i = thread; i < depth * columns; i += 32 * M) {
            const int k = i / columns, column = i % columns;
            b_tile[layout == cuda::Right::rows_of_k ? k * b_stride + column : column * b_stride + k] =
                cuda::from_float<T>(b[static_cast<std::size_t>(i)]);
        }
        __syncthreads();
        cuda::Left<T, K> left;
        cuda::load_left(left, a_tile + 16 * warp * a_stride, a_stride);
        cuda::Sums<N> sums;
        sums.clear();
        cuda::multiply<layout>(sums, left, b_tile, b_stride);
        cuda::store_sums(c.data() + 16 * warp * columns, columns, sums);
    });
    for (int row = 0; row < rows; ++row)
        for (int column = 0; column < columns; ++column) {
            float expected = 0;
            for (int k = 0; k < depth; ++k)
                expected +=
                    a[static_cast<std::size_t>(row * depth + k)] * b[static_cast<std::size_t>(k * columns + column)];
            BOOST_TEST(c[static_cast<std::size_t>(row * columns + column)] == expected);
        }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(tensor_cores)

BOOST_AUTO_TEST_CASE(mma_follows_the_fragment_layouts) {
    check_mma<bf16>();
    const Seed scope(1);
    check_mma<fp16>();
}

BOOST_AUTO_TEST_CASE(mma_sums_in_fp32) {
    // 1 + 2^-20, which neither 16-bit type holds; 2^-10 squared is exact in both.
    run_now("mma", 1, 32, 0, [] {
        const unsigned one = pair<bf16>(0x1p-10f, 0);
        const unsigned a[4] = {threadIdx.x % 4 == 0 ? one : 0u, 0, 0, 0}, b[2] = {threadIdx.x % 4 == 0 ? one : 0u, 0};
        float d[4] = {1, 1, 1, 1};
        cuda::mma_16x8x16(d, a, b, bf16{});
        BOOST_TEST(d[0] == 1.0f + 0x1p-20f);
        BOOST_TEST(d[2] == 1.0f);
    });
}

BOOST_AUTO_TEST_CASE(ldmatrix_follows_the_fragment_layouts) {
    run_now("ldmatrix", 1, 32, 32 * row_stride * 2, [] {
        fill_matrices();
        const int lane = static_cast<int>(threadIdx.x);
        const auto* shared = shared_memory<std::uint16_t>();
        unsigned four[4], four_transposed[4], two_transposed[2];
        cuda::load_matrix_x4(four, shared + lane * row_stride);
        cuda::load_matrix_x4_transposed(four_transposed, shared + lane * row_stride);
        // Only lanes 0 to 15 name rows.
        const auto* row = lane < 16 ? shared + (16 + lane) * row_stride : nullptr;
        cuda::load_matrix_x2_transposed<0>(two_transposed, row);
        for (int i = 0; i < 4; ++i) {
            BOOST_TEST(four[i] == expected_fragment(i, lane, false));
            BOOST_TEST(four_transposed[i] == expected_fragment(i, lane, true));
        }
        for (int i = 0; i < 2; ++i) BOOST_TEST(two_transposed[i] == expected_fragment(2 + i, lane, true));
        BOOST_TEST(cuda::move_matrix_transposed(four[3]) == expected_fragment(3, lane, true));
    });
}

BOOST_AUTO_TEST_CASE(wrong_rows_are_named) {
    const auto error_in = [](int offset) {
        return error_of([&] {
            run_now("rows", 1, 32, 512, [&] {
                const char* row = shared_memory<char>() + 16 * threadIdx.x;
                unsigned registers[4];
                cuda::load_matrix_x4(registers, threadIdx.x == 9 ? row + offset : row);
            });
        });
    };
    BOOST_TEST(error_in(0) == "");
    BOOST_TEST(contains(error_in(8), "kernel 'rows', block 0, thread "));
    BOOST_TEST(contains(error_in(8),
                        "the row that lane 9 names to load_matrix is not 16-byte aligned: it starts 152 bytes into"));
    BOOST_TEST(contains(error_in(512), "the row that lane 9 names to load_matrix is not in the block's shared memory"));
}

BOOST_AUTO_TEST_CASE(a_tiled_product_is_right) {
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
        const Seed scope(seed);
        check_tiled_product<bf16, cuda::Right::rows_of_k, 2, 6>();
        check_tiled_product<bf16, cuda::Right::rows_of_n, 2, 6>();
        check_tiled_product<fp16, cuda::Right::rows_of_k, 1, 4>();
        check_tiled_product<fp16, cuda::Right::rows_of_n, 3, 2>();
        check_tiled_product<float, cuda::Right::rows_of_k, 2, 3>();
        check_tiled_product<float, cuda::Right::rows_of_n, 1, 2>();
    }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace lockstep::emulation::test
