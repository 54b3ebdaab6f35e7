#include "device/available_memory.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

namespace lockstep {
namespace {

constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

// Empty for "max" and for missing files.
std::optional<std::uint64_t> number_in(const std::string& path) {
    std::ifstream file(path);
    std::uint64_t number = 0;
    if (!(file >> number)) return std::nullopt;
    return number;
}

// The number of `name` in a file of names and numbers.
std::optional<std::uint64_t> entry_in(const std::string& path, const std::string& name) {
    std::ifstream file(path);
    std::string line;
    while (std::getline(file, line)) {
        std::istringstream words(line);
        std::string word;
        std::uint64_t number = 0;
        if (words >> word >> number && word == name) return number;
    }
    return std::nullopt;
}

struct Names {  // of cgroup files
    const char *limit, *used, *droppable;
};

// What the cgroup at `folder`/`path` and its ancestors leave.
std::uint64_t left_by_groups(const std::string& folder, std::string path, const Names& names) {
    std::uint64_t left = unlimited;
    while (true) {
        const std::string group = folder + path + (path.empty() || path.back() != '/' ? "/" : "");
        const auto limit = number_in(group + names.limit), used = number_in(group + names.used);
        if (limit && used) {
            const std::uint64_t droppable = entry_in(group + "memory.stat", names.droppable).value_or(0);
            const std::uint64_t held = *used - std::min(*used, droppable);
            left = std::min(left, *limit - std::min(*limit, held));
        }
        if (path.empty() || path == "/") return left;
        path.resize(path.rfind('/'));
    }
}

}  // namespace

std::uint64_t available_memory(const std::string& root) {
    std::uint64_t left = unlimited;
    constexpr std::uint64_t kib = 1024;
    if (const auto available = entry_in(root + "/proc/meminfo", "MemAvailable:")) left = *available * kib;
    std::ifstream groups(root + "/proc/self/cgroup");  // lines "number:controllers:path"
    std::string line;
    while (std::getline(groups, line)) {
        const std::size_t first = line.find(':'), second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
        const std::string path = line.substr(second + 1);
        if (controllers == ",,")
            left = std::min(
                left, left_by_groups(root + "/sys/fs/cgroup", path, {"memory.max", "memory.current", "inactive_file"}));
        else if (controllers.find(",memory,") != std::string::npos)
            left = std::min(left,
                            left_by_groups(root + "/sys/fs/cgroup/memory", path,
                                           {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}));
    }
    return left;
}

}  // namespace lockstep
