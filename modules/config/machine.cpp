#include "config/machine.hpp"

#include <fmt/ranges.h>

#include <cmath>
#include <filesystem>

#include "base/error.hpp"
#include "base/whole_file.hpp"
#include "config/shipped_machines.hpp"

namespace lockstep::config {

std::vector<Key> Machine::keys() {
    std::vector<Key> list = {
        required({"name", &name, "name of the machine"}),
        {"origin", &origin, "where these numbers come from"},
        required({"device.kind", choice_of(device.kind), "gpu or cpu"}),
        required({"device.per_node", &device.per_node, "GPUs per node, or processor cores per node", 1, 1e6}),
        required({"device.memory_gib", &device.memory_gib, "GiB of one GPU, or of a CPU node", 1e-3, 1e6}),
        {"device.units", &device.units, "multiprocessors per GPU; 1 for a core", 1, 1e4},
        required({"device.peak_tflops", &device.peak_tflops, "TFLOP/s of one device in bf16 or fp16", 1e-6, 1e6}),
        {"device.peak_tflops_fp32", &device.peak_tflops_fp32, "TFLOP/s of one device in fp32", 1e-6, 1e6},
        {"device.memory_gb_per_second", &device.memory_gb_per_second, "GB/s of one device's memory", 1e-3, 1e6},
        {"device.memory_efficiency", &device.memory_efficiency, "share of that bandwidth that kernels reach", 0.01, 1},
        {"device.kernel_us", &device.kernel_us, "microseconds from one kernel to the next, host included", 0, 1e4},
        {"products.efficiency", &products.efficiency, "share of peak reached by products of whole tiles", 0.01, 1},
        {"products.unaligned_tflops", &products.unaligned_tflops, "TFLOP/s where rows are not aligned to 16 bytes",
         1e-6, 1e6},
        {"products.attention_efficiency", &products.attention_efficiency, "share of peak reached by fused attention",
         1e-3, 1},
        {"products.inner_efficiency", &products.inner_efficiency, "share of peak reached by TTT's inner steps", 1e-4,
         1},
        {"memory.fixed_gb", &memory.fixed_gb, "GB that a process takes without a model", 0, 1e4},
        {"memory.slack", &memory.slack, "share by which activations exceed their computed sizes", 0, 2},
        {"memory.headroom", &memory.headroom, "share of the activations to leave free", 0, 2},
        {"memory.pressure_slowdown", &memory.pressure_slowdown, "share by which a step slows without that headroom", 0,
         1},
        {"node_link.gb_per_second", &node_link.gb_per_second, "GB/s from one device to others in its node", 1e-3, 1e6},
        {"node_link.latency_us", &node_link.latency_us, "microseconds for a message within a node", 0, 1e6},
        {"node_link.efficiency", &node_link.efficiency, "share that reductions reach", 0.01, 1},
        {"network.cards_per_node", &network.cards_per_node, "network cards per node", 1, 1e3},
        {"network.gb_per_second", &network.gb_per_second, "GB/s of one card, one direction", 1e-3, 1e6},
        {"network.latency_us", &network.latency_us, "microseconds for a message between nodes", 0, 1e6},
        {"network.efficiency", &network.efficiency, "share that reductions reach", 0.001, 1},
        {"storage.local_gb_per_second", &storage.local_gb_per_second,
         "GB/s from a node to its local disk; 0: not known", 0, 1e6},
        {"storage.shared_gb_per_second", &storage.shared_gb_per_second,
         "GB/s from a node to the shared file system while all nodes write; 0: not known", 0, 1e6},
        {"failures.node_mtbf_hours", &failures.node_mtbf_hours, "mean hours between failures of one node; 0: not known",
         0, 1e9},
        {"repair.date", &repair.date, "MM-DD of a repair while the machine was measured; empty for none"},
        {"repair.slowdown", &repair.slowdown, "share by which steps before the repair were slower", 0, 1},
    };
    rates.add_keys(list);
    return list;
}

double filled_share(double blocks, double multiprocessors) {
    return blocks > 0 ? blocks / (std::ceil(blocks / multiprocessors) * multiprocessors) : 1;
}

std::vector<std::string> machine_names() {
    std::vector<std::string> names;
    for (const ShippedMachine& shipped : shipped_machines) names.emplace_back(shipped.name);
    return names;
}

Machine read_machine(const std::string& name) {
    Machine machine;
    for (const ShippedMachine& shipped : shipped_machines) {
        if (name != shipped.name) continue;
        read_keys(shipped.toml, name + ".toml", machine.keys());
        return machine;
    }
    std::error_code none;
    if (name.find_first_of("./") == std::string::npos && !std::filesystem::exists(name, none))
        throw usage_error(
            "no machine \"{}\" is shipped and no such file is here; shipped are {}; a file comes from "
            "lockstep bench --calibrate",
            name, fmt::join(machine_names(), ", "));
    read_keys(read_text_file(name), name, machine.keys());
    return machine;
}

std::string to_toml(Machine machine) {
    std::vector<Key> keys = machine.keys();
    if (!machine.rates.measured()) std::erase_if(keys, [](const Key& key) { return key.path.starts_with("rates."); });
    return print_keys(keys, true);
}

}  // namespace lockstep::config
