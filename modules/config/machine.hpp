// A machine, as the time and memory of a step depend on it: its devices, the links between them, and how well matrix
// products and memory-bound work use a device. Shipped for a few machines, calibrated on this one (`lockstep bench
// --calibrate`), fitted to measured steps (`lockstep plan --fit`), or written by hand. docs/planner.md explains the
// equations in which each number stands.
#pragma once

#include <string>
#include <vector>

#include "config/machine_rates.hpp"

namespace lockstep::config {

struct Machine {
    std::string name;
    std::string origin;  // where its numbers come from, one sentence

    struct Device {
        MachineKind kind = MachineKind::gpu;
        double per_node = 8;       // GPUs, or processor cores
        double memory_gib = 80;    // of one GPU, or of a node of processors
        double units = 108;        // multiprocessors of a GPU; 1 for a core
        double peak_tflops = 312;  // of one device's matrix products in bf16 or fp16
        double peak_tflops_fp32 = 156;
        double memory_gb_per_second = 2039;  // of one device
        double memory_efficiency = 0.85;     // share of it that kernels bound by memory reach
        double kernel_us = 5;                // from one kernel to the next, host included
    } device;

    struct Products {
        double efficiency = 0.75;            // share of the peak of a product of whole tiles and waves
        double unaligned_tflops = 10;        // of products whose rows do not begin at multiples of 16 bytes
        double attention_efficiency = 0.45;  // share of the peak of attention whose scores stay on the chip
        double inner_efficiency = 0.10;      // the same of the inner steps of TTT
    } products;

    struct Memory {
        double fixed_gb = 3;    // of a process that has nothing of the model yet, communication buffers included
        double slack = 0.05;    // share by which activations take more than their sizes
        double headroom = 0.3;  // share of the activations' memory to leave free; with less, allocation costs time
        double pressure_slowdown = 0;  // of a step when half of that is gone
    } memory;

    struct NodeLink {                // between the devices of a node
        double gb_per_second = 300;  // of one device, one direction
        double latency_us = 10;      // of a message, or of a step of a reduction
        double efficiency = 0.6;     // share that reductions reach
    } node_link;

    struct Network {  // between nodes
        double cards_per_node = 4;
        double gb_per_second = 12.5;  // of one card, one direction
        double latency_us = 10;
        double efficiency = 0.6;  // share that reductions reach
    } network;

    struct Storage {                      // of one node; 0: not known
        double local_gb_per_second = 0;   // to its own disk
        double shared_gb_per_second = 0;  // to the shared file system, all nodes writing at once
    } storage;

    struct Failures {
        double node_mtbf_hours = 0;  // mean time between failures of one node; 0: not known
    } failures;

    struct Repair {           // of the machine, while it was measured
        std::string date;     // "MM-DD"; "": none
        double slowdown = 0;  // of a step before it
    } repair;

    Rates rates;  // of our own program; not measured on machines that are only described

    double memory_bytes() const { return device.memory_gib * 1073741824.0; }
    double network_bytes_per_second() const { return network.cards_per_node * network.gb_per_second * 1e9; }  // a node
    double bytes_per_second() const { return device.memory_gb_per_second * device.memory_efficiency * 1e9; }
    double peak_flops(Precision precision) const {
        return (precision == Precision::fp32 ? device.peak_tflops_fp32 : device.peak_tflops) * 1e12;
    }
    std::vector<Key> keys();
};

// The share of multiprocessors that have work on average, where each takes one of the blocks at a time.
double filled_share(double blocks, double multiprocessors);

// The shipped descriptions, and one of them by name.
std::vector<std::string> machine_names();
// A shipped one's name, or a file's path.
Machine read_machine(const std::string& path);
std::string to_toml(Machine machine);

}  // namespace lockstep::config
