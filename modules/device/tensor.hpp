// A typed, shaped view of memory that something else owns (an Arena). Row-major, up to 4 axes; the type is known at run
// time. Copying a Tensor copies the view.
//
// Tensors are dense but for matrices whose rows lie further apart than they are long: columns of a wider matrix, or
// rows padded to an alignment. kernels/operations.inc says which operations take these; data() and as() refuse them.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace lockstep {

enum class Type : std::uint8_t { fp32, bf16, fp16, int32, fp64 };
std::size_t type_bytes(Type type);
const char* type_name(Type type);

template <class Element>
constexpr bool is_element_of(Type) {
    return true;
}
template <>
constexpr bool is_element_of<float>(Type type) {
    return type == Type::fp32;
}
template <>
constexpr bool is_element_of<std::int32_t>(Type type) {
    return type == Type::int32;
}

template <>
constexpr bool is_element_of<double>(Type type) {
    return type == Type::fp64;
}

using Shape = std::vector<std::int64_t>;
std::int64_t element_count(const Shape& shape);
std::string shape_text(const Shape& shape);  // "[50257, 768]"

class Tensor {
  public:
    Tensor() = default;
    Tensor(void* data, Type type, const Shape& shape);
    // A matrix with `stride` elements from row to row.
    Tensor(void* data, Type type, const Shape& shape, std::int64_t stride);

    bool empty() const { return data_ == nullptr; }
    Type type() const { return type_; }
    int axes() const { return axes_; }
    std::int64_t size(int axis) const;  // negative counts from the end: size(-1)
    Shape shape() const { return {sizes_.begin(), sizes_.begin() + axes_}; }
    std::int64_t count() const;  // elements
    std::size_t bytes() const { return static_cast<std::size_t>(count()) * type_bytes(type_); }
    std::int64_t rows() const { return count() / size(-1); }                  // product of all axes but the last
    std::int64_t stride() const { return stride_ > 0 ? stride_ : size(-1); }  // elements from row to row
    bool dense() const { return stride_ == 0; }
    void* data() const {
        LOCKSTEP_ASSERT(dense());
        return data_;
    }
    void* strided_data() const { return data_; }  // for callers that respect stride()

    template <class Element>
    Element* as() const {
        LOCKSTEP_ASSERT(dense());
        return strided_as<Element>();
    }
    template <class Element>
    Element* strided_as() const {
        LOCKSTEP_ASSERT(is_element_of<Element>(type_));
        return static_cast<Element*>(data_);
    }
    float* fp32() const { return as<float>(); }
    double* fp64() const { return as<double>(); }

    Tensor reshaped(const Shape& shape) const;                     // same elements
    Tensor slice(std::int64_t first, std::int64_t count) const;    // rows [first, first + count) of the first axis
    Tensor columns(std::int64_t first, std::int64_t count) const;  // of a matrix

  private:
    void* data_ = nullptr;
    Type type_ = Type::fp32;
    int axes_ = 0;
    std::array<std::int64_t, 4> sizes_{};
    std::int64_t stride_ = 0;  // 0: dense
};

}  // namespace lockstep
