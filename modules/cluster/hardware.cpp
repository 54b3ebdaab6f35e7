#include "cluster/hardware.hpp"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <optional>

#include "base/error.hpp"

namespace lockstep::cluster {
namespace {

constexpr unsigned vendor_nvidia = 0x10de, vendor_amd = 0x1002, vendor_intel = 0x8086;

bool starts_with(const char* text, const char* start) {
    return text != nullptr && std::string_view(text).rfind(start, 0) == 0;
}

std::string bus_id(const hwloc_obj* pci) {
    const auto& place = pci->attr->pcidev;
    return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", place.domain, place.bus, place.dev, place.func);
}

// The PCI device of an OS device; others may lie between (virtio).
const hwloc_obj* pci_of(const hwloc_obj* device) {
    while (device != nullptr && device->type != HWLOC_OBJ_PCI_DEVICE) device = device->parent;
    return device;
}

CpuSet locality(const Topology& topology, const hwloc_obj* device) {
    const hwloc_obj* parent = hwloc_get_non_io_ancestor_obj(topology.get(), const_cast<hwloc_obj*>(device));
    return parent == nullptr ? CpuSet() : cpu_set_of(parent->cpuset);
}

std::vector<int> bridges(const hwloc_obj* device) {
    std::vector<int> path;
    for (const hwloc_obj* at = device->parent; at != nullptr; at = at->parent)
        if (at->type == HWLOC_OBJ_BRIDGE) path.insert(path.begin(), static_cast<int>(at->logical_index));
    return path;
}

std::vector<const hwloc_obj*> os_devices_below(const Topology& topology, const hwloc_obj* pci) {
    std::vector<const hwloc_obj*> found;
    for (hwloc_obj_t device = hwloc_get_next_osdev(topology.get(), nullptr); device != nullptr;
         device = hwloc_get_next_osdev(topology.get(), device))
        if (pci_of(device) == pci) found.push_back(device);
    return found;
}

// By driver, else by PCI class. Some topology files give these devices odd types, so their names decide.
std::optional<GpuVendor> gpu_vendor(const hwloc_obj* pci, const std::vector<const hwloc_obj*>& os_devices) {
    for (const hwloc_obj* device : os_devices) {
        if (starts_with(device->name, "cuda") || starts_with(device->name, "nvml")) return GpuVendor::nvidia;
        if (starts_with(device->name, "rsmi")) return GpuVendor::amd;
        if (starts_with(device->name, "ze")) return GpuVendor::intel;
    }
    constexpr unsigned display = 0x03, accelerator = 0x12;
    const unsigned base_class = pci->attr->pcidev.class_id >> 8;
    if (base_class != display && base_class != accelerator) return {};
    switch (pci->attr->pcidev.vendor_id) {
        case vendor_nvidia:
            return GpuVendor::nvidia;
        case vendor_amd:
            return GpuVendor::amd;
        case vendor_intel:  // on bus 0: integrated graphics
            if (base_class == display && pci->attr->pcidev.bus != 0) return GpuVendor::intel;
            return {};
        default:
            return {};
    }
}

std::string gpu_name(const hwloc_obj* pci, const std::vector<const hwloc_obj*>& os_devices, GpuVendor vendor) {
    for (const hwloc_obj* device : os_devices)
        if (const char* model = hwloc_obj_get_info_by_name(const_cast<hwloc_obj*>(device), "GPUModel")) return model;
    if (const char* model = hwloc_obj_get_info_by_name(const_cast<hwloc_obj*>(pci), "PCIDevice")) return model;
    return fmt::format("{} GPU {:04x}", vendor_name(vendor), pci->attr->pcidev.device_id);
}

std::optional<NetworkCard> network_card(const hwloc_obj* pci, const std::vector<const hwloc_obj*>& os_devices) {
    constexpr unsigned network = 0x02, infiniband = 0x0c06;
    const unsigned pci_class = pci->attr->pcidev.class_id;
    if (pci_class >> 8 != network && pci_class != infiniband) return {};
    NetworkCard card;
    std::string interfaces;
    for (const hwloc_obj* device : os_devices) {
        if (device->name == nullptr) continue;
        const bool fabric = device->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS;
        // Fabrics without a verbs driver are recognized by interface name.
        card.fabric = card.fabric || fabric || starts_with(device->name, "hsn") || starts_with(device->name, "ib");
        if (fabric)
            card.name += (card.name.empty() ? "" : "/") + std::string(device->name);
        else if (device->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK)
            interfaces += (interfaces.empty() ? "" : "/") + std::string(device->name);
    }
    if (card.name.empty() || interfaces.empty())
        card.name += interfaces;
    else
        card.name += "/" + interfaces;
    if (card.name.empty()) return {};
    return card;
}

void read_devices(const Topology& topology, Hardware& hardware) {
    for (hwloc_obj_t pci = hwloc_get_next_pcidev(topology.get(), nullptr); pci != nullptr;
         pci = hwloc_get_next_pcidev(topology.get(), pci)) {
        const auto os_devices = os_devices_below(topology, pci);
        if (const auto vendor = gpu_vendor(pci, os_devices)) {
            hardware.gpus.push_back(
                {bus_id(pci), gpu_name(pci, os_devices, *vendor), *vendor, locality(topology, pci), bridges(pci)});
        } else if (auto card = network_card(pci, os_devices)) {
            card->bus = bus_id(pci);
            card->near = locality(topology, pci);
            card->path = bridges(pci);
            hardware.network.push_back(std::move(*card));
        }
    }
    const auto by_bus = [](const auto& a, const auto& b) { return a.bus < b.bus; };
    std::sort(hardware.gpus.begin(), hardware.gpus.end(), by_bus);
    std::sort(hardware.network.begin(), hardware.network.end(), by_bus);
}

void read_memory(const Topology& topology, Hardware& hardware) {
    for (hwloc_obj_t node = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_NUMANODE, nullptr); node != nullptr;
         node = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_NUMANODE, node))
        hardware.numa_nodes.push_back({static_cast<int>(node->os_index), cpu_set_of(node->cpuset),
                                       static_cast<std::uint64_t>(node->attr->numanode.local_memory)});
    std::sort(hardware.numa_nodes.begin(), hardware.numa_nodes.end(),
              [](const NumaNode& a, const NumaNode& b) { return a.number < b.number; });
}

// The smallest node that contains the core; the first of equals (two kinds of memory on one processor).
int numa_node_of(const CpuSet& units, const std::vector<NumaNode>& nodes) {
    const NumaNode* nearest = nullptr;
    for (const NumaNode& node : nodes)
        if (node.units.contains(units.units().front()) && (!nearest || node.units.size() < nearest->units.size()))
            nearest = &node;
    return nearest == nullptr ? -1 : nearest->number;
}

void read_cores(const Topology& topology, Hardware& hardware) {
    const hwloc_topology_t loaded = topology.get();
    // Some virtual machines and boards expose processing units without cores.
    const bool has_cores = hwloc_get_nbobjs_by_type(loaded, HWLOC_OBJ_CORE) > 0;
    const hwloc_obj_type_t type = has_cores ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
    const int kinds = hwloc_cpukinds_get_nr(loaded, 0);
    for (hwloc_obj_t object = hwloc_get_next_obj_by_type(loaded, type, nullptr); object != nullptr;
         object = hwloc_get_next_obj_by_type(loaded, type, object)) {
        Core core;
        core.units = cpu_set_of(object->cpuset);
        if (core.units.empty()) continue;
        const hwloc_obj* package = hwloc_get_ancestor_obj_by_type(loaded, HWLOC_OBJ_PACKAGE, object);
        core.package = package == nullptr ? 0 : static_cast<int>(package->logical_index);
        core.numa_node = numa_node_of(core.units, hardware.numa_nodes);
        if (kinds > 1) core.kind = hwloc_cpukinds_get_by_cpuset(loaded, object->cpuset, 0);
        hardware.packages = std::max(hardware.packages, core.package + 1);
        hardware.cores.push_back(std::move(core));
    }
}

}  // namespace

const char* vendor_name(GpuVendor vendor) {
    switch (vendor) {
        case GpuVendor::nvidia:
            return "NVIDIA";
        case GpuVendor::amd:
            return "AMD";
        default:
            return "Intel";
    }
}

Hardware read_hardware(const Topology& topology) {
    Hardware hardware;
    read_memory(topology, hardware);
    read_cores(topology, hardware);
    // hwloc gives device memory the units of its parent; only nodes that some core claims have cores.
    for (NumaNode& node : hardware.numa_nodes)
        if (std::none_of(hardware.cores.begin(), hardware.cores.end(),
                         [&](const Core& core) { return core.numa_node == node.number; }))
            node.units = {};
    if (hardware.cores.empty()) throw damaged_error("the topology is damaged: it has no cores and no processing units");
    read_devices(topology, hardware);
    return hardware;
}

}  // namespace lockstep::cluster
