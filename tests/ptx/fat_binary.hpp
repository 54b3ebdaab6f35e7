// The container in which nvcc hands a source's device code to the CUDA runtime.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace lockstep::ptx {

enum class Code { ptx, machine };
struct Image {
    int architecture = 0;  // 80, 90
    std::string_view bytes;
};
constexpr std::uint32_t fat_binary_magic = 0xba55ed50;
// Its PTX, or its machine code as ELF files. Damaged error: not a fat binary, or compressed.
std::vector<Image> images(const void* fat_binary, Code code);

}  // namespace lockstep::ptx
