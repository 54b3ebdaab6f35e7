#include <algorithm>
#include <cfenv>
#include <cmath>
#include <limits>

#include "ptx/numbers.hpp"
#include "ptx/state.hpp"

namespace lockstep::ptx {

namespace {

// A source, whatever its type: an integer or a number.
struct Value {
    bool integer = true, is_signed = false;
    std::uint64_t bits = 0;  // sign-extended
    double number = 0;
};

std::uint64_t read(const std::byte* place, int bytes) {
    std::uint64_t result = 0;
    std::memcpy(&result, place, static_cast<std::size_t>(bytes));
    return result;
}

Value value_of(const std::byte* place, Type type) {
    const int bytes = bytes_of(type);
    const std::uint64_t bits = read(place, bytes);
    const int unused = 64 - 8 * bytes;
    Value result;
    switch (type) {
        case Type::f16:
            return {false, true, 0, single_of_half(static_cast<std::uint16_t>(bits))};
        case Type::bf16:
            return {false, true, 0, single_of_brain(static_cast<std::uint16_t>(bits))};
        case Type::f32:
            return {false, true, 0, std::bit_cast<float>(static_cast<std::uint32_t>(bits))};
        case Type::f64:
            return {false, true, 0, std::bit_cast<double>(bits)};
        case Type::s8:
        case Type::s16:
        case Type::s32:
        case Type::s64:
            result.is_signed = true;
            result.bits = static_cast<std::uint64_t>(static_cast<std::int64_t>(bits << unused) >> unused);
            return result;
        default:
            result.bits = bits;
            return result;
    }
}

double rounded(double value, Rounding rounding) {
    switch (rounding) {
        case Rounding::zero:
        case Rounding::zero_integer:
            return std::trunc(value);
        case Rounding::down:
        case Rounding::down_integer:
            return std::floor(value);
        case Rounding::up:
        case Rounding::up_integer:
            return std::ceil(value);
        default:
            return std::nearbyint(value);
    }
}

bool is_signed(Type type) {
    return type >= Type::s8 && type <= Type::s64;
}

// Out of range: the nearest that the type has; NaN: 0.
std::uint64_t integer_of(double value, Type type, Rounding rounding) {
    const int bits = 8 * bytes_of(type);
    if (std::isnan(value)) return 0;
    const double whole = rounded(value, rounding);
    if (is_signed(type)) {
        const double limit = std::ldexp(1.0, bits - 1);
        const auto most = static_cast<std::int64_t>((std::uint64_t{1} << (bits - 1)) - 1);
        return static_cast<std::uint64_t>(whole >= limit   ? most
                                          : whole < -limit ? -most - 1
                                                           : static_cast<std::int64_t>(whole));
    }
    const std::uint64_t most = bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
    return whole >= std::ldexp(1.0, bits) ? most : whole <= 0 ? 0 : static_cast<std::uint64_t>(whole);
}

std::uint64_t saturated(const Value& value, Type type) {
    const int bits = 8 * bytes_of(type);
    if (is_signed(type)) {
        const auto most = static_cast<std::int64_t>((std::uint64_t{1} << (bits - 1)) - 1);
        if (!value.is_signed) return std::min(value.bits, static_cast<std::uint64_t>(most));
        return static_cast<std::uint64_t>(std::clamp(static_cast<std::int64_t>(value.bits), -most - 1, most));
    }
    if (value.is_signed && static_cast<std::int64_t>(value.bits) < 0) return 0;
    const std::uint64_t most = bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
    return std::min(value.bits, most);
}

// In the host's rounding mode, which is set.
template <class T>
__attribute__((noinline)) T number_of(const Value& value) {
    if (!value.integer) return static_cast<T>(value.number);
    return value.is_signed ? static_cast<T>(static_cast<std::int64_t>(value.bits)) : static_cast<T>(value.bits);
}

template <class T>
T flushed(T value) {
    return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(T{0}, value) : value;
}

template <class T>
T limited(T value, const Instruction& i) {
    if (i.flush) value = flushed(value);
    if (i.saturate) value = value > 0 ? value < 1 ? value : T{1} : T{0};
    return value;
}

std::uint64_t converted(const std::byte* place, const Instruction& i) {
    Value value = value_of(place, i.from);
    if (i.flush && i.from == Type::f32) value.number = flushed(static_cast<float>(value.number));
    switch (i.type) {
        case Type::f32:
        case Type::f64: {
            if (!value.integer && i.rounding >= Rounding::nearest_integer)
                value.number = rounded(value.number, i.rounding);
            if (i.type == Type::f64) return std::bit_cast<std::uint64_t>(limited(number_of<double>(value), i));
            return std::bit_cast<std::uint32_t>(limited(number_of<float>(value), i));
        }
        case Type::f16:
            return half_of_single(limited(number_of<float>(value), i), i.rounding);
        case Type::bf16:
            return brain_of_single(limited(number_of<float>(value), i), i.rounding);
        default:
            break;
    }
    std::uint64_t result = !value.integer ? integer_of(value.number, i.type, i.rounding)
                           : i.saturate   ? saturated(value, i.type)
                                          : value.bits;
    // Signed results are extended to the register's width, others filled up with zeroes.
    const int unused = 64 - 8 * bytes_of(i.type);
    result <<= unused;
    return is_signed(i.type) ? static_cast<std::uint64_t>(static_cast<std::int64_t>(result) >> unused)
                             : result >> unused;
}

void in_general(Lanes& x, const Instruction& i) {
    const auto* const from = reinterpret_cast<const std::byte*>(x.in<std::uint16_t>(i.a));
    auto* const to = reinterpret_cast<std::byte*>(x.place<std::uint16_t>(i.d));
    const bool narrow = i.type == Type::f16 || i.type == Type::bf16;
    const bool changes = !narrow && i.rounding != Rounding::nearest && i.rounding < Rounding::nearest_integer;
    if (changes) std::fesetround(host_rounding(i.rounding));
    for (int lane = 0; lane < lane_count; ++lane) {
        if (!(x.mask >> lane & 1)) continue;
        const std::uint64_t result = converted(from + lane * i.from_bytes, i);
        std::memcpy(to + lane * i.place_bytes, &result, i.place_bytes);
    }
    if (changes) std::fesetround(FE_TONEAREST);
    x.define(i.d);
}

template <class To, class From, class F>
__attribute__((always_inline)) inline void each(Lanes& x, const Instruction& i, F f) {
    const From* const a = x.in<From>(i.a);
    To result[lane_count];
    for (int lane = 0; lane < lane_count; ++lane) result[lane] = f(a[lane]);
    x.put(i.d, result);
}

constexpr unsigned both(Type to, Type from) {
    return static_cast<unsigned>(to) * 20 + static_cast<unsigned>(from);
}

}  // namespace

// The frequent ones, between registers of their types' widths. True: it was one.
LOCKSTEP_PTX_VECTOR static bool execute_frequent(Lanes& x, const Instruction& i) {
    using u16 = std::uint16_t;
    using u32 = std::uint32_t;
    using u64 = std::uint64_t;
    switch (both(i.type, i.from)) {
        case both(Type::s64, Type::s32):
            each<std::int64_t, std::int32_t>(x, i, [](std::int32_t a) { return std::int64_t{a}; });
            return true;
        case both(Type::u64, Type::u32):
            each<u64, u32>(x, i, [](u32 a) { return u64{a}; });
            return true;
        case both(Type::u32, Type::u16):
            each<u32, u16>(x, i, [](u16 a) { return u32{a}; });
            return true;
        case both(Type::u32, Type::u64):
            each<u32, u64>(x, i, [](u64 a) { return static_cast<u32>(a); });
            return true;
        case both(Type::f32, Type::s32):
            each<float, std::int32_t>(x, i, [](std::int32_t a) { return static_cast<float>(a); });
            return true;
        case both(Type::f32, Type::f16):
            each<float, u16>(x, i, [](u16 a) { return single_of_half(a); });
            return true;
        case both(Type::f32, Type::bf16):
            each<float, u16>(x, i, [](u16 a) { return single_of_brain(a); });
            return true;
        case both(Type::bf16, Type::f32):
            each<u16, float>(x, i, [](float a) { return brain_of_single(a); });
            return true;
        case both(Type::f16, Type::f32):
            each<u16, float>(x, i, [](float a) { return half_of_single(a); });
            return true;
        default:
            return false;
    }
}

LOCKSTEP_PTX_VECTOR static void execute_pair(Lanes& x, const Instruction& i) {
    const float *const a = x.in<float>(i.a), *const b = x.in<float>(i.b);
    const auto rounding = i.rounding;
    std::uint32_t result[lane_count];
    if (i.type == Type::bf16x2) {
        for (int lane = 0; lane < lane_count; ++lane)
            result[lane] = static_cast<std::uint32_t>(brain_of_single(a[lane], rounding)) << 16 |
                           brain_of_single(b[lane], rounding);
    } else {
        for (int lane = 0; lane < lane_count; ++lane)
            result[lane] =
                static_cast<std::uint32_t>(half_of_single(a[lane], rounding)) << 16 | half_of_single(b[lane], rounding);
    }
    x.put(i.d, result);
}

void execute_convert(Lanes& x, const Instruction& i) {
    if (i.op == Op::convert_pair) return execute_pair(x, i);
    if (i.op == Op::convert) {
        const auto natural = [](Type type) { return std::max(bytes_of(type), 2); };
        const bool plain = i.rounding == Rounding::nearest && !i.flush && !i.saturate &&
                           i.place_bytes == natural(i.type) && i.from_bytes == natural(i.from);
        const std::uint32_t whole = x.written[i.a];
        if (i.flag) x.written[i.a] |= x.warp->low_written[i.a];
        if (!plain || !execute_frequent(x, i)) in_general(x, i);
        if (i.flag && i.d != i.a) x.written[i.a] = whole;
        return;
    }
    std::uint64_t window = 0;
    if (i.space == Space::shared) window = shared_window;
    if (i.space == Space::local) window = local_window;
    if (i.space == Space::parameter) window = parameter_window;
    if (i.op == Op::from_generic) window = 0 - window;
    const auto* const a = x.in<std::uint64_t>(i.a);
    std::uint64_t result[lane_count];
    for (int lane = 0; lane < lane_count; ++lane) result[lane] = a[lane] + window;
    x.put(i.d, result);
}

}  // namespace lockstep::ptx
