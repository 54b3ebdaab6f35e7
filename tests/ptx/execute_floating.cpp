#include <cfenv>
#include <cmath>
#include <limits>

#include "ptx/each_lane.hpp"
#include "ptx/numbers.hpp"

namespace lockstep::ptx {

namespace {

// What .approx allows an error of is computed as the host's library does, within its bounds.

template <class T>
struct BitsOf;
template <>
struct BitsOf<float> {
    using type = std::uint32_t;
};
template <>
struct BitsOf<double> {
    using type = std::uint64_t;
};

template <class T>
LOCKSTEP_PTX_INLINE typename BitsOf<T>::type bits(T value) {
    return std::bit_cast<typename BitsOf<T>::type>(value);
}
template <class T>
LOCKSTEP_PTX_INLINE T number(typename BitsOf<T>::type value) {
    return std::bit_cast<T>(value);
}
template <class T>
constexpr typename BitsOf<T>::type sign_bit = typename BitsOf<T>::type{1} << (8 * sizeof(T) - 1);

// The other where one is NaN; -0 is less than +0.
template <class T>
LOCKSTEP_PTX_INLINE T least(T a, T b) {
    const T equal = number<T>(bits(a) | bits(b));
    return a != a ? b : b != b ? a : a == b ? equal : a < b ? a : b;
}
template <class T>
LOCKSTEP_PTX_INLINE T most(T a, T b) {
    const T equal = number<T>(bits(a) & bits(b));
    return a != a ? b : b != b ? a : a == b ? equal : a < b ? b : a;
}

template <class T>
LOCKSTEP_PTX_INLINE void fused(Lanes& x, const Instruction& i) {
    const T *const a = x.in<T>(i.a), *const b = x.in<T>(i.b), *const c = x.in<T>(i.c);
    T result[lane_count];
    for (int lane = 0; lane < lane_count; ++lane) {
        if constexpr (sizeof(T) == 4)
            result[lane] = __builtin_fmaf(a[lane], b[lane], c[lane]);
        else
            result[lane] = __builtin_fma(a[lane], b[lane], c[lane]);
    }
    x.put(i.d, result);
}

// rcp.approx.ftz.f64 looks at and writes the upper 32 bits only.
double coarse_reciprocal(double a) {
    constexpr std::uint64_t upper = 0xffffffff00000000u;
    return number<double>(bits(1 / number<double>(bits(a) & upper)) & upper);
}

template <class T>
LOCKSTEP_PTX_INLINE void compute(Lanes& x, const Instruction& i) {
    switch (i.op) {
        case Op::add:
            return two_sources<T>(x, i, [](T a, T b) { return a + b; });
        case Op::sub:
            return two_sources<T>(x, i, [](T a, T b) { return a - b; });
        case Op::multiply:
            return two_sources<T>(x, i, [](T a, T b) { return a * b; });
        case Op::divide:
            return two_sources<T>(x, i, [](T a, T b) { return a / b; });
        case Op::fma:
            return fused<T>(x, i);
        case Op::minimum:
            if (i.flag)
                return two_sources<T>(x, i, [](T a, T b) {
                    return a != a || b != b ? std::numeric_limits<T>::quiet_NaN() : least(a, b);
                });
            return two_sources<T>(x, i, [](T a, T b) { return least(a, b); });
        case Op::maximum:
            if (i.flag)
                return two_sources<T>(
                    x, i, [](T a, T b) { return a != a || b != b ? std::numeric_limits<T>::quiet_NaN() : most(a, b); });
            return two_sources<T>(x, i, [](T a, T b) { return most(a, b); });
        case Op::negate:
            return one_source<T>(x, i, [](T a) { return number<T>(bits(a) ^ sign_bit<T>); });
        case Op::absolute:
            return one_source<T>(x, i, [](T a) { return number<T>(bits(a) & ~sign_bit<T>); });
        case Op::copy_sign:
            return two_sources<T>(
                x, i, [](T a, T b) { return number<T>((bits(a) & sign_bit<T>) | (bits(b) & ~sign_bit<T>)); });
        case Op::reciprocal:
            if (sizeof(T) == 8 && i.flush)
                return one_source<T>(x, i, [](T a) { return static_cast<T>(coarse_reciprocal(a)); });
            return one_source<T>(x, i, [](T a) { return 1 / a; });
        case Op::square_root:
            return one_source<T>(x, i, [](T a) { return std::sqrt(a); });
        case Op::reciprocal_root:
            return one_source<T>(x, i, [](T a) { return static_cast<T>(1 / std::sqrt(static_cast<double>(a))); });
        case Op::exp2:
            return one_source<T>(x, i, [](T a) { return std::exp2(a); });
        case Op::log2:
            return one_source<T>(x, i, [](T a) { return std::log2(a); });
        case Op::sine:
            return one_source<T>(x, i, [](T a) { return std::sin(a); });
        case Op::cosine:
            return one_source<T>(x, i, [](T a) { return std::cos(a); });
        case Op::tangent_h:
            return one_source<T>(x, i, [](T a) { return std::tanh(a); });
        default:
            break;
    }
}

// A subnormal becomes a zero of its sign.
template <class T>
LOCKSTEP_PTX_INLINE T flushed(T value) {
    constexpr auto exponent = std::is_same_v<T, float> ? typename BitsOf<T>::type{0x7f800000u}
                                                       : static_cast<typename BitsOf<T>::type>(0x7ff0000000000000u);
    return (bits(value) & exponent) == 0 ? number<T>(bits(value) & sign_bit<T>) : value;
}

struct Narrow {
    float (*to_single)(std::uint16_t);
    std::uint16_t (*from_single)(float, Rounding);
};

// a * b + c for rounding to fp16 or bf16: where bits are lost, first of fp64 and then of fp32, the last kept one is
// set, so that what lies beside the middle of two narrow numbers does not become the middle.
float product_sum(float a, float b, float c) {
    const double product = static_cast<double>(a) * b;
    double sum = product + c;
    if (!std::isfinite(sum)) return static_cast<float>(sum);
    const double part = sum - product;
    const double lost = (product - (sum - part)) + (c - part);
    if (lost != 0 && (bits(sum) & 1) == 0)
        sum = number<double>((lost > 0) == (sum > 0) ? bits(sum) + 1 : bits(sum) - 1);
    const auto result = static_cast<float>(sum);
    if (static_cast<double>(result) == sum || (bits(result) & 1) != 0 || std::isinf(result)) return result;
    return number<float>(std::fabs(static_cast<double>(result)) < std::fabs(sum) ? bits(result) + 1 : bits(result) - 1);
}

float narrow_result(const Instruction& i, float a, float b, float c) {
    switch (i.op) {
        case Op::add:
            return a + b;
        case Op::sub:
            return a - b;
        case Op::multiply:
            return a * b;
        case Op::fma:
            return product_sum(a, b, c);
        case Op::minimum:
            return i.flag && (a != a || b != b) ? NAN : least(a, b);
        case Op::maximum:
            return i.flag && (a != a || b != b) ? NAN : most(a, b);
        case Op::negate:
            return -a;
        case Op::absolute:
            return std::fabs(a);
        case Op::exp2:
            return std::exp2(a);
        case Op::tangent_h:
            return std::tanh(a);
        default:
            return NAN;
    }
}

// fp32 has enough bits for sums and products of these to be rounded twice without harm.
template <class Word>
void compute_narrow(Lanes& x, const Instruction& i) {
    const bool half = i.type == Type::f16 || i.type == Type::f16x2;
    const Narrow kind = half ? Narrow{single_of_half, half_of_single} : Narrow{single_of_brain, brain_of_single};
    const Word* const a = x.in<Word>(i.a);
    const Word* const b = i.b == no_slot ? a : x.in<Word>(i.b);
    const Word* const c = i.c == no_slot ? a : x.in<Word>(i.c);
    Word result[lane_count] = {};
    for (int lane = 0; lane < lane_count; ++lane)
        for (std::size_t part = 0; part < 8 * sizeof(Word); part += 16) {
            const auto of = [&](Word word) { return kind.to_single(static_cast<std::uint16_t>(word >> part)); };
            const float value = narrow_result(i, of(a[lane]), of(b[lane]), of(c[lane]));
            result[lane] |= static_cast<Word>(Word{kind.from_single(value, Rounding::nearest)} << part);
        }
    x.put(i.d, result);
}

}  // namespace

LOCKSTEP_PTX_VECTOR static void execute_single(Lanes& x, const Instruction& i) {
    compute<float>(x, i);
}
LOCKSTEP_PTX_VECTOR static void execute_double(Lanes& x, const Instruction& i) {
    compute<double>(x, i);
}

namespace {

constexpr Slot flushed_slots = 0;

// With .ftz or .sat: on copies of the sources.
template <class T>
void compute_modified(Lanes& x, const Instruction& i) {
    alignas(64) T places[4][lane_count] = {};
    const Slot sources[] = {i.a, i.b, i.c};
    for (int s = 0; s < 3; ++s) {
        if (sources[s] == no_slot) continue;
        const T* const from = x.in<T>(sources[s]);
        for (int lane = 0; lane < lane_count; ++lane) places[s][lane] = i.flush ? flushed(from[lane]) : from[lane];
    }
    constexpr Slot each = sizeof places[0] / slot_bytes;
    std::uint32_t written[4 * each];
    std::fill(std::begin(written), std::end(written), all_lanes);
    Lanes copy = x;
    copy.file = reinterpret_cast<std::byte*>(places);
    copy.written = written;
    copy.defined = all_lanes;
    Instruction plain = i;
    plain.a = flushed_slots;
    plain.b = i.b == no_slot ? no_slot : each;
    plain.c = i.c == no_slot ? no_slot : 2 * each;
    plain.d = 3 * each;
    sizeof(T) == 4 ? execute_single(copy, plain) : execute_double(copy, plain);
    for (T& value : places[3]) {
        if (i.flush) value = flushed(value);
        if (i.saturate) value = value > 0 ? value < 1 ? value : T{1} : T{0};
    }
    x.put(i.d, places[3]);
}

}  // namespace

void execute_floating(Lanes& x, const Instruction& i) {
    if (i.type == Type::f16 || i.type == Type::bf16) return compute_narrow<std::uint16_t>(x, i);
    if (i.type == Type::f16x2 || i.type == Type::bf16x2) return compute_narrow<std::uint32_t>(x, i);
    const bool single = i.type == Type::f32;
    if (i.rounding != Rounding::nearest) std::fesetround(host_rounding(i.rounding));
    if (i.flush || i.saturate)
        single ? compute_modified<float>(x, i) : compute_modified<double>(x, i);
    else
        single ? execute_single(x, i) : execute_double(x, i);
    if (i.rounding != Rounding::nearest) std::fesetround(FE_TONEAREST);
}

}  // namespace lockstep::ptx
