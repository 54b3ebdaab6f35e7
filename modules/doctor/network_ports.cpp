#include "doctor/network_ports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

namespace lockstep::doctor {
namespace {

namespace fs = std::filesystem;

// "200 Gb/sec (4X HDR)", 200
double leading_number(const std::string& text) {
    return std::max(0.0, std::strtod(text.c_str(), nullptr));
}

// "BS_200G" and, of newer cards, "ck400G"
double number_before_g(const std::string& text) {
    const std::size_t digit = text.find_first_of("0123456789");
    return digit == std::string::npos ? 0 : leading_number(text.substr(digit));
}

bool is_up(std::string word) {
    std::transform(word.begin(), word.end(), word.begin(), [](unsigned char letter) { return std::tolower(letter); });
    return word == "up";
}

void add_infiniband(const std::string& root, std::vector<NetworkPort>& ports) {
    const std::string all = root + "/sys/class/infiniband";
    for (const std::string& device : names_in(all))
        for (const std::string& number : names_in(all + "/" + device + "/ports")) {
            const std::string port = all + "/" + device + "/ports/" + number + "/";
            if (line_of(port + "state").find("ACTIVE") == std::string::npos) continue;
            const Fabric fabric = line_of(port + "link_layer") == "Ethernet" ? Fabric::roce : Fabric::infiniband;
            const double gigabits = leading_number(line_of(port + "rate"));
            if (gigabits > 0) ports.push_back({number == "1" ? device : device + ":" + number, fabric, gigabits});
        }
}

// What cxi_stat of HPE's driver reads; the second generation of cards numbers its ports.
void add_slingshot(const std::string& root, std::vector<NetworkPort>& ports) {
    const std::string all = root + "/sys/class/cxi";
    for (const std::string& device : names_in(all)) {
        const std::string port = all + "/" + device + "/device/port/";
        const bool numbered = !line_of(port + "0/link/state").empty();
        if (!is_up(line_of(port + (numbered ? "0/link/state" : "link")))) continue;
        const double gigabits = number_before_g(line_of(port + (numbered ? "0/link/speed" : "speed")));
        if (gigabits > 0) ports.push_back({device, Fabric::slingshot, gigabits});
    }
}

void add_interfaces(const std::string& root, std::vector<NetworkPort>& ports) {
    const std::string all = root + "/sys/class/net";
    for (const std::string& name : names_in(all)) {
        const std::string interface = all + "/" + name + "/";
        std::error_code ignored;
        if (!fs::exists(interface + "device", ignored) || !is_up(line_of(interface + "operstate"))) continue;
        const double megabits = leading_number(line_of(interface + "speed"));  // -1: unknown
        constexpr auto infiniband_type = "32";                                 // ARPHRD_INFINIBAND
        if (megabits <= 0 || line_of(interface + "type") == infiniband_type) continue;
        ports.push_back({name, name.starts_with("hsn") ? Fabric::slingshot : Fabric::ethernet, megabits / 1000});
    }
}

}  // namespace

const char* fabric_name(Fabric fabric) {
    switch (fabric) {
        case Fabric::ethernet:
            return "Ethernet";
        case Fabric::roce:
            return "RoCE";
        case Fabric::infiniband:
            return "InfiniBand";
        case Fabric::slingshot:
            return "Slingshot";
    }
    return "";
}

std::string line_of(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    const std::size_t first = line.find_first_not_of(" \t\r");
    return first == std::string::npos ? "" : line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
}

std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> names;
    std::error_code problem;
    for (fs::directory_iterator entry(folder, problem), end; !problem && entry != end; entry.increment(problem))
        names.push_back(entry->path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
}

std::vector<NetworkPort> network_ports(const std::string& root) {
    std::vector<NetworkPort> ports;
    add_infiniband(root, ports);
    add_slingshot(root, ports);
    // A card of Slingshot is an interface too.
    const bool has_slingshot = !ports.empty() && ports.back().fabric == Fabric::slingshot;
    std::vector<NetworkPort> interfaces;
    add_interfaces(root, interfaces);
    for (NetworkPort& port : interfaces)
        if (!has_slingshot || port.fabric != Fabric::slingshot) ports.push_back(std::move(port));
    return ports;
}

bool has_fabric(const std::vector<NetworkPort>& ports) {
    return std::any_of(ports.begin(), ports.end(),
                       [](const NetworkPort& port) { return port.fabric != Fabric::ethernet; });
}

const NetworkPort* fastest(const std::vector<NetworkPort>& ports) {
    const auto best = std::max_element(ports.begin(), ports.end(), [](const NetworkPort& a, const NetworkPort& b) {
        return std::pair(a.gigabits, a.fabric) < std::pair(b.gigabits, b.fabric);
    });
    return best == ports.end() ? nullptr : &*best;
}

std::string ports_text(const std::vector<NetworkPort>& ports) {
    if (ports.empty()) return "unknown";
    if (!has_fabric(ports)) {
        const NetworkPort& port = *fastest(ports);
        return fmt::format("{} {:g} Gb/s", fabric_name(port.fabric), port.gigabits);
    }
    std::map<std::pair<Fabric, double>, int> counts;
    for (const NetworkPort& port : ports)
        if (port.fabric != Fabric::ethernet) ++counts[{port.fabric, port.gigabits}];
    std::string text;
    for (const auto& [kind, count] : counts)
        text +=
            fmt::format("{}{} x {} {:g} Gb/s", text.empty() ? "" : ", ", count, fabric_name(kind.first), kind.second);
    return text;
}

}  // namespace lockstep::doctor
