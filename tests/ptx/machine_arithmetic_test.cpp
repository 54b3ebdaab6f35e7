// Every computing instruction against the host's arithmetic.
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cfenv>
#include <cmath>
#include <functional>
#include <random>

#include "base/error.hpp"
#include "ptx/machine_support.hpp"
#include "ptx/numbers.hpp"

using namespace lockstep::ptx;

namespace {

using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;

float f(u64 bits) {
    return std::bit_cast<float>(static_cast<u32>(bits));
}
double d(u64 bits) {
    return std::bit_cast<double>(bits);
}
u64 bits(float value) {
    return std::bit_cast<u32>(value);
}
u64 bits(double value) {
    return std::bit_cast<u64>(value);
}

// Operands of a lane: a, b, c as 64, 32 (%ra), 16 (%ha) bits, %fa and %da; the result in %hd, %rr, %fr, %rdd, %dd or
// %pd.
struct Case {
    std::string instruction;
    char result;  // h, r, f, l (%rdd), d or p
    std::function<u64(u64, u64, u64)> expected;
};

std::string text_of(const Case& one) {
    static const std::string before = R"(
    .reg .b64 %rda, %rdb, %rdc, %rdd, %at;
    .reg .b32 %ra, %rb, %rc, %rr;
    .reg .b16 %ha, %hb, %hc, %hd;
    .reg .f32 %fa, %fb, %fc, %fr;
    .reg .f64 %da, %db, %dc, %dd;
    .reg .pred %pa, %pd;
    mul.wide.u32 %at, %r0, 8;
    add.s64 %rd10, %rd0, %at;
    ld.global.u64 %rda, [%rd10];
    ld.global.u64 %rdb, [%rd10+256];
    ld.global.u64 %rdc, [%rd10+512];
    cvt.u32.u64 %ra, %rda;
    cvt.u32.u64 %rb, %rdb;
    cvt.u32.u64 %rc, %rdc;
    cvt.u16.u64 %ha, %rda;
    cvt.u16.u64 %hb, %rdb;
    cvt.u16.u64 %hc, %rdc;
    mov.b32 %fa, %ra;
    mov.b32 %fb, %rb;
    mov.b32 %fc, %rc;
    mov.b64 %da, %rda;
    mov.b64 %db, %rdb;
    mov.b64 %dc, %rdc;
    setp.ne.s32 %pa, %rc, 0;
)";
    std::string after;
    switch (one.result) {
        case 'h':
            after = "cvt.u64.u16 %rdd, %hd;";
            break;
        case 'r':
            after = "cvt.u64.u32 %rdd, %rr;";
            break;
        case 'f':
            after = "mov.b32 %rr, %fr; cvt.u64.u32 %rdd, %rr;";
            break;
        case 'd':
            after = "mov.b64 %rdd, %dd;";
            break;
        case 'p':
            after = "selp.b64 %rdd, 1, 0, %pd;";
            break;
        default:
            break;
    }
    return program(before + one.instruction + ";\n" + after +
                   "\nadd.s64 %rd11, %rd1, %at;\nst.global.u64 [%rd11], %rdd;");
}

bool same(char kind, u64 a, u64 b) {
    if (kind == 'f' && std::isnan(f(a)) && std::isnan(f(b))) return true;
    if (kind == 'd' && std::isnan(d(a)) && std::isnan(d(b))) return true;
    return a == b;
}

enum class Draw { integers, singles, doubles, halves };

u64 drawn(std::mt19937_64& random, Draw kind) {
    const u64 any = random();
    static const u64 integers[] = {0,
                                   1,
                                   2,
                                   31,
                                   32,
                                   33,
                                   63,
                                   64,
                                   65,
                                   255,
                                   0x7fff,
                                   0x8000,
                                   0xffff,
                                   0x7fffffff,
                                   0x80000000,
                                   0xffffffff,
                                   0x7fffffffffffffff,
                                   0x8000000000000000,
                                   ~u64{0}};
    static const float singles[] = {0.0f,      -0.0f, 1.0f,   -1.5f, 0.5f, INFINITY,
                                    -INFINITY, NAN,   1e-40f, 3e38f, 2.5f, -3.5f};
    switch (kind) {
        case Draw::integers:
            return any & 1 ? integers[any / 2 % std::size(integers)] : any >> (random() % 64);
        case Draw::singles:
            if (any % 3 == 0) return bits(singles[any / 3 % std::size(singles)]);
            return any % 3 == 1 ? static_cast<u32>(any >> 16) : bits(static_cast<float>(s64(any)) * 0x1p-60f);
        case Draw::doubles:
            if (any % 3 == 0) return bits(static_cast<double>(singles[any / 3 % std::size(singles)]));
            return any % 3 == 1 ? random() : bits(static_cast<double>(s64(any)) * 0x1p-59);
        default:
            return random() & 0x7bff7bffu;
    }
}

void check(const Case& one, Draw kind) {
    std::mt19937_64 random(7);
    const std::string text = text_of(one);
    for (int round = 0; round < 8; ++round) {
        Buffers buffers;
        for (int i = 0; i < 96; ++i) buffers.in[i] = drawn(random, kind);
        const Outcome outcome = run_program(text, buffers);
        BOOST_REQUIRE_MESSAGE(outcome.findings.empty(), one.instruction << ": " << outcome.text());
        for (int lane = 0; lane < 32; ++lane) {
            const u64 a = buffers.in[lane], b = buffers.in[32 + lane], c = buffers.in[64 + lane];
            const u64 expected = one.expected(a, b, c), found = buffers.out[lane];
            BOOST_REQUIRE_MESSAGE(same(one.result, expected, found), one.instruction << " of " << std::hex << a << ", "
                                                                                     << b << ", " << c << " is "
                                                                                     << found << ", not " << expected);
        }
    }
}

void check_all(const std::vector<Case>& cases, Draw kind) {
    for (const Case& one : cases) check(one, kind);
}

template <class F>
auto in_rounding(int mode, F compute) {
    std::fesetround(mode);
    const auto result = compute();
    std::fesetround(FE_TONEAREST);
    return result;
}

float volatile_sum(float a, float b) {
    volatile float x = a, y = b;
    volatile float sum = x + y;
    return sum;
}

u64 sign_extended(u64 value, int width) {
    return static_cast<u64>(static_cast<s64>(value << (64 - width)) >> (64 - width));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(arithmetic)

BOOST_AUTO_TEST_CASE(integers_of_32_bits) {
    check_all(
        {{"add.s32 %rr, %ra, %rb", 'r', [](u64 a, u64 b, u64) { return u64{u32(a) + u32(b)}; }},
         {"sub.s32 %rr, %ra, %rb", 'r', [](u64 a, u64 b, u64) { return u64{u32(a) - u32(b)}; }},
         {"mul.lo.s32 %rr, %ra, %rb", 'r', [](u64 a, u64 b, u64) { return u64{u32(a) * u32(b)}; }},
         {"mul.hi.s32 %rr, %ra, %rb", 'r', [](u64 a, u64 b, u64) { return u64{u32(s64{s32(a)} * s32(b) >> 32)}; }},
         {"mul.hi.u32 %rr, %ra, %rb", 'r', [](u64 a, u64 b, u64) { return u64{u32(a)} * u32(b) >> 32; }},
         {"mul.wide.s32 %rdd, %ra, %rb", 'l', [](u64 a, u64 b, u64) { return u64(s64{s32(a)} * s32(b)); }},
         {"mul.wide.u32 %rdd, %ra, %rb", 'l', [](u64 a, u64 b, u64) { return u64{u32(a)} * u32(b); }},
         {"mul.wide.u16 %rr, %ha, %hb", 'r', [](u64 a, u64 b, u64) { return u64{u32{u16(a)} * u16(b)}; }},
         {"mad.lo.s32 %rr, %ra, %rb, %rc", 'r', [](u64 a, u64 b, u64 c) { return u64{u32(a) * u32(b) + u32(c)}; }},
         {"mad.hi.s32 %rr, %ra, %rb, %rc", 'r',
          [](u64 a, u64 b, u64 c) { return u64{u32(s64{s32(a)} * s32(b) >> 32) + u32(c)}; }},
         {"mad.wide.s32 %rdd, %ra, %rb, %rdc", 'l', [](u64 a, u64 b, u64 c) { return u64(s64{s32(a)} * s32(b)) + c; }},
         {"min.s32 %rr, %ra, %rb", 'r', [](u64 a, u64 b, u64) { return u64{u32(std::min(s32(a), s32(b)))}; }},
         {"max.u32 %rr, %ra, %rb", 'r', [](u64 a, u64 b, u64) { return u64{std::max(u32(a), u32(b))}; }},
         {"abs.s32 %rr, %ra", 'r', [](u64 a, u64, u64) { return u64{s32(a) < 0 ? 0 - u32(a) : u32(a)}; }},
         {"neg.s32 %rr, %ra", 'r', [](u64 a, u64, u64) { return u64{0 - u32(a)}; }},
         {"and.b32 %rr, %ra, %rb", 'r', [](u64 a, u64 b, u64) { return u64{u32(a) & u32(b)}; }},
         {"or.b32 %rr, %ra, %rb", 'r', [](u64 a, u64 b, u64) { return u64{u32(a) | u32(b)}; }},
         {"xor.b32 %rr, %ra, %rb", 'r', [](u64 a, u64 b, u64) { return u64{u32(a) ^ u32(b)}; }},
         {"not.b32 %rr, %ra", 'r', [](u64 a, u64, u64) { return u64{~u32(a)}; }},
         {"shl.b32 %rr, %ra, %rb", 'r', [](u64 a, u64 b, u64) { return u32(b) > 31 ? 0 : u64{u32(a) << u32(b)}; }},
         {"shr.u32 %rr, %ra, %rb", 'r', [](u64 a, u64 b, u64) { return u32(b) > 31 ? 0 : u64{u32(a) >> u32(b)}; }},
         {"shr.s32 %rr, %ra, %rb", 'r', [](u64 a, u64 b, u64) { return u64{u32(s32(a) >> std::min(u32(b), 31u))}; }},
         {"popc.b32 %rr, %ra", 'r', [](u64 a, u64, u64) { return u64(std::popcount(u32(a))); }},
         {"clz.b32 %rr, %ra", 'r', [](u64 a, u64, u64) { return u64(std::countl_zero(u32(a))); }},
         {"bfind.u32 %rr, %ra", 'r', [](u64 a, u64, u64) { return u64{u32(31 - std::countl_zero(u32(a)))}; }},
         {"bfind.shiftamt.u32 %rr, %ra", 'r',
          [](u64 a, u64, u64) { return u64{u32(a) == 0 ? ~0u : u32(std::countl_zero(u32(a)))}; }},
         {"bfind.s32 %rr, %ra", 'r',
          [](u64 a, u64, u64) { return u64{u32(31 - std::countl_zero(s32(a) < 0 ? ~u32(a) : u32(a)))}; }},
         {"brev.b32 %rr, %ra", 'r',
          [](u64 a, u64, u64) {
              u64 result = 0;
              for (int i = 0; i < 32; ++i) result |= (a >> i & 1) << (31 - i);
              return result;
          }},
         {"bfe.s32 %rr, %ra, 5, 9", 'r', [](u64 a, u64, u64) { return u64{u32(sign_extended(a >> 5 & 511, 9))}; }},
         {"bfe.u32 %rr, %ra, 28, 9", 'r', [](u64 a, u64, u64) { return u64{u32(a) >> 28}; }},
         {"bfi.b32 %rr, %ra, %rb, 4, 8", 'r',
          [](u64 a, u64 b, u64) { return u64{(u32(b) & ~0xff0u) | (u32(a) & 255) << 4}; }},
         {"bfi.b64 %rdd, %rda, %rdb, 60, 8", 'l', [](u64 a, u64 b, u64) { return (b & ~u64{0} >> 4) | a << 60; }},
         {"prmt.b32 %rr, %ra, %rb, 0x7091", 'r',
          [](u64 a, u64 b, u64) {
              const u64 both = u32(a) | u64{u32(b)} << 32;
              const auto byte = [&](int i) { return both >> 8 * i & 255; };
              const u64 extended = byte(1) & 128 ? 255 : 0;  // selector 9: the sign of byte 1
              return byte(1) | extended << 8 | byte(0) << 16 | byte(7) << 24;
          }},
         {"shf.l.wrap.b32 %rr, %ra, %rb, %rc", 'r',
          [](u64 a, u64 b, u64 c) { return u64{u32((u32(a) | u64{u32(b)} << 32) << (c & 31) >> 32)}; }},
         {"shf.r.clamp.b32 %rr, %ra, %rb, %rc", 'r',
          [](u64 a, u64 b, u64 c) { return u64{u32((u32(a) | u64{u32(b)} << 32) >> std::min(u32(c), 32u))}; }},
         {"lop3.b32 %rr, %ra, %rb, %rc, 0xe8", 'r',
          [](u64 a, u64 b, u64 c) { return u64{u32((a & b) | (a & c) | (b & c))}; }},
         {"selp.b32 %rr, %ra, %rb, %pa", 'r', [](u64 a, u64 b, u64 c) { return u64{u32(c) != 0 ? u32(a) : u32(b)}; }}},
        Draw::integers);
}

BOOST_AUTO_TEST_CASE(integers_of_other_widths) {
    __extension__ using s128 = __int128;
    check_all({{"add.s64 %rdd, %rda, %rdb", 'l', [](u64 a, u64 b, u64) { return a + b; }},
               {"mul.lo.s64 %rdd, %rda, %rdb", 'l', [](u64 a, u64 b, u64) { return a * b; }},
               {"mul.hi.s64 %rdd, %rda, %rdb", 'l', [](u64 a, u64 b, u64) { return u64(s128{s64(a)} * s64(b) >> 64); }},
               {"neg.s64 %rdd, %rda", 'l', [](u64 a, u64, u64) { return 0 - a; }},
               {"min.s64 %rdd, %rda, %rdb", 'l', [](u64 a, u64 b, u64) { return u64(std::min(s64(a), s64(b))); }},
               {"shl.b64 %rdd, %rda, %rb", 'l', [](u64 a, u64 b, u64) { return u32(b) > 63 ? 0 : a << u32(b); }},
               {"shr.s64 %rdd, %rda, %rb", 'l', [](u64 a, u64 b, u64) { return u64(s64(a) >> std::min(u32(b), 63u)); }},
               {"shr.u64 %rdd, %rda, %rb", 'l', [](u64 a, u64 b, u64) { return u32(b) > 63 ? 0 : a >> u32(b); }},
               {"div.s64 %rdd, %rda, 7", 'l', [](u64 a, u64, u64) { return u64(s64(a) / 7); }},
               {"rem.s64 %rdd, %rda, -7", 'l', [](u64 a, u64, u64) { return u64(s64(a) % -7); }},
               {"div.u64 %rdd, %rda, 1000", 'l', [](u64 a, u64, u64) { return a / 1000; }},
               {"div.s32 %rr, %ra, 3", 'r', [](u64 a, u64, u64) { return u64{u32(s32(a) / 3)}; }},
               {"rem.u32 %rr, %ra, 10", 'r', [](u64 a, u64, u64) { return u64{u32(a) % 10}; }},
               {"add.s16 %hd, %ha, %hb", 'h', [](u64 a, u64 b, u64) { return u64{u16(a + b)}; }},
               {"mul.lo.s16 %hd, %ha, %hb", 'h', [](u64 a, u64 b, u64) { return u64{u16(a * b)}; }},
               {"shr.s16 %hd, %ha, 3", 'h', [](u64 a, u64, u64) { return u64{u16(s16(a) >> 3)}; }},
               {"mov.b32 %rr, {%ha, %hb}", 'r', [](u64 a, u64 b, u64) { return u64{u32{u16(a)} | u32{u16(b)} << 16}; }},
               {"mov.b32 {%hd, _}, %ra", 'h', [](u64 a, u64, u64) { return u64{u16(a)}; }},
               {"mov.b64 %rdd, {%ra, %rb}", 'l', [](u64 a, u64 b, u64) { return u32(a) | u64{u32(b)} << 32; }},
               {"mov.b64 {_, %rr}, %rda", 'r', [](u64 a, u64, u64) { return a >> 32; }},
               {"setp.lt.s32 %pd, %ra, %rb", 'p', [](u64 a, u64 b, u64) { return u64{s32(a) < s32(b)}; }},
               {"setp.hs.u32 %pd, %ra, %rb", 'p', [](u64 a, u64 b, u64) { return u64{u32(a) >= u32(b)}; }},
               {"setp.eq.s16 %pd, %ha, %hb", 'p', [](u64 a, u64 b, u64) { return u64{u16(a) == u16(b)}; }},
               {"setp.gt.and.s64 %pd, %rda, %rdb, !%pa", 'p',
                [](u64 a, u64 b, u64 c) { return u64{s64(a) > s64(b) && u32(c) == 0}; }},
               {"setp.le.u64 %p9|%pd, %rda, %rdb", 'p', [](u64 a, u64 b, u64) { return u64{a > b}; }},
               {"xor.pred %pd, %pa, %pa", 'p', [](u64, u64, u64) { return u64{0}; }},
               {"not.pred %pd, %pa", 'p', [](u64, u64, u64 c) { return u64{u32(c) == 0}; }}},
              Draw::integers);
}

BOOST_AUTO_TEST_CASE(singles) {
    const auto least = [](float a, float b) {
        return std::isnan(a) ? b : std::isnan(b) ? a : a == b ? (std::signbit(a) ? a : b) : std::min(a, b);
    };
    check_all(
        {{"add.f32 %fr, %fa, %fb", 'f', [](u64 a, u64 b, u64) { return bits(f(a) + f(b)); }},
         {"sub.rn.f32 %fr, %fa, %fb", 'f', [](u64 a, u64 b, u64) { return bits(f(a) - f(b)); }},
         {"mul.f32 %fr, %fa, %fb", 'f', [](u64 a, u64 b, u64) { return bits(f(a) * f(b)); }},
         {"div.rn.f32 %fr, %fa, %fb", 'f', [](u64 a, u64 b, u64) { return bits(f(a) / f(b)); }},
         {"fma.rn.f32 %fr, %fa, %fb, %fc", 'f', [](u64 a, u64 b, u64 c) { return bits(std::fma(f(a), f(b), f(c))); }},
         {"add.rz.f32 %fr, %fa, %fb", 'f',
          [](u64 a, u64 b, u64) { return bits(in_rounding(FE_TOWARDZERO, [&] { return volatile_sum(f(a), f(b)); })); }},
         {"add.rp.f32 %fr, %fa, %fb", 'f',
          [](u64 a, u64 b, u64) { return bits(in_rounding(FE_UPWARD, [&] { return volatile_sum(f(a), f(b)); })); }},
         {"min.f32 %fr, %fa, %fb", 'f', [=](u64 a, u64 b, u64) { return bits(least(f(a), f(b))); }},
         {"max.f32 %fr, %fa, %fb", 'f', [=](u64 a, u64 b, u64) { return bits(-least(-f(a), -f(b))); }},
         {"max.NaN.f32 %fr, %fa, %fb", 'f',
          [=](u64 a, u64 b, u64) { return bits(std::isnan(f(a)) || std::isnan(f(b)) ? NAN : -least(-f(a), -f(b))); }},
         {"neg.f32 %fr, %fa", 'f', [](u64 a, u64, u64) { return bits(-f(a)); }},
         {"abs.f32 %fr, %fa", 'f', [](u64 a, u64, u64) { return bits(std::fabs(f(a))); }},
         {"copysign.f32 %fr, %fa, %fb", 'f', [](u64 a, u64 b, u64) { return bits(std::copysign(f(b), f(a))); }},
         {"rcp.rn.f32 %fr, %fa", 'f', [](u64 a, u64, u64) { return bits(1 / f(a)); }},
         {"sqrt.rn.f32 %fr, %fa", 'f', [](u64 a, u64, u64) { return bits(std::sqrt(f(a))); }},
         {"mul.ftz.f32 %fr, %fa, %fb", 'f',
          [](u64 a, u64 b, u64) {
              const auto flushed = [](float value) {
                  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
              };
              return bits(flushed(flushed(f(a)) * flushed(f(b))));
          }},
         {"add.sat.f32 %fr, %fa, %fb", 'f',
          [](u64 a, u64 b, u64) {
              const float sum = f(a) + f(b);
              return bits(std::isnan(sum) ? 0.0f : std::clamp(sum, 0.0f, 1.0f) + 0.0f);
          }},
         {"setp.lt.f32 %pd, %fa, %fb", 'p', [](u64 a, u64 b, u64) { return u64{f(a) < f(b)}; }},
         {"setp.ltu.f32 %pd, %fa, %fb", 'p', [](u64 a, u64 b, u64) { return u64{!(f(a) >= f(b))}; }},
         {"setp.ne.f32 %pd, %fa, %fb", 'p', [](u64 a, u64 b, u64) { return u64{f(a) < f(b) || f(a) > f(b)}; }},
         {"setp.neu.f32 %pd, %fa, %fb", 'p', [](u64 a, u64 b, u64) { return u64{f(a) != f(b)}; }},
         {"setp.num.f32 %pd, %fa, %fb", 'p',
          [](u64 a, u64 b, u64) { return u64{!std::isnan(f(a)) && !std::isnan(f(b))}; }}},
        Draw::singles);
}

BOOST_AUTO_TEST_CASE(approximations_are_within_their_bounds) {
    const auto near = [](double exact) { return bits(static_cast<float>(exact)); };
    Buffers buffers;
    for (int lane = 0; lane < 32; ++lane) buffers.in[lane] = bits(0.37f * static_cast<float>(lane) - 3.1f);
    const Case cases[] = {
        {"ex2.approx.ftz.f32 %fr, %fa", 'f', [=](u64 a, u64, u64) { return near(std::exp2(double{f(a)})); }},
        {"rcp.approx.ftz.f32 %fr, %fa", 'f', [=](u64 a, u64, u64) { return near(1 / double{f(a)}); }},
        {"tanh.approx.f32 %fr, %fa", 'f', [=](u64 a, u64, u64) { return near(std::tanh(double{f(a)})); }}};
    for (const Case& one : cases) {
        BOOST_REQUIRE(run_program(text_of(one), buffers).findings.empty());
        for (int lane = 0; lane < 32; ++lane)
            BOOST_TEST(f(buffers.out[lane]) == f(one.expected(buffers.in[lane], 0, 0)),
                       boost::test_tools::tolerance(0x1p-22f));
    }
}

BOOST_AUTO_TEST_CASE(doubles) {
    check_all(
        {{"add.f64 %dd, %da, %db", 'd', [](u64 a, u64 b, u64) { return bits(d(a) + d(b)); }},
         {"fma.rn.f64 %dd, %da, %db, %dc", 'd', [](u64 a, u64 b, u64 c) { return bits(std::fma(d(a), d(b), d(c))); }},
         {"div.rn.f64 %dd, %da, %db", 'd', [](u64 a, u64 b, u64) { return bits(d(a) / d(b)); }},
         {"sqrt.rn.f64 %dd, %da", 'd', [](u64 a, u64, u64) { return bits(std::sqrt(d(a))); }},
         {"cvt.rn.f32.f64 %fr, %da", 'f', [](u64 a, u64, u64) { return bits(static_cast<float>(d(a))); }},
         {"cvt.rzi.f64.f64 %dd, %da", 'd', [](u64 a, u64, u64) { return bits(std::trunc(d(a))); }},
         {"cvt.rni.s32.f64 %rr, %da", 'r',
          [](u64 a, u64, u64) {
              if (std::isnan(d(a))) return u64{0};
              return u64{u32(s32(std::clamp(std::nearbyint(d(a)), -2147483648.0, 2147483647.0)))};
          }},
         {"setp.gtu.f64 %pd, %da, %db", 'p', [](u64 a, u64 b, u64) { return u64{!(d(a) <= d(b))}; }}},
        Draw::doubles);
}

BOOST_AUTO_TEST_CASE(conversions) {
    check_all(
        {{"cvt.s64.s32 %rdd, %ra", 'l', [](u64 a, u64, u64) { return u64(s64{s32(a)}); }},
         {"cvt.u64.u32 %rdd, %ra", 'l', [](u64 a, u64, u64) { return u64{u32(a)}; }},
         {"cvt.u32.u16 %rr, %ha", 'r', [](u64 a, u64, u64) { return u64{u16(a)}; }},
         {"cvt.s32.s8 %rr, %ra", 'r', [](u64 a, u64, u64) { return u64{u32(sign_extended(a, 8))}; }},
         {"cvt.sat.s8.s32 %rr, %ra", 'r', [](u64 a, u64, u64) { return u64{u32(std::clamp(s32(a), -128, 127))}; }},
         {"cvt.sat.u16.s32 %hd, %ra", 'h', [](u64 a, u64, u64) { return u64(std::clamp(s32(a), 0, 65535)); }},
         {"cvt.rn.f32.s32 %fr, %ra", 'f', [](u64 a, u64, u64) { return bits(static_cast<float>(s32(a))); }},
         {"cvt.rn.f32.s64 %fr, %rda", 'f', [](u64 a, u64, u64) { return bits(static_cast<float>(s64(a))); }},
         {"cvt.rz.f32.u64 %fr, %rda", 'f',
          [](u64 a, u64, u64) {
              return bits(in_rounding(FE_TOWARDZERO, [&] {
                  volatile u64 value = a;
                  volatile float result = static_cast<float>(value);
                  return float{result};
              }));
          }},
         {"cvt.rn.f64.u32 %dd, %ra", 'd', [](u64 a, u64, u64) { return bits(double(u32(a))); }}},
        Draw::integers);
    check_all({{"cvt.f64.f32 %dd, %fa", 'd', [](u64 a, u64, u64) { return bits(double{f(a)}); }},
               {"cvt.rzi.s32.f32 %rr, %fa", 'r',
                [](u64 a, u64, u64) {
                    if (std::isnan(f(a))) return u64{0};
                    return u64{u32(s32(std::clamp(std::trunc(double{f(a)}), -2147483648.0, 2147483647.0)))};
                }},
               {"cvt.rmi.u32.f32 %rr, %fa", 'r',
                [](u64 a, u64, u64) {
                    return std::isnan(f(a)) ? 0 : u64(std::clamp(std::floor(double{f(a)}), 0.0, 4294967295.0));
                }},
               {"cvt.rn.bf16.f32 %hd, %fa", 'h', [](u64 a, u64, u64) { return u64{brain_of_single(f(a))}; }},
               {"cvt.rn.f16x2.f32 %rr, %fa, %fb", 'r',
                [](u64 a, u64 b, u64) { return u64{half_of_single(f(b))} | u64{half_of_single(f(a))} << 16; }}},
              Draw::singles);
}

// All fp16 numbers there and back, and the middles between them.
BOOST_AUTO_TEST_CASE(narrow_numbers_round_to_the_nearest_even) {
    for (u32 half = 0; half < 0x7c00; ++half) {
        const float value = single_of_half(u16(half)),
                    above = half == 0x7bff ? 65536.0f : single_of_half(u16(half + 1));
        const float exact =
            half < 0x400 ? std::ldexp(float(half), -24) : std::ldexp(float(half % 1024 + 1024), int(half / 1024) - 25);
        BOOST_REQUIRE_EQUAL(value, exact);
        BOOST_REQUIRE_EQUAL(half_of_single(value), half);
        const float middle = (value + above) / 2;
        BOOST_REQUIRE_EQUAL(half_of_single(middle), half % 2 == 0 ? half : half + 1);
        BOOST_REQUIRE_EQUAL(half_of_single(std::nextafter(middle, 0.0f)), half);
        BOOST_REQUIRE_EQUAL(half_of_single(-std::nextafter(middle, INFINITY)), 0x8000 + half + 1);
        BOOST_REQUIRE_EQUAL(half_of_single(middle, Rounding::zero), half);
    }
    for (u32 brain = 0; brain < 0x7f80; ++brain) {
        const u32 middle = brain << 16 | 0x8000;
        BOOST_REQUIRE_EQUAL(brain_of_single(f(middle)), brain % 2 == 0 ? brain : brain + 1);
        BOOST_REQUIRE_EQUAL(brain_of_single(f(middle - 1)), brain);
        BOOST_REQUIRE_EQUAL(brain_of_single(f(middle + 1)), brain + 1);
    }
    BOOST_TEST(half_of_single(NAN) == 0x7fff);
    BOOST_TEST(brain_of_single(NAN) == 0x7fff);
    BOOST_TEST(std::isinf(single_of_half(0x7c00)));
}

BOOST_AUTO_TEST_CASE(narrow_arithmetic) {
    const auto half = [](u64 a, int part) { return double{single_of_half(u16(a >> 16 * part))}; };
    check_all(
        {{"add.f16x2 %rr, %ra, %rb", 'r',
          [=](u64 a, u64 b, u64) {
              return u64{half_of_single(float(half(a, 0) + half(b, 0)))} |
                     u64{half_of_single(float(half(a, 1) + half(b, 1)))} << 16;
          }},
         {"mul.f16 %hd, %ha, %hb", 'h',
          [=](u64 a, u64 b, u64) { return u64{half_of_single(float(half(a, 0) * half(b, 0)))}; }},
         {"mul.bf16 %hd, %ha, %hb", 'h',
          [=](u64 a, u64 b, u64) { return u64{brain_of_single(single_of_brain(u16(a)) * single_of_brain(u16(b)))}; }}},
        Draw::halves);
    // Just below the middle of two fp16 numbers: rounded to fp32 first, it would be the middle.
    Buffers buffers;
    buffers.in[0] = half_of_single(1.0f + 0x1p-10f);
    buffers.in[32] = half_of_single(1.0f + 0x1p-1f);
    buffers.in[64] = half_of_single(-0x1p-24f);
    BOOST_TEST(run_program(text_of({"fma.rn.f16 %hd, %ha, %hb, %hc", 'h', {}}), buffers).findings.empty());
    BOOST_TEST(buffers.out[0] == half_of_single(1.5f + 0x1p-10f));
}

BOOST_AUTO_TEST_CASE(what_is_not_known_is_named_with_its_line) {
    const auto fails_with = [](const std::string& text, const std::string& part) {
        BOOST_CHECK_EXCEPTION(Module(program(text)), lockstep::Error, [&](const lockstep::Error& error) {
            return std::string(error.what()).find(part) != std::string::npos;
        });
    };
    fails_with("frobnicate.b32 %r2, %r3;", "PTX line 23: frobnicate.b32");
    fails_with("add.wild.s32 %r2, %r3, %r4;", "add.wild.s32");
    fails_with("add.s32.wild %r2, %r3, %r4;", "wild");
    fails_with("add.s32 %r2, %rd3, %r4;", "another size");
    fails_with("mov.u32 %r2, %clock;", "%clock");
    fails_with("bra nowhere;", "nowhere");
    fails_with("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f0}, {%r0}, {%r1}, {%f1};", "m16n8k16");
}

BOOST_AUTO_TEST_SUITE_END()
