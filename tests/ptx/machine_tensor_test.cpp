// Products of the tensor cores, and the matrices they are made of, against naive loops.
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <random>

#include "ptx/machine_support.hpp"
#include "ptx/numbers.hpp"

using namespace lockstep::ptx;

namespace {

using u16 = std::uint16_t;
using u32 = std::uint32_t;

}  // namespace

BOOST_AUTO_TEST_SUITE(tensor)

namespace {

// A · B + C, 16×16 by 16×8: A and C by rows at 0 and 768 bytes of `in`, B by columns at 512.
const std::string fragments = R"(
    shr.u32 %r2, %r1, 2;             // g
    and.b32 %r3, %r1, 3;             // t
    mad.lo.s32 %r4, %r2, 32, 0;      // row g of A, B's column g
    mad.lo.s32 %r4, %r3, 4, %r4;
    cvt.u64.u32 %rd5, %r4;
    add.s64 %rd5, %rd0, %rd5;
    ld.global.u32 %r10, [%rd5];
    ld.global.u32 %r11, [%rd5+256];
    ld.global.u32 %r12, [%rd5+16];
    ld.global.u32 %r13, [%rd5+272];
    ld.global.u32 %r14, [%rd5+512];
    ld.global.u32 %r15, [%rd5+528];
    mad.lo.s32 %r5, %r3, 8, 0;
    mad.lo.s32 %r5, %r2, 32, %r5;
    cvt.u64.u32 %rd6, %r5;
    add.s64 %rd7, %rd1, %rd6;
    add.s64 %rd6, %rd0, %rd6;
    ld.global.v2.f32 {%f0, %f1}, [%rd6+768];
    ld.global.v2.f32 {%f2, %f3}, [%rd6+1024];
)";

template <class Narrow, class Wide>
void check_product(const std::string& type, Narrow narrow, Wide wide, Options::TensorSum sum) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    Buffers buffers;
    float a[16][16], b[16][8], c[16][8];
    auto* const halves = reinterpret_cast<u16*>(buffers.in.data());
    auto* const floats = reinterpret_cast<float*>(buffers.in.data());
    for (int i = 0; i < 256; ++i) a[i / 16][i % 16] = wide(halves[i] = narrow(normal(random)));
    for (int i = 0; i < 128; ++i) b[i % 16][i / 16] = wide(halves[256 + i] = narrow(normal(random)));
    for (int i = 0; i < 128; ++i) c[i / 8][i % 8] = floats[192 + i] = normal(random);
    Options options;
    options.tensor_sum = sum;
    const Outcome outcome =
        run_program(program(fragments + "mma.sync.aligned.m16n8k16.row.col.f32." + type + "." + type +
                            ".f32 {%f4,%f5,%f6,%f7}, {%r10,%r11,%r12,%r13}, {%r14,%r15}, "
                            "{%f0,%f1,%f2,%f3};\n"
                            "st.global.v2.f32 [%rd7], {%f4, %f5};\n"
                            "st.global.v2.f32 [%rd7+256], {%f6, %f7};"),
                    buffers, {}, {32}, 0, options);
    BOOST_REQUIRE_MESSAGE(outcome.findings.empty(), outcome.text());
    int cut = 0;
    for (int row = 0; row < 16; ++row)
        for (int column = 0; column < 8; ++column) {
            double exact = c[row][column], size = std::fabs(exact);
            for (int k = 0; k < 16; ++k) {
                exact += double{a[row][k]} * b[k][column];
                size = std::max(size, std::fabs(double{a[row][k]} * b[k][column]));
            }
            const auto found = double{std::bit_cast<float>(word(buffers, static_cast<std::size_t>(row * 8 + column)))};
            BOOST_REQUIRE_SMALL(found - exact, 17 * size * 0x1p-23);
            cut += std::fabs(found) <= std::fabs(exact);
        }
    if (sum == Options::TensorSum::truncated)
        BOOST_TEST(cut > 80);
    else
        BOOST_TEST(cut < 100);
    BOOST_TEST(outcome.counts.tensor == 1);
}

}  // namespace

BOOST_AUTO_TEST_CASE(products) {
    for (const auto sum : {Options::TensorSum::nearest, Options::TensorSum::truncated}) {
        check_product(
            "bf16", [](float x) { return brain_of_single(x); }, single_of_brain, sum);
        check_product(
            "f16", [](float x) { return half_of_single(x); }, single_of_half, sum);
    }
}

BOOST_AUTO_TEST_CASE(matrices_from_shared_memory) {
    // Rows of 16 bytes, one a lane: element (row, column) of matrix m is 64 m + 8 row + column.
    const std::string fill = R"(
        mov.u32 %r2, dynamic;
        shl.b32 %r3, %r1, 4;
        add.s32 %r3, %r3, %r2;
        shl.b32 %r4, %r1, 3;
        mad.lo.s32 %r5, %r4, 0x10001, 0x10000;
        add.s32 %r6, %r5, 0x20002;
        add.s32 %r7, %r6, 0x20002;
        add.s32 %r8, %r7, 0x20002;
        st.shared.v4.u32 [%r3], {%r5, %r6, %r7, %r8};
        bar.warp.sync -1;
    )";
    const auto plain = [](u32 matrix, u32 lane) { return 64 * matrix + 8 * (lane / 4) + 2 * (lane % 4); };
    const auto pair = [&](u32 matrix, u32 lane) { return plain(matrix, lane) | (plain(matrix, lane) + 1) << 16; };
    const auto transposed = [](u32 matrix, u32 lane) {
        const u32 low = 64 * matrix + 16 * (lane % 4) + lane / 4;
        return low | (low + 8) << 16;
    };
    const std::string store =
        "xor.b32 %r10, %r10, %r13; xor.b32 %r11, %r11, %r12; sub.s32 %r10, %r10, %r11;"
        "st.global.u32 [%rd2], %r10;";
    const auto mixed = [](u32 a, u32 b, u32 c, u32 d) { return (a ^ d) - (b ^ c); };
    expect(
        fill + "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r3];" + store,
        [&](u32 lane) { return mixed(pair(0, lane), pair(1, lane), pair(2, lane), pair(3, lane)); }, {}, {32}, 512);
    expect(
        fill + "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r10, %r11, %r12, %r13}, [%r3];" + store,
        [&](u32 lane) {
            return mixed(transposed(0, lane), transposed(1, lane), transposed(2, lane), transposed(3, lane));
        },
        {}, {32}, 512);
    expect(
        fill +
            "mov.u32 %r12, 0; mov.u32 %r13, 0;"
            "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r10, %r11}, [%r3];" +
            store,
        [&](u32 lane) { return mixed(pair(0, lane), pair(1, lane), 0, 0); }, {}, {32}, 512);
    expect(
        fill +
            "ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r10}, [%r3];"
            "movmatrix.sync.aligned.m8n8.trans.b16 %r10, %r10; st.global.u32 [%rd2], %r10;",
        [&](u32 lane) { return pair(0, lane); }, {}, {32}, 512);
}

BOOST_AUTO_TEST_SUITE_END()
