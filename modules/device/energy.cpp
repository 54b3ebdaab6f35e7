#include "device/energy.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string text_of(const std::string& path) {
    std::string text;
    std::getline(std::ifstream(path), text);
    return text;
}

// The number that a file begins with.
std::optional<double> number_of(const std::string& path) {
    std::ifstream file(path);
    double number = 0;
    if (!(file >> number)) return std::nullopt;
    return number;
}

// NVIDIA's management library comes with the driver, so it is loaded where it is.
class Nvml {
  public:
    static std::shared_ptr<Nvml> load() {
        void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
        if (!library) return nullptr;
        auto nvml = std::make_shared<Nvml>();
        const auto find = [&](auto& function, const char* name) {
            void* address = dlsym(library, name);
            std::memcpy(&function, &address, sizeof address);
            return address != nullptr;
        };
        const bool whole = find(nvml->initialise_, "nvmlInit_v2") &&
                           find(nvml->find_, "nvmlDeviceGetHandleByPciBusId_v2") &&
                           find(nvml->energy_, "nvmlDeviceGetTotalEnergyConsumption");
        return whole && nvml->initialise_() == 0 ? nvml : nullptr;
    }
    // Joules; nothing for a GPU without the counter (before Volta).
    std::optional<double> joules(const std::string& address) const {
        void* device = nullptr;
        unsigned long long millijoules = 0;
        if (find_(address.c_str(), &device) != 0 || energy_(device, &millijoules) != 0) return std::nullopt;
        return static_cast<double>(millijoules) * 1e-3;
    }

  private:
    int (*initialise_)() = nullptr;
    int (*find_)(const char*, void**) = nullptr;
    int (*energy_)(void*, unsigned long long*) = nullptr;
};

}  // namespace

EnergyMeter::EnergyMeter(const std::vector<std::string>& gpus, const std::string& root) {
    add_cray(root);
    if (counters_.empty()) {
        add_rapl(root);
        add_nvml(gpus);
    }
    if (counters_.empty()) about_ = unreadable_.empty() ? "no counters found" : unreadable_;
}

bool EnergyMeter::add(Counter counter) {
    const std::optional<double> now = counter.read();
    if (!now) return false;
    counter.last = *now;
    counters_.push_back(std::move(counter));
    return true;
}

// "184467 J 1700000000000000 us"; ten times a second.
void EnergyMeter::add_cray(const std::string& root) {
    const std::string path = root + "/sys/cray/pm_counters/energy";
    if (add({[path] { return number_of(path); }})) about_ = "Cray's pm_counters (whole nodes)";
}

// intel-rapl:0 is a package, intel-rapl:0:0 a part of it. Cores and graphics are within the package, memory is not;
// psys has the package in it. AMD's processors have the same files.
void EnergyMeter::add_rapl(const std::string& root) {
    std::vector<std::string> zones;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(root + "/sys/class/powercap", none))
        if (entry.path().filename().string().starts_with("intel-rapl:")) zones.push_back(entry.path().string());
    std::sort(zones.begin(), zones.end());
    std::vector<std::string> names;
    for (const std::string& zone : zones) {
        const std::string name = text_of(zone + "/name"), path = zone + "/energy_uj";
        if (!name.starts_with("package") && name != "dram") continue;
        const auto joules = [path]() -> std::optional<double> {
            const std::optional<double> microjoules = number_of(path);
            if (!microjoules) return std::nullopt;
            return *microjoules * 1e-6;
        };
        if (add({joules, number_of(zone + "/max_energy_range_uj").value_or(0) * 1e-6}))
            names.push_back(name);
        else if (unreadable_.empty())
            unreadable_ = fmt::format("{} is not readable by users", path);
    }
    if (!names.empty()) about_ = fmt::format("RAPL ({})", fmt::join(names, ", "));
}

void EnergyMeter::add_nvml(const std::vector<std::string>& gpus) {
    if (gpus.empty()) return;
    const std::shared_ptr<Nvml> nvml = Nvml::load();
    std::size_t count = 0;
    for (const std::string& address : gpus)
        if (nvml && add({[nvml, address] { return nvml->joules(address); }})) ++count;
    if (count == 0) return;
    about_ += fmt::format("{}NVML ({} GPU{})", about_.empty() ? "" : " and ", count, count == 1 ? "" : "s");
}

double EnergyMeter::take() {
    double sum = 0;
    for (Counter& counter : counters_) {
        const std::optional<double> now = counter.read();
        if (!now) continue;
        // One that was reset counts for nothing until the next time.
        const double since = *now - counter.last;
        if (since >= 0)
            sum += since;
        else if (counter.range > 0)
            sum += since + counter.range;
        counter.last = *now;
    }
    return sum;
}

}  // namespace lockstep
