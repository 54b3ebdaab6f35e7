// The kernels of this process as its host objects register them before main, and the PTX behind them.
#pragma once

#include <string>
#include <vector>

#include "ptx/machine.hpp"

namespace lockstep::ptx {

struct FatBinary;

struct RegisteredFunction {
    std::string name;        // mangled
    std::string short_name;  // without namespaces and parameters
    FatBinary* binary = nullptr;
    const Kernel* kernel = nullptr;      // once decoded
    int most_dynamic_shared = 48 << 10;  // bytes a launch may ask for; cudaFuncSetAttribute raises it
    unsigned long long launches = 0;
};

// The function behind a host address, or its handle (__cudaGetKernel); nullptr: not one of ours.
RegisteredFunction* find_function(const void* host_address);
std::vector<RegisteredFunction*> all_functions();

// Its kernel for the architecture that is run, decoded at the first call. nullptr: not compiled for it. Error: PTX that
// the machine does not know.
const Kernel* decoded(RegisteredFunction& function);

}  // namespace lockstep::ptx
