// A part of a tensor as single elements, for the tests of spread tensors.
#pragma once

#include <cstdint>
#include <vector>

#include "device/tensor.hpp"

namespace lockstep::checkpoint_tests {

// Elements [first, first + count) of the slice [offset, offset + extent) of an axis.
struct Part {
    int axis = 0;
    std::int64_t offset = 0, extent = 0, first = 0, count = 0;
};

// Where they lie in the tensor: found by going through all of its elements.
inline std::vector<std::int64_t> elements_of_part(const Shape& shape, const Part& part) {
    std::vector<std::int64_t> elements;
    std::int64_t of_slice = 0;
    for (std::int64_t element = 0; element < element_count(shape); ++element) {
        std::int64_t rest = element, index = 0;
        for (auto axis = static_cast<int>(shape.size()) - 1; axis >= part.axis; --axis) {
            index = rest % shape[static_cast<std::size_t>(axis)];
            rest /= shape[static_cast<std::size_t>(axis)];
        }
        if (index < part.offset || index >= part.offset + part.extent) continue;
        if (of_slice >= part.first && of_slice < part.first + part.count) elements.push_back(element);
        ++of_slice;
    }
    return elements;
}

}  // namespace lockstep::checkpoint_tests
