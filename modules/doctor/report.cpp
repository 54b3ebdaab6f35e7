#include "doctor/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/format.hpp"
#include "base/plural.hpp"
#include "doctor/host_list.hpp"

namespace lockstep::doctor {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t width = 100;

std::string shortened(const std::string& text, std::size_t most) {
    return text.size() <= most ? text : text.substr(0, most - 2) + "..";
}

std::string host_of(const Examination& of, int rank) {
    const int node = of.sites[static_cast<std::size_t>(rank)].node;
    return of.nodes[static_cast<std::size_t>(node)].host;
}

std::string ends_of(const Examination& of, const Link& link) {
    constexpr std::size_t most = 13;  // letters of a host, so that the table fits
    if (link.kind == LinkKind::between_nodes)
        return shortened(host_of(of, link.first), most) + ", " + shortened(host_of(of, link.second), most);
    return fmt::format("ranks {}, {} of {}", link.first, link.second, shortened(host_of(of, link.first), most));
}

// Lines of at most `width` letters; words longer than that stay whole.
std::string wrapped(const std::string& text, std::size_t indent) {
    std::istringstream words(text);
    std::string out, line(indent, ' ');
    for (std::string word; words >> word;) {
        if (line.size() > indent && line.size() + 1 + word.size() > width) {
            out += line + '\n';
            line = std::string(indent, ' ');
        }
        line += (line.size() > indent ? " " : "") + word;
    }
    return out + line + '\n';
}

Json json_of(const Examination& of) {
    Json links = Json::array(), rates = Json::array(), nodes = Json::array(), findings = Json::array();
    for (const LinkSummary& kind : of.links.kinds)
        links.push_back({{"kind", kind.kind},
                         {"links", kind.links},
                         {"latency_seconds", kind.latency},
                         {"longest_latency_seconds", kind.longest_latency},
                         {"bytes_per_second", kind.rate},
                         {"lowest_bytes_per_second", kind.lowest_rate},
                         {"gpu_bytes_per_second", kind.gpu_rate > 0 ? Json(kind.gpu_rate) : Json()},
                         {"lowest_gpu_bytes_per_second", kind.gpu_rate > 0 ? Json(kind.lowest_gpu_rate) : Json()},
                         {"lowest_between", {kind.lowest.first, kind.lowest.second}}});
    for (const LinkRate& rate : of.rates)
        rates.push_back({{"ranks", {rate.link.first, rate.link.second}},
                         {"hosts", {host_of(of, rate.link.first), host_of(of, rate.link.second)}},
                         {"latency_seconds", rate.latency},
                         {"bytes_per_second", rate.rate},
                         {"gpu_bytes_per_second", rate.gpu_rate > 0 ? Json(rate.gpu_rate) : Json()}});
    for (std::size_t i = 0; i < of.nodes.size(); ++i) {
        const NodeFacts& node = of.nodes[i];
        Json ports = Json::array();
        for (const NetworkPort& port : node.ports)
            ports.push_back({{"name", port.name}, {"fabric", fabric_name(port.fabric)}, {"gigabits", port.gigabits}});
        nodes.push_back({{"host", node.host},
                         {"kernel", node.kernel},
                         {"mpi", node.mpi},
                         {"nccl", nccl_transport(node.nccl)},
                         {"program", node.program},
                         {"processor", node.processor},
                         {"cores", node.cores},
                         {"memory_bytes", node.memory_bytes},
                         {"ports", ports},
                         {"clock_ahead_seconds", of.clocks[i].ahead},
                         {"clock_uncertainty_seconds", of.clocks[i].uncertainty}});
    }
    for (const Finding& finding : of.findings)
        findings.push_back({{"id", finding.id},
                            {"what", finding.what},
                            {"hosts", finding.hosts},
                            {"advice", finding.advice},
                            {"source", finding.source.empty() ? Json() : Json(finding.source)}});
    return {{"ranks", of.ranks}, {"seconds", of.seconds}, {"links", links},      {"rates", rates},
            {"nodes", nodes},    {"remarks", of.remarks}, {"findings", findings}};
}

std::string findings_text(const Examination& of) {
    if (of.findings.empty()) return "";
    std::string out = "\nfindings:\n";
    for (const Finding& finding : of.findings) {
        const std::string hosts = host_list(finding.hosts);
        out += wrapped(fmt::format("{}{}: {}", finding.id, hosts.empty() ? "" : " on " + hosts, finding.what), 2);
        out += wrapped("do: " + finding.advice, 6);
        if (!finding.source.empty()) out += wrapped("see: " + finding.source, 6);
    }
    return out;
}

}  // namespace

Table link_table(const Examination& of) {
    const bool gpus = std::any_of(of.links.kinds.begin(), of.links.kinds.end(),
                                  [](const LinkSummary& kind) { return kind.gpu_rate > 0; });
    std::vector<Column> columns = {{"kind", "links"},
                                   {"links", "number"},
                                   {"latency_us", "us", 1},
                                   {"longest_latency_us", "longest", 1},
                                   {"gb_per_second", "GB/s", 2},
                                   {"lowest_gb_per_second", "lowest", 2}};
    if (gpus) {
        columns.push_back({"gpu_gb_per_second", "GPUs", 2});
        columns.push_back({"lowest_gpu_gb_per_second", "lowest", 2});
    }
    columns.push_back({"lowest_between", "lowest between"});
    Table table(std::move(columns));
    for (const LinkSummary& kind : of.links.kinds) {
        std::vector<Cell> row = {kind.kind,          static_cast<std::int64_t>(kind.links),
                                 kind.latency * 1e6, kind.longest_latency * 1e6,
                                 kind.rate * 1e-9,   kind.lowest_rate * 1e-9};
        if (gpus) {
            row.emplace_back(kind.gpu_rate * 1e-9);
            row.emplace_back(kind.lowest_gpu_rate * 1e-9);
        }
        row.emplace_back(ends_of(of, kind.lowest));
        table.add_row(std::move(row));
    }
    return table;
}

std::string verdict(const Examination& of) {
    if (of.findings.empty()) return fmt::format("no problems found ({})", human_seconds(of.seconds));
    return fmt::format("{} finding{}", of.findings.size(), plural(of.findings.size()));
}

std::string log_line(const Finding& finding) {
    const std::string hosts = host_list(finding.hosts);
    return fmt::format("{}{}: {}; {}", finding.id, hosts.empty() ? "" : " on " + hosts, finding.what, finding.advice);
}

std::string report(const Examination& of, TableFormat format) {
    if (format == TableFormat::json) return json_of(of).dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
    const std::string table = link_table(of).print(format);
    if (format == TableFormat::csv) return table;
    const bool markdown = format == TableFormat::markdown;
    std::string out = of.links.kinds.empty() ? "a single rank has no links\n" : table;
    std::string rest = "\n";
    for (const std::string& remark : of.remarks) rest += wrapped(remark, 0);
    rest += findings_text(of) + "\n" + verdict(of) + "\n";
    return out + (markdown ? "\n```" + rest + "```\n" : rest);
}

}  // namespace lockstep::doctor
