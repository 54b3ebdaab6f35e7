// The machine descriptions in machines/, built into the program.
#pragma once

#include <vector>

namespace lockstep::config {

struct ShippedMachine {
    const char* name;  // the file's, without .toml
    const char* toml;
};
extern const std::vector<ShippedMachine> shipped_machines;

}  // namespace lockstep::config
