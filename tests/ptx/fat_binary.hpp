// The container in which nvcc hands a source's device code to the CUDA runtime.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::ptx {

struct Image {
    int architecture = 0;  // 80, 90
    std::string ptx;
};
constexpr std::uint32_t fat_binary_magic = 0xba55ed50;
// Its PTX. Damaged error: not a fat binary, or not compressed by zstd.
std::vector<Image> images(const void* fat_binary);

}  // namespace lockstep::ptx
