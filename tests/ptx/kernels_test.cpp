// The kernels that these tests run are the product's: the same names, launch bounds and parameters as in the machine
// code of the library that lockstep is linked with.
#define BOOST_TEST_MODULE kernels
#include <elf.h>

#include <boost/test/unit_test.hpp>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <string>
#include <string_view>

#include "device/gpu.hpp"
#include "kernels/cuda.hpp"
#include "ptx/fat_binary.hpp"
#include "ptx/registry.hpp"
#include "ptx/settings.hpp"

using namespace lockstep;

namespace {

struct Interface {
    std::uint32_t most_threads = 0;
    std::map<std::uint32_t, std::uint32_t> parameters;  // offset, bytes
    bool operator==(const Interface&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Interface& interface) {
    out << interface.most_threads << " threads, parameters";
    for (const auto& [offset, bytes] : interface.parameters) out << " " << offset << "+" << bytes;
    return out;
}
using Interfaces = std::map<std::string, Interface>;  // by name

// Names in anonymous namespaces have a hash of how the file was compiled.
std::string without_hash(const std::string& name) {
    static const std::regex hash("(_GLOBAL__N__)[0-9a-f]{8}(_[0-9]+_[A-Za-z_]+_cu_)[0-9a-f]{8}");
    return std::regex_replace(name, hash, "$1$2");
}

template <class T>
T read(std::string_view bytes, std::size_t at) {
    T value;
    BOOST_REQUIRE(at + sizeof value <= bytes.size());
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}

// A section .nv.info.NAME: attributes of {format, attribute, size or value}, of format 4 with a payload.
Interface interface_of(std::string_view info) {
    constexpr std::uint8_t with_payload = 4, most_threads = 0x05, parameter = 0x17;
    Interface result;
    for (std::size_t at = 0; at < info.size();) {
        const auto format = read<std::uint8_t>(info, at), attribute = read<std::uint8_t>(info, at + 1);
        const std::size_t bytes = format == with_payload ? read<std::uint16_t>(info, at + 2) : 0;
        at += 4;
        if (format == with_payload && attribute == most_threads) {
            result.most_threads = 1;
            for (std::size_t axis = 0; axis < 3; ++axis)
                result.most_threads *= read<std::uint32_t>(info, at + 4 * axis);
        } else if (format == with_payload && attribute == parameter) {
            const std::uint32_t size = read<std::uint32_t>(info, at + 8) >> 18;
            result.parameters[read<std::uint16_t>(info, at + 6)] = size;
        }
        at += bytes;
    }
    return result;
}

void add_kernels(Interfaces& all, std::string_view bytes) {
    const auto header = read<Elf64_Ehdr>(bytes, 0);
    const auto section = [&](std::size_t i) {
        return read<Elf64_Shdr>(bytes, header.e_shoff + i * header.e_shentsize);
    };
    const Elf64_Shdr names = section(header.e_shstrndx);
    const std::string prefix = ".nv.info.";
    for (std::size_t i = 0; i < header.e_shnum; ++i) {
        const Elf64_Shdr one = section(i);
        const std::string name = bytes.data() + names.sh_offset + one.sh_name;
        if (name.rfind(prefix, 0) != 0) continue;
        all[without_hash(name.substr(prefix.size()))] = interface_of(bytes.substr(one.sh_offset, one.sh_size));
    }
}

// Of the library's machine code for this architecture, from the fat binary of each of its objects.
Interfaces shipped(int architecture) {
    std::ifstream file(LOCKSTEP_CUDA_LIBRARY, std::ios::binary);
    const std::string library{std::istreambuf_iterator<char>(file), {}};
    const std::string beginning = {'\x50', '\xed', '\x55', '\xba', '\x01', '\x00', '\x10', '\x00'};
    Interfaces all;
    for (auto at = library.find(beginning); at != std::string::npos; at = library.find(beginning, at + 1))
        for (const ptx::Image& image : ptx::images(library.data() + at, ptx::Code::machine))
            if (image.architecture == architecture) add_kernels(all, image.bytes);
    return all;
}

Interfaces tested() {
    Interfaces all;
    for (ptx::RegisteredFunction* function : ptx::all_functions()) {
        const ptx::Kernel* kernel = ptx::decoded(*function);
        BOOST_REQUIRE_MESSAGE(kernel != nullptr, function->name);
        const ptx::KernelShape& shape = ptx::shape(*kernel);
        BOOST_TEST(shape.name == function->name);
        Interface& one = all[without_hash(shape.name)];
        one.most_threads = shape.most_threads;
        for (std::size_t i = 0; i < shape.parameter_offsets.size(); ++i)
            one.parameters[shape.parameter_offsets[i]] = shape.parameter_bytes[i];
    }
    return all;
}

}  // namespace

BOOST_AUTO_TEST_CASE(names_launch_bounds_and_parameters_are_the_products) {
    const auto backend = kernels::make_cuda_backend(open_gpu(0));  // links every kernel
    const Interfaces expected = shipped(ptx::settings().architecture), actual = tested();
    if (expected.empty()) {
        BOOST_TEST_MESSAGE("skipped: this build has no machine code for sm_" << ptx::settings().architecture);
        return;
    }
    for (const auto& [name, interface] : expected) {
        BOOST_TEST_CONTEXT(name) {
            BOOST_TEST_REQUIRE(actual.count(name) == 1u);
            BOOST_TEST(actual.at(name) == interface);
        }
    }
    for (const auto& [name, interface] : actual) BOOST_TEST(expected.count(name) == 1u, name << " is not shipped");
}
