// The descriptions of machines that come with the program: the files of hardware/, put into it when it is built.
#pragma once

#include <vector>

namespace lockstep::planner {

struct ShippedHardware {
    const char* name;  // the file's, without .toml
    const char* toml;
};
extern const std::vector<ShippedHardware> shipped_hardware;

}  // namespace lockstep::planner
