#include "device/convert.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/float16.hpp"

namespace lockstep {

void from_fp32(Type type, void* to, const float* from, std::int64_t count) {
    switch (type) {
        case Type::fp32:
            std::copy_n(from, count, static_cast<float*>(to));
            return;
        case Type::bf16:
            std::transform(from, from + count, static_cast<std::uint16_t*>(to), bf16_bits);
            return;
        case Type::fp16:
            std::transform(from, from + count, static_cast<std::uint16_t*>(to), fp16_bits);
            return;
        default:
            throw fault_error("fp32 values cannot be converted to {}", type_name(type));
    }
}

void to_fp32(float* to, Type type, const void* from, std::int64_t count) {
    const auto* bits = static_cast<const std::uint16_t*>(from);
    switch (type) {
        case Type::fp32:
            std::copy_n(static_cast<const float*>(from), count, to);
            return;
        case Type::bf16:
            std::transform(bits, bits + count, to, bf16_value);
            return;
        case Type::fp16:
            std::transform(bits, bits + count, to, fp16_value);
            return;
        default:
            throw fault_error("{} values cannot be converted to fp32", type_name(type));
    }
}

}  // namespace lockstep
