// A machine, as the time and memory of a step depend on it: its devices, the links between them, and how well matrix
// products and memory-bound work use a device. Shipped for a few machines, calibrated on this one (`lockstep bench
// --calibrate`), fitted to measured steps (`lockstep plan --fit`), or written by hand. docs/planner.md explains the
// equations in which each number stands.
#pragma once

#include <string>
#include <vector>

#include "planner/quantities.hpp"
#include "planner/rates.hpp"

namespace lockstep::planner {

struct Hardware {
    std::string name;
    std::string origin;  // where its numbers come from, one sentence

    struct Device {
        std::string kind = "gpu";  // "gpu" | "cpu"
        double per_node = 8;       // GPUs, or processor cores
        double memory_gib = 80;    // of one GPU, or of a node of processors
        double units = 108;        // multiprocessors of a GPU; 1 for a core
        double peak_tflops = 312;  // of one device's matrix products in bf16 or fp16
        double peak_tflops_fp32 = 156;
        double memory_gb_per_second = 2039;  // of one device
    } device;

    struct NodeLink {                // between the devices of a node
        double gb_per_second = 300;  // of one device, one direction
        double latency_us = 10;      // of a message, or of a step of a reduction
    } node_link;

    struct Network {  // between nodes
        double cards_per_node = 4;
        double gb_per_second = 12.5;  // of one card, one direction
        double latency_us = 10;
    } network;

    Rates rates;  // of our own program; not measured on machines that are only described

    double network_bytes_per_second() const { return network.cards_per_node * network.gb_per_second * 1e9; }  // a node
    std::vector<Quantity> quantities();
};

Hardware read_hardware(const std::string& path);
std::string to_toml(Hardware hardware);

}  // namespace lockstep::planner
