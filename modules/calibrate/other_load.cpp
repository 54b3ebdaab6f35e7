#include "calibrate/other_load.hpp"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

namespace lockstep::calibrate {
namespace {

struct Ticks {
    double busy = 0, all = 0;
};

// proc(5): user, nice, system, idle, iowait, irq, softirq, steal; guests are within user and nice.
std::map<int, Ticks> ticks_of(const std::string& text) {
    constexpr std::size_t idle = 3, waiting = 4, counted = 8;
    std::map<int, Ticks> by_core;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string name;
        words >> name;
        if (!name.starts_with("cpu") || name.size() < 4) continue;
        Ticks ticks;
        double value = 0;
        for (std::size_t i = 0; i < counted && words >> value; ++i) {
            ticks.all += value;
            if (i != idle && i != waiting) ticks.busy += value;
        }
        by_core[std::stoi(name.substr(3))] = ticks;
    }
    return by_core;
}

std::string processor_times() {
    std::ostringstream text;
    text << std::ifstream("/proc/stat").rdbuf();
    return text.str();
}

}  // namespace

std::optional<double> busy_cores(const std::string& before, const std::string& after, const cluster::CpuSet& cores) {
    const auto first = ticks_of(before), last = ticks_of(after);
    double busy = 0;
    for (const int core : cores.units()) {
        const auto from = first.find(core), to = last.find(core);
        if (from == first.end() || to == last.end()) return std::nullopt;
        const double all = to->second.all - from->second.all;
        if (all > 0) busy += (to->second.busy - from->second.busy) / all;
    }
    return busy;
}

std::optional<double> busy_cores_now(const cluster::CpuSet& cores, double seconds) {
    const std::string before = processor_times();
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    return busy_cores(before, processor_times(), cores);
}

}  // namespace lockstep::calibrate
