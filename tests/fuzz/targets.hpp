// The functions of all fuzz targets by name, in a build without libFuzzer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::fuzz {

struct Target {
    const char* name;
    int (*run)(const std::uint8_t* data, std::size_t size);
};
extern const std::vector<Target> targets;

}  // namespace lockstep::fuzz
