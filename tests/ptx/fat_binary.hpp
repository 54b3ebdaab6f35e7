// The container in which nvcc hands a source's device code to the CUDA runtime.
#pragma once

#include <string_view>
#include <vector>

namespace lockstep::ptx {

struct PtxText {
    int architecture = 0;  // 80, 90
    std::string_view text;
};
// The PTX in it. Damaged error: not a fat binary, or compressed.
std::vector<PtxText> ptx_texts(const void* fat_binary);

}  // namespace lockstep::ptx
