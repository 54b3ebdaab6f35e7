#include "cluster/rank_map_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/format.hpp"
#include "base/plural.hpp"

namespace lockstep::cluster {
namespace {

using Index = std::size_t;

std::string joined(const std::vector<std::string>& items) {
    std::string text;
    for (const std::string& item : items) text += (text.empty() ? "" : ", ") + item;
    return text;
}

std::string counted(std::size_t count, const char* what) {
    return fmt::format("{} {}{}", count, what, plural(count));
}

CpuSet first_units(const Hardware& hardware, const std::vector<Index>& cores) {
    std::vector<int> units;
    for (const Index core : cores) units.push_back(hardware.cores[core].units.units().front());
    return CpuSet(std::move(units));
}

std::vector<int> ranks_of_gpu(const RankMap& map, const std::string& bus) {
    std::vector<int> ranks;
    for (Index rank = 0; rank < map.seats.size(); ++rank)
        if (map.seats[rank].gpu == bus) ranks.push_back(static_cast<int>(rank));
    return ranks;
}

// A core's ranks; "+" for helpers only, "." for idle.
std::string cell(const Core& core, const RankMap& map) {
    std::vector<int> ranks;
    bool helps = false;
    for (Index rank = 0; rank < map.seats.size(); ++rank) {
        if (core.units.overlaps(map.seats[rank].cores)) ranks.push_back(static_cast<int>(rank));
        helps = helps || core.units.overlaps(map.seats[rank].helpers);
    }
    if (ranks.empty()) return helps ? "+" : ".";
    if (ranks.size() == 1) return std::to_string(ranks.front());
    return fmt::format("{}-{}", ranks.front(), ranks.back());
}

void draw_cores(const Hardware& hardware, const RankMap& map, const std::vector<Index>& cores, std::string& out) {
    constexpr std::size_t line_width = 64;
    std::vector<std::string> cells;
    std::size_t width = 1;
    for (const Index core : cores) {
        cells.push_back(cell(hardware.cores[core], map));
        width = std::max(width, cells.back().size());
    }
    const std::size_t per_line = std::max<std::size_t>(1, line_width / (width + 1));
    for (std::size_t at = 0; at < cells.size(); at += per_line) {
        const std::size_t end = std::min(cells.size(), at + per_line);
        const std::vector<Index> of_line(cores.begin() + static_cast<std::ptrdiff_t>(at),
                                         cores.begin() + static_cast<std::ptrdiff_t>(end));
        out += fmt::format("|  |  cores {:<11}", first_units(hardware, of_line).text());
        for (std::size_t i = at; i < end; ++i) out += fmt::format(" {:>{}}", cells[i], width);
        out += '\n';
    }
}

std::string gpu_line(const GpuDevice& gpu, const RankMap& map) {
    const std::vector<int> ranks = ranks_of_gpu(map, gpu.bus);
    return fmt::format("GPU {}{}{}: {}", gpu.bus, gpu.name.empty() ? "" : " ", gpu.name,
                       ranks.empty() ? "not used" : (ranks.size() == 1 ? "rank " : "ranks ") + list_text(ranks));
}

// GPUs and cards attached to exactly these units, one per line.
void draw_devices(const Hardware& hardware, const RankMap& map, const CpuSet& at, const char* indent,
                  std::set<std::string>& drawn, std::string& out) {
    const auto is_here = [&](const CpuSet& near) { return !near.empty() && (near - at).empty(); };
    for (const GpuDevice& gpu : hardware.gpus)
        if (is_here(gpu.near) && drawn.insert(gpu.bus).second) out += fmt::format("{}{}\n", indent, gpu_line(gpu, map));
    for (const NetworkCard& card : hardware.network)
        if (is_here(card.near) && drawn.insert(card.bus).second)
            out += fmt::format("{}network {} {}\n", indent, card.bus, card.name);
}

}  // namespace

Table rank_table(const RankMap& map) {
    Table table({{"rank", "rank"},
                 {"numa_nodes", "NUMA nodes"},
                 {"cores", "cores"},
                 {"threads", "threads"},
                 {"helpers", "helpers"},
                 {"gpu", "GPU"},
                 {"network", "network"}});
    for (Index rank = 0; rank < map.seats.size(); ++rank) {
        const RankSeat& seat = map.seats[rank];
        const auto text_or_nothing = [](const std::string& text) { return text.empty() ? Cell() : Cell(text); };
        table.add_row({static_cast<std::int64_t>(rank), text_or_nothing(list_text(seat.numa_nodes)),
                       seat.cores.text() + (seat.shares_cores ? " (shared)" : ""), std::int64_t{seat.threads},
                       seat.helpers.text(), text_or_nothing(seat.gpu + (seat.shares_gpu ? " (shared)" : "")),
                       text_or_nothing(joined(seat.network))});
    }
    return table;
}

std::string draw_node(const Hardware& hardware, const RankMap& map) {
    std::string out = hardware_text(hardware) + '\n';
    std::set<std::string> drawn;
    for (int package = 0; package < hardware.packages; ++package) {
        out += fmt::format("package {}\n", package);
        std::vector<int> of_package;
        std::vector<int> nodes;  // in core order
        for (const Core& core : hardware.cores) {
            if (core.package != package) continue;
            of_package.insert(of_package.end(), core.units.units().begin(), core.units.units().end());
            if (std::find(nodes.begin(), nodes.end(), core.numa_node) == nodes.end()) nodes.push_back(core.numa_node);
        }
        for (const int node : nodes) {
            std::vector<Index> cores;
            std::vector<int> units;
            for (Index i = 0; i < hardware.cores.size(); ++i) {
                const Core& core = hardware.cores[i];
                if (core.package != package || core.numa_node != node) continue;
                cores.push_back(i);
                units.insert(units.end(), core.units.units().begin(), core.units.units().end());
            }
            std::string memory;
            for (const NumaNode& one : hardware.numa_nodes)
                if (one.number == node && one.bytes > 0) memory = ", " + human_bytes(static_cast<double>(one.bytes));
            out += fmt::format("|  NUMA node {}{}\n", node < 0 ? "?" : std::to_string(node), memory);
            draw_cores(hardware, map, cores, out);
            // A node that spans several packages is drawn in each, its devices once.
            draw_devices(hardware, map, CpuSet(std::move(units)), "|  |  ", drawn, out);
        }
        draw_devices(hardware, map, CpuSet(std::move(of_package)), "|  ", drawn, out);
    }
    std::vector<int> everything;
    for (const Core& core : hardware.cores)
        everything.insert(everything.end(), core.units.units().begin(), core.units.units().end());
    draw_devices(hardware, map, CpuSet(std::move(everything)), "", drawn, out);
    for (const GpuDevice& gpu : hardware.gpus)
        if (drawn.insert(gpu.bus).second) out += gpu_line(gpu, map) + '\n';
    for (const NumaNode& node : hardware.numa_nodes)
        if (node.units.empty())
            out += fmt::format("NUMA node {}{}, without cores: unused\n", node.number,
                               node.bytes > 0 ? ", " + human_bytes(static_cast<double>(node.bytes)) : "");
    return out + "digits: rank computing on the core;  +: helper threads only;  .: idle or not allowed\n";
}

std::string seat_text(const RankSeat& seat) {
    std::string text = fmt::format("{} {}", seat.cores.size() == 1 ? "core" : "cores", seat.cores.text());
    if (seat.shares_cores) text += " shared with other ranks";
    if (!seat.numa_nodes.empty())
        text += fmt::format(" (NUMA node{} {})", plural(seat.numa_nodes.size()), list_text(seat.numa_nodes));
    text += fmt::format(", {} thread{}", seat.threads, plural(seat.threads));
    if (seat.helpers != seat.cores) text += ", helpers on " + seat.helpers.text();
    if (!seat.gpu.empty()) text += fmt::format(", GPU {}{}", seat.gpu, seat.shares_gpu ? " shared" : "");
    if (!seat.network.empty()) text += ", network " + joined(seat.network);
    return text;
}

std::string hardware_text(const Hardware& hardware) {
    std::size_t units = 0;
    for (const Core& core : hardware.cores) units += static_cast<std::size_t>(core.units.size());
    const auto nodes =
        static_cast<std::size_t>(std::count_if(hardware.numa_nodes.begin(), hardware.numa_nodes.end(),
                                               [](const NumaNode& node) { return !node.units.empty(); }));
    std::string text = fmt::format("{}, {}, {}", counted(static_cast<std::size_t>(hardware.packages), "package"),
                                   counted(nodes, "NUMA node"), counted(hardware.cores.size(), "core"));
    if (units != hardware.cores.size()) text += fmt::format(" ({} hardware threads)", units);
    text += fmt::format(", {}", counted(hardware.gpus.size(), "GPU"));
    return text + fmt::format(", {}", counted(hardware.network.size(), "network card"));
}

std::string hardware_differences(const std::vector<NodeHardware>& nodes) {
    constexpr std::size_t most = 4;
    std::vector<NodeHardware> kinds;  // in the order of the nodes, with the first host
    std::map<std::string, std::size_t> count;
    for (const NodeHardware& node : nodes)
        if (++count[node.hardware] == 1) kinds.push_back(node);
    if (kinds.size() < 2) return "";
    std::string text;
    for (std::size_t i = 0; i < std::min(most, kinds.size()); ++i) {
        const std::size_t others = count[kinds[i].hardware] - 1;
        text += fmt::format("{}{}{} {}", i == 0 ? "" : "; ", kinds[i].host,
                            others == 0 ? " has" : fmt::format(" and {} have", counted(others, "more node")),
                            kinds[i].hardware);
    }
    if (kinds.size() > most) text += fmt::format("; {} of node", counted(kinds.size() - most, "more kind"));
    return text;
}

}  // namespace lockstep::cluster
