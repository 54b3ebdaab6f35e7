// A node's network ports and their speeds, as the system says them.
#pragma once

#include <string>
#include <vector>

namespace lockstep::doctor {

// In the order of what training would want.
enum class Fabric { ethernet, roce, infiniband, slingshot };
const char* fabric_name(Fabric fabric);

struct NetworkPort {
    std::string name;  // "mlx5_0", "cxi0", "eth0"
    Fabric fabric = Fabric::ethernet;
    double gigabits = 0;  // a second
};

// Ports that are up and say their speed, below `root` (of /sys: "" for this machine's). Interfaces without hardware
// behind them (bridges, loopback) are left out.
std::vector<NetworkPort> network_ports(const std::string& root);

bool has_fabric(const std::vector<NetworkPort>& ports);  // other than plain Ethernet
// Null if there is none; of equal speed the better fabric.
const NetworkPort* fastest(const std::vector<NetworkPort>& ports);
// "4 x InfiniBand 200 Gb/s": the ports of fabrics, or without any the fastest one; "unknown" without ports.
std::string ports_text(const std::vector<NetworkPort>& ports);

// First line of a file without the white space at its ends; "" if it cannot be read, as the speed of an interface
// that is down.
std::string line_of(const std::string& path);
// Names in a folder, in order; none if it cannot be read.
std::vector<std::string> names_in(const std::string& folder);

}  // namespace lockstep::doctor
