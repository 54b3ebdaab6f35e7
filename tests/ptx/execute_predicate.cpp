#include <cmath>

#include "ptx/each_lane.hpp"
#include "ptx/numbers.hpp"

namespace lockstep::ptx {

namespace {

template <class T, class F>
LOCKSTEP_PTX_INLINE std::uint32_t mask_of(const T* a, const T* b, F f) {
    std::uint32_t result = 0;
    for (int lane = 0; lane < lane_count; ++lane) result |= static_cast<std::uint32_t>(f(a[lane], b[lane])) << lane;
    return result;
}

template <class T>
LOCKSTEP_PTX_INLINE std::uint32_t compared(const T* a, const T* b, Compare how) {
    switch (how) {
        case Compare::eq:
            return mask_of(a, b, [](T x, T y) { return x == y; });
        // Of numbers, false where one is NaN.
        case Compare::ne:
            return mask_of(a, b, [](T x, T y) { return x == x && y == y && x != y; });
        case Compare::lt:
            return mask_of(a, b, [](T x, T y) { return x < y; });
        case Compare::le:
            return mask_of(a, b, [](T x, T y) { return x <= y; });
        case Compare::gt:
            return mask_of(a, b, [](T x, T y) { return x > y; });
        case Compare::ge:
            return mask_of(a, b, [](T x, T y) { return x >= y; });
        case Compare::equ:
            return mask_of(a, b, [](T x, T y) { return x != x || y != y || x == y; });
        case Compare::neu:
            return mask_of(a, b, [](T x, T y) { return x != y; });
        case Compare::ltu:
            return mask_of(a, b, [](T x, T y) { return !(x >= y); });
        case Compare::leu:
            return mask_of(a, b, [](T x, T y) { return !(x > y); });
        case Compare::gtu:
            return mask_of(a, b, [](T x, T y) { return !(x <= y); });
        case Compare::geu:
            return mask_of(a, b, [](T x, T y) { return !(x < y); });
        case Compare::num:
            return mask_of(a, b, [](T x, T y) { return x == x && y == y; });
        case Compare::nan:
            return mask_of(a, b, [](T x, T y) { return x != x || y != y; });
    }
    return 0;
}

template <class T>
LOCKSTEP_PTX_INLINE std::uint32_t compared(Lanes& x, const Instruction& i) {
    const T *const a = x.in<T>(i.a), *const b = x.in<T>(i.b);
    return compared(a, b, static_cast<Compare>(i.mode));
}

std::uint32_t compared_narrow(Lanes& x, const Instruction& i) {
    float a[lane_count], b[lane_count];
    const auto *const first = x.in<std::uint16_t>(i.a), *const second = x.in<std::uint16_t>(i.b);
    for (int lane = 0; lane < lane_count; ++lane) {
        a[lane] = i.type == Type::f16 ? single_of_half(first[lane]) : single_of_brain(first[lane]);
        b[lane] = i.type == Type::f16 ? single_of_half(second[lane]) : single_of_brain(second[lane]);
    }
    return compared(a, b, static_cast<Compare>(i.mode));
}

std::uint32_t compared_flushed(Lanes& x, const Instruction& i) {
    float a[lane_count], b[lane_count];
    const auto *const first = x.in<float>(i.a), *const second = x.in<float>(i.b);
    const auto flushed = [](float value) { return std::fpclassify(value) == FP_SUBNORMAL ? 0.0f : value; };
    for (int lane = 0; lane < lane_count; ++lane) {
        a[lane] = flushed(first[lane]);
        b[lane] = flushed(second[lane]);
    }
    return compared(a, b, static_cast<Compare>(i.mode));
}

struct Known {
    std::uint32_t value, defined;
};

// What was never written does not matter where the other operand alone decides.
Known combine(Known a, Known b, Combine how) {
    const std::uint32_t both = a.defined & b.defined;
    switch (how) {
        case Combine::bit_and:
            return {a.value & b.value, both | (a.defined & ~a.value) | (b.defined & ~b.value)};
        case Combine::bit_or:
            return {a.value | b.value, both | (a.defined & a.value) | (b.defined & b.value)};
        default:
            return {a.value ^ b.value, both};
    }
}

void put(Lanes& x, Slot slot, Known known) {
    x.defined = known.defined;
    x.put_predicate(slot, known.value);
}

void combined(Lanes& x, const Instruction& i, Combine how) {
    const Known a{x.predicate(i.a), x.predicate_written[i.a]}, b{x.predicate(i.b), x.predicate_written[i.b]};
    put(x, i.d, combine(a, b, how));
}

}  // namespace

LOCKSTEP_PTX_VECTOR static std::uint32_t execute_compare(Lanes& x, const Instruction& i) {
    switch (i.type) {
        case Type::u16:
            return compared<std::uint16_t>(x, i);
        case Type::s16:
            return compared<std::int16_t>(x, i);
        case Type::u32:
            return compared<std::uint32_t>(x, i);
        case Type::s32:
            return compared<std::int32_t>(x, i);
        case Type::u64:
            return compared<std::uint64_t>(x, i);
        case Type::s64:
            return compared<std::int64_t>(x, i);
        case Type::f32:
            return compared<float>(x, i);
        case Type::f64:
            return compared<double>(x, i);
        default:
            return compared_narrow(x, i);
    }
}

void execute_predicate(Lanes& x, const Instruction& i) {
    switch (i.op) {
        case Op::compare: {
            const std::uint32_t result = i.flush ? compared_flushed(x, i) : execute_compare(x, i);
            if (i.combine == 0) {
                x.put_predicate(i.d, result);
                x.put_predicate(i.second, ~result);
                return;
            }
            const auto how = static_cast<Combine>(i.combine);
            const Known compared{result, x.defined};
            x.defined = all_lanes;
            std::uint32_t other = x.predicate(i.fourth);
            if (i.flag) other = ~other;
            put(x, i.second, combine({~result, compared.defined}, {other, x.defined}, how));
            return put(x, i.d, combine(compared, {other, x.predicate_written[i.fourth]}, how));
        }
        case Op::bit_and:
            return combined(x, i, Combine::bit_and);
        case Op::bit_or:
            return combined(x, i, Combine::bit_or);
        case Op::bit_xor:
            return combined(x, i, Combine::bit_xor);
        case Op::bit_not:
            return x.put_predicate(i.d, ~x.predicate(i.a));
        default:
            return x.put_predicate(i.d, i.flag ? ~x.predicate(i.a) : x.predicate(i.a));
    }
}

}  // namespace lockstep::ptx
