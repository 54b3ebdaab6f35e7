#include "cluster/processor.hpp"

#include <fstream>
#include <string_view>

namespace lockstep::cluster {

std::string processor_model(const std::string& cpuinfo) {
    std::string implementer, part;
    std::ifstream file(cpuinfo);
    for (std::string line; std::getline(file, line);) {
        const auto value_of = [&](std::string_view name) {
            const std::size_t first = line.find_first_not_of(" \t:", name.size());
            return line.starts_with(name) && first != std::string::npos ? line.substr(first) : "";
        };
        if (std::string name = value_of("model name"); !name.empty()) return name;
        if (implementer.empty()) implementer = value_of("CPU implementer");
        if (part.empty()) part = value_of("CPU part");
    }
    return part.empty() ? "" : "implementer " + implementer + ", part " + part;
}

}  // namespace lockstep::cluster
