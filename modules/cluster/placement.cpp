#include "cluster/placement.hpp"

#include <mpi.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/error.hpp"
#include "base/log.hpp"
#include "cluster/binding.hpp"
#include "cluster/mpi_check.hpp"
#include "cluster/rank_map_text.hpp"
#include "device/parallel.hpp"

namespace lockstep::cluster {
namespace {

// The first number of OMP_NUM_THREADS ("8", or "8,2" for nested regions); 0 if unset.
int threads_of_environment() {
    const char* text = std::getenv("OMP_NUM_THREADS");
    if (text == nullptr) return 0;
    int threads = 0;
    const auto [end, problem] = std::from_chars(text, text + std::strlen(text), threads);
    constexpr int most = 1 << 16;
    const bool taken = problem == std::errc() && (*end == '\0' || *end == ',') && threads > 0 && threads < most;
    return taken ? threads : 0;
}

void use_environment(Placement& placement) {
    const int threads = threads_of_environment();
    if (threads == 0) return;
    const int cores = placement.seat().threads;
    if (threads < cores)
        placement.map.remarks.push_back(
            fmt::format("OMP_NUM_THREADS = {} leaves {} of the {} cores of a rank idle; unset it to use them", threads,
                        cores - threads, cores));
    placement.threads_given = threads != placement.seat().threads;
    placement.seat().threads = threads;
}

// Gathers a text of any length from every rank.
std::vector<std::string> all_texts(const std::string& own, MPI_Comm communicator) {
    int size = 0;
    LOCKSTEP_MPI(MPI_Comm_size, communicator, &size);
    const int length = static_cast<int>(own.size());
    std::vector<int> lengths(static_cast<std::size_t>(size)), starts;
    LOCKSTEP_MPI(MPI_Allgather, &length, 1, MPI_INT, lengths.data(), 1, MPI_INT, communicator);
    int total = 0;
    for (const int one : lengths) {
        starts.push_back(total);
        total += one;
    }
    std::string all(static_cast<std::size_t>(total), '\0');
    LOCKSTEP_MPI(MPI_Allgatherv, own.data(), length, MPI_CHAR, all.data(), lengths.data(), starts.data(), MPI_CHAR,
                 communicator);
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < lengths.size(); ++i)
        texts.push_back(all.substr(static_cast<std::size_t>(starts[i]), static_cast<std::size_t>(lengths[i])));
    return texts;
}

// A rank's contribution to the log.
struct Line {
    std::string host, hardware, seat;
    std::vector<std::string> remarks;  // from a node's first rank only
};

std::string text_of(const Line& line) {
    nlohmann::json json = {
        {"host", line.host}, {"hardware", line.hardware}, {"seat", line.seat}, {"remarks", line.remarks}};
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Line line_of(const std::string& text) {
    const auto json = nlohmann::json::parse(text);
    return {json.at("host"), json.at("hardware"), json.at("seat"), json.at("remarks")};
}

struct Node {
    std::string host, hardware;
    std::vector<int> ranks;
    std::vector<std::string> seats, remarks;
    bool like(const Node& other) const { return hardware == other.hardware && seats == other.seats; }
};

std::vector<Node> by_node(const std::vector<std::string>& texts) {
    std::vector<Node> nodes;  // in the order of their first ranks
    std::unordered_map<std::string, std::size_t> of_host;
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
        const Line line = line_of(texts[rank]);
        const auto [at, is_new] = of_host.emplace(line.host, nodes.size());
        if (is_new) nodes.push_back({line.host, line.hardware, {}, {}, {}});
        Node& node = nodes[at->second];
        node.ranks.push_back(static_cast<int>(rank));
        node.seats.push_back(line.seat);
        if (!line.remarks.empty()) node.remarks = line.remarks;
    }
    return nodes;
}

void log_node(const Node& node) {
    constexpr std::size_t most = 16;
    for (std::size_t i = 0; i < std::min(most, node.ranks.size()); ++i)
        log::detail("rank {} on {}: {}", node.ranks[i], node.host, node.seats[i]);
    if (node.ranks.size() > most)
        log::detail("{} more ranks on {}; see lockstep topo", node.ranks.size() - most, node.host);
    for (const std::string& remark : node.remarks)
        log::info("{} (ranks numbered within the node): {}", node.host, remark);
}

}  // namespace

Placement place_ranks(const Session& session, const std::vector<std::string>& gpus) {
    Placement placement;
    placement.topology = session.topology();
    placement.hardware = read_hardware(*placement.topology);
    placement.local_rank = session.place().local_rank;
    MPI_Comm node = MPI_COMM_NULL;
    LOCKSTEP_MPI(MPI_Comm_split, MPI_COMM_WORLD, session.place().node, session.rank(), &node);
    std::vector<RankRequest> requests;
    const nlohmann::json own = {{"allowed", session.allowed().text()}, {"gpus", gpus}};
    for (const std::string& text : all_texts(own.dump(), node)) {
        const auto json = nlohmann::json::parse(text);
        requests.push_back({CpuSet::parse(json.at("allowed").get<std::string>()), json.at("gpus")});
    }
    LOCKSTEP_MPI(MPI_Comm_free, &node);
    placement.map = map_ranks(placement.hardware, requests);
    use_environment(placement);
    return placement;
}

Placement place_alone(const std::vector<std::string>& gpus) {
    Placement placement;
    placement.topology = std::make_shared<const Topology>(Topology::live());
    placement.hardware = read_hardware(*placement.topology);
    placement.map = map_ranks(placement.hardware, {{placement.topology->process_binding(), gpus}});
    use_environment(placement);
    return placement;
}

void take_seat(Placement& placement, bool on_gpu, bool bind_too) {
    set_threads(placement.seat().threads);
    placement.bound = bind_too;
    if (bind_too) bind_process(placement.topology, placement.seat(), on_gpu);
}

void log_placement(const Placement& placement, const std::string& host, HostGroup& world) {
    const RankSeat& seat = placement.seat();
    Line own{host, hardware_text(placement.hardware), seat_text(seat), {}};
    if (placement.threads_given) own.seat += " (OMP_NUM_THREADS)";
    if (placement.local_rank == 0) own.remarks = placement.map.remarks;
    const std::string text = text_of(own);
    // Blocks of equal size: the longest.
    const auto width = static_cast<std::size_t>(world.all_maximum(static_cast<std::int64_t>(text.size())));
    std::string block = text;
    block.resize(width, ' ');
    const std::vector<char> all = world.gather(block.data(), width, 0);
    if (world.rank() != 0) return;
    std::vector<std::string> texts;
    for (std::size_t at = 0; at < all.size(); at += width) texts.emplace_back(all.data() + at, width);

    const std::vector<Node> nodes = by_node(texts);
    log::info("{}{}: {}", nodes.front().host, nodes.size() > 1 ? ", the first node" : "", nodes.front().hardware);
    log_node(nodes.front());
    constexpr std::size_t most_others = 4;
    std::vector<const Node*> others;
    std::vector<NodeHardware> hardware;
    for (const Node& node : nodes) {
        hardware.push_back({node.host, node.hardware});
        const bool known = node.like(nodes.front()) ||
                           std::any_of(others.begin(), others.end(), [&](const Node* one) { return one->like(node); });
        if (!known) others.push_back(&node);
    }
    for (std::size_t i = 0; i < std::min(most_others, others.size()); ++i) log_node(*others[i]);
    if (others.size() > most_others) log::info("{} more nodes differ in their rank maps", others.size() - most_others);
    if (const std::string differences = hardware_differences(hardware); !differences.empty())
        log::warning("nodes differ, and each step waits for the slowest: {}", differences);
    if (nodes.size() > 1)
        log::info("{} ranks on {} nodes{}", world.size(), nodes.size(), others.empty() ? ", all placed alike" : "");
    if (placement.bound)
        log::detail("binding: as shown");
    else
        log::info("binding: none (run.bind = false)");
}

}  // namespace lockstep::cluster
