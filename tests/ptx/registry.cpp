#include "ptx/registry.hpp"

#include <cuda_runtime.h>
#include <cxxabi.h>
#include <fatbinary_section.h>

#include <cstdlib>
#include <memory>
#include <regex>
#include <unordered_map>

#include "base/error.hpp"
#include "ptx/fat_binary.hpp"
#include "ptx/outcome.hpp"
#include "ptx/settings.hpp"

namespace lockstep::ptx {

struct FatBinary {
    const void* data = nullptr;
    std::unique_ptr<Module> module;  // of the architecture that is run, once one of its kernels was launched
};

namespace {

// Host objects register before main and are unregistered after it, so that neither table is ever destroyed.
std::unordered_map<const void*, std::unique_ptr<RegisteredFunction>>& functions() {
    static auto& table = *new std::unordered_map<const void*, std::unique_ptr<RegisteredFunction>>;
    return table;
}

std::string demangled_short(const char* name) {
    int status = 0;
    char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
    if (status != 0) return name;
    static const std::regex spaces(R"((\w+|\(anonymous namespace\))::)");
    std::string whole = std::regex_replace(text, spaces, "");
    std::free(text);
    // Of "void b<c>(d, e)", b<c>.
    int depth = 0;
    std::size_t begin = 0;
    for (std::size_t i = 0; i < whole.size(); ++i) {
        depth += whole[i] == '<' ? 1 : whole[i] == '>' ? -1 : 0;
        if (depth == 0 && whole[i] == ' ') begin = i + 1;
        if (depth == 0 && whole[i] == '(') return whole.substr(begin, i - begin);
    }
    return whole;
}

}  // namespace

RegisteredFunction* find_function(const void* host_address) {
    const auto found = functions().find(host_address);
    return found == functions().end() ? nullptr : found->second.get();
}

std::vector<RegisteredFunction*> all_functions() {
    std::vector<RegisteredFunction*> all;
    for (const auto& [address, function] : functions()) all.push_back(function.get());
    return all;
}

const Kernel* decoded(RegisteredFunction& function) {
    if (function.kernel != nullptr) return function.kernel;
    if (!function.binary->module)
        for (const Image& one : images(function.binary->data))
            if (one.architecture == settings().architecture)
                function.binary->module = std::make_unique<Module>(one.ptx);
    if (function.binary->module) function.kernel = function.binary->module->find(function.name);
    return function.kernel;
}

}  // namespace lockstep::ptx

// What nvcc's host objects call before main (crt/host_runtime.h).
extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
    lockstep::ptx::watch_exit();
    auto* binary = new lockstep::ptx::FatBinary;
    binary->data = static_cast<const __fatBinC_Wrapper_t*>(wrapper)->data;
    return reinterpret_cast<void**>(binary);
}

void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}

void __cudaRegisterFunction(void** handle, const char* host_function, char*, const char* name, int, uint3*, uint3*,
                            dim3*, dim3*, int*) {
    auto function = std::make_unique<lockstep::ptx::RegisteredFunction>();
    function->name = name;
    function->short_name = lockstep::ptx::demangled_short(name);
    function->binary = reinterpret_cast<lockstep::ptx::FatBinary*>(handle);
    lockstep::ptx::functions()[host_function] = std::move(function);
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host_function) {
    *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host_function));
    return lockstep::ptx::find_function(host_function) == nullptr ? cudaErrorInvalidDeviceFunction : cudaSuccess;
}

}  // extern "C"
