#include "cuda_emulation/nccl/reduction.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/error.hpp"
#include "kernels/cuda/element.hpp"
#include "nccl.h"

namespace lockstep::emulation::nccl {
namespace {

using kernels::cuda::bf16;
using kernels::cuda::fp16;

// The type sums are computed in, and the rounding back to the stored one.
template <class Stored>
struct Arithmetic {
    using Value = Stored;
    static Value load(Stored stored) { return stored; }
    static Stored store(Value value) { return value; }
};
template <class Stored>
struct HalfArithmetic {
    using Value = float;
    static Value load(Stored stored) { return kernels::cuda::to_float(stored); }
    static Stored store(Value value) { return kernels::cuda::from_float<Stored>(value); }
};
template <>
struct Arithmetic<bf16> : HalfArithmetic<bf16> {};
template <>
struct Arithmetic<fp16> : HalfArithmetic<fp16> {};

template <class Value>
Value combine(Value one, Value other, std::int32_t operation) {
    // Integers wrap, as on the device.
    if constexpr (std::is_integral_v<Value>) {
        using Unsigned = std::conditional_t<sizeof(Value) < 4, unsigned, std::make_unsigned_t<Value>>;
        if (operation == ncclSum || operation == ncclAvg)
            return static_cast<Value>(static_cast<Unsigned>(one) + static_cast<Unsigned>(other));
        if (operation == ncclProd) return static_cast<Value>(static_cast<Unsigned>(one) * static_cast<Unsigned>(other));
    } else {
        if (operation == ncclSum || operation == ncclAvg) return one + other;
        if (operation == ncclProd) return one * other;
    }
    return operation == ncclMax ? std::max(one, other) : std::min(one, other);
}

template <class Stored>
void reduce_as(void* result, const std::vector<const void*>& terms, std::size_t count, std::int32_t operation) {
    using Rule = Arithmetic<Stored>;
    using Value = typename Rule::Value;
    constexpr bool integral = std::is_integral_v<Value>;
    const auto ranks = static_cast<Value>(terms.size());
    Value scale{1};
    if constexpr (!integral) scale = Rule::load(Rule::store(Value{1} / ranks));

    const auto term = [&](std::size_t index, std::size_t at) {
        Stored stored;  // buffers need not be aligned to their elements
        std::memcpy(&stored, static_cast<const char*>(terms[index]) + at * sizeof(Stored), sizeof(Stored));
        if constexpr (!integral)
            if (operation == ncclAvg) stored = Rule::store(Rule::load(stored) * scale);
        return stored;
    };
    for (std::size_t at = 0; at < count; ++at) {
        Stored sum = term(0, at);
        for (std::size_t index = 1; index < terms.size(); ++index)
            sum = Rule::store(combine(Rule::load(sum), Rule::load(term(index, at)), operation));
        if constexpr (integral)
            if (operation == ncclAvg) sum = static_cast<Stored>(sum / ranks);
        std::memcpy(static_cast<char*>(result) + at * sizeof(Stored), &sum, sizeof(Stored));
    }
}

}  // namespace

void reduce(void* result, const std::vector<const void*>& terms, std::size_t count, std::int32_t type,
            std::int32_t operation) {
    switch (type) {
        case ncclInt8:
            return reduce_as<std::int8_t>(result, terms, count, operation);
        case ncclUint8:
            return reduce_as<std::uint8_t>(result, terms, count, operation);
        case ncclInt32:
            return reduce_as<std::int32_t>(result, terms, count, operation);
        case ncclUint32:
            return reduce_as<std::uint32_t>(result, terms, count, operation);
        case ncclInt64:
            return reduce_as<std::int64_t>(result, terms, count, operation);
        case ncclUint64:
            return reduce_as<std::uint64_t>(result, terms, count, operation);
        case ncclFloat16:
            return reduce_as<fp16>(result, terms, count, operation);
        case ncclFloat32:
            return reduce_as<float>(result, terms, count, operation);
        case ncclFloat64:
            return reduce_as<double>(result, terms, count, operation);
        case ncclBfloat16:
            return reduce_as<bf16>(result, terms, count, operation);
        default:
            contract_failed("a type that was checked at the call", __FILE__, __LINE__);
    }
}

}  // namespace lockstep::emulation::nccl
