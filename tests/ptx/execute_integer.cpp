#include <bit>
#include <type_traits>

#include "ptx/each_lane.hpp"

namespace lockstep::ptx {

namespace {

template <class T>
struct Wider;
template <>
struct Wider<std::uint16_t> {
    using type = std::uint32_t;
};
template <>
struct Wider<std::int16_t> {
    using type = std::int32_t;
};
template <>
struct Wider<std::uint32_t> {
    using type = std::uint64_t;
};
template <>
struct Wider<std::int32_t> {
    using type = std::int64_t;
};
template <>
struct Wider<std::uint64_t> {
    __extension__ using type = unsigned __int128;
};
template <>
struct Wider<std::int64_t> {
    __extension__ using type = __int128;
};

// Overflow wraps.
template <class T>
using Unsigned = std::make_unsigned_t<T>;

template <class T>
LOCKSTEP_PTX_INLINE T high(T a, T b) {
    using W = typename Wider<T>::type;
    return static_cast<T>(static_cast<W>(a) * static_cast<W>(b) >> (8 * sizeof(T)));
}

// By zero: the manual leaves the result open; hardware gives all ones, and the dividend as the remainder.
template <class T>
LOCKSTEP_PTX_INLINE T quotient(T a, T b) {
    if (b == 0) return static_cast<T>(~T{0});
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(Unsigned<T>(0) - Unsigned<T>(a));
    return static_cast<T>(a / b);
}
template <class T>
LOCKSTEP_PTX_INLINE T left_over(T a, T b) {
    if (b == 0) return a;
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
}

template <class T, class A>
LOCKSTEP_PTX_INLINE T extracted(A value, std::uint32_t position, std::uint32_t length) {
    constexpr std::uint32_t bits = 8 * sizeof(T);
    position &= 255;
    length &= 255;
    using U = Unsigned<T>;
    if (length == 0) return 0;
    const auto bit = [&](std::uint32_t at) { return static_cast<U>(static_cast<U>(value) >> at & 1); };
    const std::uint32_t top = std::min(position + length - 1, bits - 1);
    U result = position < bits ? static_cast<U>(static_cast<U>(value) >> position) : U{0};
    if (length < bits) result &= static_cast<U>((U{1} << length) - 1);
    if (std::is_signed_v<T> && bit(top) != 0) {
        const std::uint32_t kept = position < bits ? std::min(length, bits - position) : 0;
        if (kept < bits) result |= static_cast<U>(~U{0} << kept);
    }
    return static_cast<T>(result);
}

template <class T>
LOCKSTEP_PTX_INLINE T inserted(T a, T b, std::uint32_t position, std::uint32_t length) {
    constexpr std::uint32_t bits = 8 * sizeof(T);
    position &= 255;
    length &= 255;
    if (length == 0 || position >= bits) return b;
    const T ones = length >= bits ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << length) - 1);
    return static_cast<T>((b & ~(ones << position)) | ((a & ones) << position));
}

// bfind: the highest bit that differs from the sign; all ones where there is none.
template <class T>
LOCKSTEP_PTX_INLINE std::uint32_t highest(T value) {
    auto bits = static_cast<Unsigned<T>>(value < 0 ? ~value : value);
    return bits == 0 ? ~0u : static_cast<std::uint32_t>(8 * sizeof(T) - 1 - std::countl_zero(bits));
}

template <class T>
LOCKSTEP_PTX_INLINE T reversed(T value) {
    T result = 0;
    for (std::size_t bit = 0; bit < 8 * sizeof(T); ++bit)
        result |= static_cast<T>((value >> bit & 1) << (8 * sizeof(T) - 1 - bit));
    return result;
}

LOCKSTEP_PTX_INLINE std::uint32_t permuted(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
    const std::uint64_t bytes = a | static_cast<std::uint64_t>(b) << 32;
    std::uint32_t result = 0;
    for (int i = 0; i < 4; ++i) {
        const std::uint32_t choice = selector >> (4 * i) & 15;
        std::uint32_t byte = bytes >> (8 * (choice & 7)) & 255;
        if (choice & 8) byte = byte & 128 ? 255 : 0;
        result |= byte << (8 * i);
    }
    return result;
}

template <class T>
LOCKSTEP_PTX_INLINE void shifted(Lanes& x, const Instruction& i) {
    constexpr std::uint32_t bits = 8 * sizeof(T);
    const T* const a = x.in<T>(i.a);
    const auto* const b = x.in<std::uint32_t>(i.b);
    T result[lane_count];
    if (i.op == Op::shift_left) {
        for (int lane = 0; lane < lane_count; ++lane)
            result[lane] = b[lane] < bits ? static_cast<T>(a[lane] << (b[lane] & (bits - 1))) : T{0};
    } else {
        for (int lane = 0; lane < lane_count; ++lane)
            result[lane] = std::is_signed_v<T> ? static_cast<T>(a[lane] >> std::min(b[lane], bits - 1))
                           : b[lane] < bits    ? static_cast<T>(a[lane] >> (b[lane] & (bits - 1)))
                                               : T{0};
    }
    x.put(i.d, result);
}

template <class T>
LOCKSTEP_PTX_INLINE void widened(Lanes& x, const Instruction& i) {
    using W = typename Wider<T>::type;
    const T *const a = x.in<T>(i.a), *const b = x.in<T>(i.b);
    W result[lane_count];
    for (int lane = 0; lane < lane_count; ++lane) result[lane] = static_cast<W>(a[lane]) * static_cast<W>(b[lane]);
    if (i.op == Op::mad_wide) {
        const W* const c = x.in<W>(i.c);
        for (int lane = 0; lane < lane_count; ++lane)
            result[lane] = static_cast<W>(static_cast<Unsigned<W>>(result[lane]) + static_cast<Unsigned<W>>(c[lane]));
    }
    x.put(i.d, result);
}

template <class T>
LOCKSTEP_PTX_INLINE void moved(Lanes& x, const Instruction& i) {
    T result[lane_count];
    std::memcpy(result, x.in<T>(i.a), sizeof result);
    x.put(i.d, result);
}

template <class T>
LOCKSTEP_PTX_INLINE void selected(Lanes& x, const Instruction& i) {
    const std::uint32_t chosen = i.flag ? ~x.predicate(i.c) : x.predicate(i.c), decided = x.defined;
    const T *const a = x.in<T>(i.a), *const b = x.in<T>(i.b);
    x.defined = decided & ((x.written[i.a] & chosen) | (x.written[i.b] & ~chosen));
    T result[lane_count];
    for (int lane = 0; lane < lane_count; ++lane) result[lane] = chosen >> lane & 1 ? a[lane] : b[lane];
    x.put(i.d, result);
}

template <class T, class P>
LOCKSTEP_PTX_INLINE void packed(Lanes& x, const Instruction& i) {
    T result[lane_count] = {};
    std::uint32_t low = 0;
    for (unsigned part = 0; part < i.count; ++part) {
        const Slot slot = x.launch->kernel.lists[i.list + part];
        const P* const a = x.in<P>(slot);
        if (part == 0) low = x.defined;
        for (int lane = 0; lane < lane_count; ++lane)
            result[lane] |= static_cast<T>(static_cast<T>(a[lane]) << (8 * sizeof(P) * part));
    }
    x.put(i.d, result);
    if constexpr (sizeof(T) == 8 && sizeof(P) == 4) x.warp->low_written[i.d] |= low & x.mask;
}

template <class T, class P>
LOCKSTEP_PTX_INLINE void unpacked(Lanes& x, const Instruction& i) {
    T a[lane_count];
    std::memcpy(a, x.in<T>(i.a), sizeof a);
    for (unsigned part = 0; part < i.count; ++part) {
        const Slot slot = x.launch->kernel.lists[i.list + part];
        if (slot == no_slot) continue;
        P result[lane_count];
        for (int lane = 0; lane < lane_count; ++lane) result[lane] = static_cast<P>(a[lane] >> (8 * sizeof(P) * part));
        x.put(slot, result);
    }
}

template <class T>
LOCKSTEP_PTX_INLINE void bits_of(Lanes& x, const Instruction& i) {
    const T* const a = x.in<T>(i.a);
    std::uint32_t result[lane_count];
    constexpr std::uint32_t last = 8 * sizeof(T) - 1;
    for (int lane = 0; lane < lane_count; ++lane) {
        const std::uint32_t found = highest(a[lane]);
        const auto plain = static_cast<Unsigned<T>>(a[lane]);
        result[lane] = i.op == Op::find            ? found
                       : i.op == Op::find_shift    ? (found == ~0u ? ~0u : last - found)
                       : i.op == Op::leading_zeros ? static_cast<std::uint32_t>(std::countl_zero(plain))
                                                   : static_cast<std::uint32_t>(std::popcount(plain));
    }
    x.put(i.d, result);
}

template <class T>
LOCKSTEP_PTX_INLINE void extract_bits(Lanes& x, const Instruction& i) {
    const T* const a = x.in<T>(i.a);
    const auto *const b = x.in<std::uint32_t>(i.b), *const c = x.in<std::uint32_t>(i.c);
    T result[lane_count];
    for (int lane = 0; lane < lane_count; ++lane) result[lane] = extracted<T>(a[lane], b[lane], c[lane]);
    x.put(i.d, result);
}

template <class T>
LOCKSTEP_PTX_INLINE void insert_bits(Lanes& x, const Instruction& i) {
    const T *const a = x.in<T>(i.a), *const b = x.in<T>(i.b);
    const auto *const c = x.in<std::uint32_t>(i.c), *const d = x.in<std::uint32_t>(i.fourth);
    T result[lane_count];
    for (int lane = 0; lane < lane_count; ++lane) result[lane] = inserted(a[lane], b[lane], c[lane], d[lane]);
    x.put(i.d, result);
}

// Those whose result does not depend on the sign.
template <class T>
LOCKSTEP_PTX_INLINE void plain(Lanes& x, const Instruction& i) {
    switch (i.op) {
        case Op::add:
            return two_sources<T>(x, i, [](T a, T b) { return static_cast<T>(a + b); });
        case Op::sub:
            return two_sources<T>(x, i, [](T a, T b) { return static_cast<T>(a - b); });
        case Op::mul_low:
            return two_sources<T>(x, i, [](T a, T b) { return static_cast<T>(std::uint64_t{a} * b); });
        case Op::mad_low:
            return three_sources<T>(x, i, [](T a, T b, T c) { return static_cast<T>(std::uint64_t{a} * b + c); });
        case Op::negate:
            return one_source<T>(x, i, [](T a) { return static_cast<T>(0 - a); });
        case Op::bit_and:
            return two_sources<T>(x, i, [](T a, T b) { return static_cast<T>(a & b); });
        case Op::bit_or:
            return two_sources<T>(x, i, [](T a, T b) { return static_cast<T>(a | b); });
        case Op::bit_xor:
            return two_sources<T>(x, i, [](T a, T b) { return static_cast<T>(a ^ b); });
        case Op::bit_not:
            return one_source<T>(x, i, [](T a) { return static_cast<T>(~a); });
        case Op::shift_left:
            return shifted<T>(x, i);
        case Op::insert:
            return insert_bits<T>(x, i);
        case Op::reverse:
            return one_source<T>(x, i, [](T a) { return reversed(a); });
        case Op::move:
            return moved<T>(x, i);
        case Op::select:
            return selected<T>(x, i);
        default:
            break;
    }
}

template <class T>
LOCKSTEP_PTX_INLINE void signed_or_not(Lanes& x, const Instruction& i) {
    switch (i.op) {
        case Op::mul_high:
            return two_sources<T>(x, i, [](T a, T b) { return high(a, b); });
        case Op::mad_high:
            return three_sources<T>(x, i, [](T a, T b, T c) {
                return static_cast<T>(static_cast<Unsigned<T>>(high(a, b)) + static_cast<Unsigned<T>>(c));
            });
        case Op::divide:
            return two_sources<T>(x, i, [](T a, T b) { return quotient(a, b); });
        case Op::remainder:
            return two_sources<T>(x, i, [](T a, T b) { return left_over(a, b); });
        case Op::minimum:
            return two_sources<T>(x, i, [](T a, T b) { return a < b ? a : b; });
        case Op::maximum:
            return two_sources<T>(x, i, [](T a, T b) { return a < b ? b : a; });
        case Op::absolute:
            return one_source<T>(x, i, [](T a) { return static_cast<T>(a < 0 ? Unsigned<T>(0) - Unsigned<T>(a) : a); });
        case Op::shift_right:
            return shifted<T>(x, i);
        case Op::extract:
            return extract_bits<T>(x, i);
        case Op::find:
        case Op::find_shift:
        case Op::count_ones:
        case Op::leading_zeros:
            return bits_of<T>(x, i);
        default:
            break;
    }
}

}  // namespace

LOCKSTEP_PTX_VECTOR static void execute_plain(Lanes& x, const Instruction& i) {
    switch (i.type) {
        case Type::u16:
            return plain<std::uint16_t>(x, i);
        case Type::u32:
            return plain<std::uint32_t>(x, i);
        default:
            return plain<std::uint64_t>(x, i);
    }
}

LOCKSTEP_PTX_VECTOR static void execute_signed_or_not(Lanes& x, const Instruction& i) {
    switch (i.type) {
        case Type::u16:
            return signed_or_not<std::uint16_t>(x, i);
        case Type::s16:
            return signed_or_not<std::int16_t>(x, i);
        case Type::u32:
            return signed_or_not<std::uint32_t>(x, i);
        case Type::s32:
            return signed_or_not<std::int32_t>(x, i);
        case Type::u64:
            return signed_or_not<std::uint64_t>(x, i);
        default:
            return signed_or_not<std::int64_t>(x, i);
    }
}

LOCKSTEP_PTX_VECTOR static void execute_wide(Lanes& x, const Instruction& i) {
    switch (i.type) {
        case Type::u16:
            return widened<std::uint16_t>(x, i);
        case Type::s16:
            return widened<std::int16_t>(x, i);
        case Type::u32:
            return widened<std::uint32_t>(x, i);
        default:
            return widened<std::int32_t>(x, i);
    }
}

void execute_integer(Lanes& x, const Instruction& i) {
    using u32 = std::uint32_t;
    switch (i.op) {
        case Op::mul_wide:
        case Op::mad_wide:
            return execute_wide(x, i);
        case Op::mul_high:
        case Op::mad_high:
        case Op::divide:
        case Op::remainder:
        case Op::minimum:
        case Op::maximum:
        case Op::absolute:
        case Op::shift_right:
        case Op::extract:
        case Op::find:
        case Op::find_shift:
        case Op::count_ones:
        case Op::leading_zeros:
            return execute_signed_or_not(x, i);
        case Op::pack:
            if (i.bytes == 2)
                return i.type == Type::u32 ? packed<u32, std::uint16_t>(x, i)
                                           : packed<std::uint64_t, std::uint16_t>(x, i);
            return packed<std::uint64_t, u32>(x, i);
        case Op::unpack:
            if (i.bytes == 2)
                return i.type == Type::u32 ? unpacked<u32, std::uint16_t>(x, i)
                                           : unpacked<std::uint64_t, std::uint16_t>(x, i);
            return unpacked<std::uint64_t, u32>(x, i);
        case Op::permute:
            return three_sources<u32>(x, i, permuted);
        case Op::funnel_left:
        case Op::funnel_right: {
            const bool wrap = i.flag, left = i.op == Op::funnel_left;
            return three_sources<u32>(x, i, [=](u32 a, u32 b, u32 c) {
                const u32 by = wrap ? c & 31 : std::min(c, 32u);
                const std::uint64_t both = a | static_cast<std::uint64_t>(b) << 32;
                return static_cast<u32>(left ? both << by >> 32 : both >> by);
            });
        }
        case Op::logic3: {
            const auto table = static_cast<u32>(i.offset);
            return three_sources<u32>(x, i, [=](u32 a, u32 b, u32 c) {
                u32 result = 0;
                for (u32 row = 0; row < 8; ++row)
                    if (table >> row & 1) result |= (row & 4 ? a : ~a) & (row & 2 ? b : ~b) & (row & 1 ? c : ~c);
                return result;
            });
        }
        default:
            return execute_plain(x, i);
    }
}

}  // namespace lockstep::ptx
