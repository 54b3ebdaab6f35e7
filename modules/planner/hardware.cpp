#include "planner/hardware.hpp"

#include <algorithm>

namespace lockstep::planner {

std::vector<Quantity> Hardware::quantities() {
    std::vector<Quantity> list = {
        {"name", &name, "what the machine is called", 0, 0, {}, true},
        {"origin", &origin, "where these numbers come from"},
        {"device.kind", &device.kind, "gpu or cpu", 0, 0, {"gpu", "cpu"}, true},
        {"device.per_node", &device.per_node, "GPUs of a node, or its processor cores", 1, 1e6, {}, true},
        {"device.memory_gib", &device.memory_gib, "GiB of one GPU, or of a node of processors", 1e-3, 1e6, {}, true},
        {"device.units", &device.units, "multiprocessors of a GPU; 1 for a core", 1, 1e4},
        {"device.peak_tflops", &device.peak_tflops, "TFLOP/s of one device in bf16 or fp16", 1e-6, 1e6, {}, true},
        {"device.peak_tflops_fp32", &device.peak_tflops_fp32, "TFLOP/s of one device in fp32", 1e-6, 1e6},
        {"device.memory_gb_per_second", &device.memory_gb_per_second, "GB/s of one device's memory", 1e-3, 1e6},
        {"node_link.gb_per_second", &node_link.gb_per_second, "GB/s of one device to others of its node", 1e-3, 1e6},
        {"node_link.latency_us", &node_link.latency_us, "microseconds of a message inside a node", 0, 1e6},
        {"network.cards_per_node", &network.cards_per_node, "network cards of a node", 1, 1e3},
        {"network.gb_per_second", &network.gb_per_second, "GB/s of one card, one direction", 1e-3, 1e6},
        {"network.latency_us", &network.latency_us, "microseconds of a message between nodes", 0, 1e6},
    };
    rates.add_quantities(list);
    return list;
}

Hardware read_hardware(const std::string& path) {
    Hardware hardware;
    auto quantities = hardware.quantities();
    read_quantity_file(path, quantities);
    return hardware;
}

std::string to_toml(Hardware hardware) {
    std::vector<Quantity> list = hardware.quantities();
    if (!hardware.rates.measured())
        list.erase(std::remove_if(list.begin(), list.end(),
                                  [](const Quantity& quantity) { return quantity.path.starts_with("rates."); }),
                   list.end());
    return quantities_to_toml(list);
}

}  // namespace lockstep::planner
