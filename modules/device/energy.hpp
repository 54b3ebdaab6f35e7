// The energy that a node takes, by the counters of its machine: Cray's pm_counters (the whole node), or else RAPL
// (processor packages and memory; Linux powercap) and NVML (GPUs). All are read below a root, so that tests can give
// recorded ones.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class EnergyMeter {
  public:
    // `gpus`: PCI addresses of those that count, "0000:1b:00.0". `root`: "" is this machine.
    explicit EnergyMeter(const std::vector<std::string>& gpus, const std::string& root = "");

    bool works() const { return !counters_.empty(); }
    // "RAPL (package-0, dram) and NVML (2 GPUs)"; where nothing can be read, why: "no counters found".
    const std::string& about() const { return about_; }
    // Joules since the last call, or since construction.
    double take();

  private:
    struct Counter {
        std::function<std::optional<double>()> read;  // joules since some time
        double range = 0;                             // after which it begins again; 0: not known
        double last = 0;
    };
    bool add(Counter counter);
    void add_cray(const std::string& root);
    void add_rapl(const std::string& root);
    void add_nvml(const std::vector<std::string>& gpus);

    std::vector<Counter> counters_;
    std::string about_, unreadable_;
};

}  // namespace lockstep
