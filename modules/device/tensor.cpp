#include "device/tensor.hpp"

#include <fmt/ranges.h>

namespace lockstep {

std::size_t type_bytes(Type type) {
    if (type == Type::fp64) return 8;
    return type == Type::fp32 || type == Type::int32 ? 4 : 2;
}

const char* type_name(Type type) {
    switch (type) {
        case Type::fp32:
            return "fp32";
        case Type::bf16:
            return "bf16";
        case Type::fp16:
            return "fp16";
        case Type::int32:
            return "int32";
        case Type::fp64:
            return "fp64";
    }
    return "?";
}

std::int64_t element_count(const Shape& shape) {
    std::int64_t count = 1;
    for (const auto size : shape) count *= size;
    return count;
}

std::string shape_text(const Shape& shape) {
    return fmt::format("[{}]", fmt::join(shape, ", "));
}

Tensor::Tensor(void* data, Type type, const Shape& shape)
    : data_(data), type_(type), axes_(static_cast<int>(shape.size())) {
    LOCKSTEP_ASSERT(shape.size() <= sizes_.size());
    for (std::size_t axis = 0; axis < shape.size(); ++axis) sizes_[axis] = shape[axis];
}

Tensor::Tensor(void* data, Type type, const Shape& shape, std::int64_t stride) : Tensor(data, type, shape) {
    LOCKSTEP_ASSERT(shape.size() == 2 && stride >= shape[1]);
    if (stride > shape[1] && shape[0] > 1) stride_ = stride;
}

std::int64_t Tensor::size(int axis) const {
    const int index = axis < 0 ? axes_ + axis : axis;
    LOCKSTEP_ASSERT(index >= 0 && index < axes_);
    return sizes_[static_cast<std::size_t>(index)];
}

std::int64_t Tensor::count() const {
    std::int64_t count = 1;
    for (int axis = 0; axis < axes_; ++axis) count *= sizes_[static_cast<std::size_t>(axis)];
    return count;
}

Tensor Tensor::reshaped(const Shape& shape) const {
    LOCKSTEP_ASSERT(dense() && element_count(shape) == count());
    return {data_, type_, shape};
}

Tensor Tensor::slice(std::int64_t first, std::int64_t count) const {
    LOCKSTEP_ASSERT(axes_ > 0 && first >= 0 && count >= 0 && first + count <= sizes_[0]);
    Shape sizes = shape();
    const std::int64_t row = !dense() ? stride_ : sizes[0] == 0 ? 0 : this->count() / sizes[0];
    sizes[0] = count;
    void* const begin = static_cast<char*>(data_) + static_cast<std::size_t>(first * row) * type_bytes(type_);
    return dense() ? Tensor(begin, type_, sizes) : Tensor(begin, type_, sizes, stride_);
}

Tensor Tensor::columns(std::int64_t first, std::int64_t count) const {
    LOCKSTEP_ASSERT(axes_ == 2 && first >= 0 && count >= 0 && first + count <= sizes_[1]);
    char* const begin =
        data_ ? static_cast<char*>(data_) + static_cast<std::size_t>(first) * type_bytes(type_) : nullptr;
    return {begin, type_, {sizes_[0], count}, stride()};
}

}  // namespace lockstep
