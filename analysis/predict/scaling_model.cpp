#include "analysis/predict/scaling_model.hpp"

#include <algorithm>
#include <boost/math/constants/constants.hpp>
#include <boost/math/quadrature/gauss_kronrod.hpp>
#include <boost/math/special_functions/digamma.hpp>
#include <cmath>
#include <numeric>

namespace lockstep::analysis {
namespace {

// Positions behind the unknowns of the terms, two each: crowding, the wait's two, the exchange's.
enum : std::size_t {
    crowding,
    spread,
    tail,
    hidden,
    node_rate,
    node_latency,
    network_rate,
    network_latency,
    traffic,
    ring
};

constexpr double control_messages = 3;  // small sums over all ranks in a step: loss, norm, control
constexpr double reached = 0.8;         // share of a link's rate that is believed to be reached
constexpr double least_latency_us = 0.1;
// Where the bytes of the gradients are not known: shares of the whole time that a node's link would take for them.
constexpr double guessed_bytes = 0.002, guessed_messages = 0.0001, guessed_ring = 0.3;

double normal_share(double quantile) {
    return 0.5 * std::erfc(-quantile / std::sqrt(2.0));
}

double hops(double count) {
    return std::ceil(std::log2(std::max(count, 1.0)) - 1e-9);
}

// The larger of the two, without an edge that a search would stumble over.
double smooth_larger(double one, double other, double edge) {
    return 0.5 * (one + other + std::sqrt((one - other) * (one - other) + edge * edge));
}

}  // namespace

double largest_of_normal(double count) {
    if (count <= 1) return 0;
    // ∫ (1 − Φ(x)^n) dx above 0, less ∫ Φ(x)^n dx below it; beyond 20 both are 0.
    const auto piece = [&](double x) {
        const double above = normal_share(-x);
        return -std::expm1(count * std::log1p(-above)) - std::pow(above, count);
    };
    return boost::math::quadrature::gauss_kronrod<double, 31>::integrate(piece, 0.0, 20.0, 15, 1e-10);
}

double largest_of_exponential(double count) {
    if (count <= 1) return 0;
    // The harmonic number less one.
    return boost::math::digamma(count + 1) + boost::math::constants::euler<double>() - 1;
}

Scale::Scale(double ranks_, double nodes_, double batch_)
    : ranks(ranks_),
      nodes(nodes_),
      batch(batch_),
      normal_largest(largest_of_normal(ranks_)),
      exponential_largest(largest_of_exponential(ranks_)) {}

Scale scale_of(const ScalingProgram& program, double ranks, double batch) {
    return {ranks, std::ceil(ranks / program.ranks_per_node), batch};
}

ScalingModel::ScalingModel(const ScalingProgram& program, std::vector<WorkTerm> terms)
    : program_(program), terms_(std::move(terms)) {}

double ScalingModel::Unknown::value(double unknown) const {
    return share ? normal_share(unknown) : std::exp(unknown);
}

double ScalingModel::sequences_per_replica(const Scale& scale) const {
    const double sequences = scale.batch * program_.context / replicas(scale);
    return program_.must_divide || !program_.batch_known ? sequences : std::ceil(sequences - 1e-9);
}

std::vector<ScalingModel::Unknown> ScalingModel::unknowns(const config::Machine& machine,
                                                          const std::vector<double>& seconds, double sequences,
                                                          double divided_among) {
    std::vector<Unknown> all;
    // A constant part is believed to be between nothing worth mentioning and a fifth of the whole: 0.5 %, times or
    // divided by 37 nine times of ten.
    constexpr double constant_share = 0.005, constant_deviation = 2.2, wide = 2.3;
    for (std::size_t i = 0; i < terms_.size(); ++i) {
        const std::string& name = terms_[i].name;
        const bool update = terms_[i].follows == WorkTerm::Follows::update, divided = program_.divided_update;
        const bool whole = update && !divided;
        all.push_back({name + "_constant_seconds", name + ", fixed part, s", false, true,
                       std::log(seconds[i] * (whole ? 1 : constant_share)), whole ? wide : constant_deviation});
        if (update)
            all.push_back({name + "_divided_seconds", name + ", part divided among replicas, s", false, divided,
                           std::log(seconds[i] * divided_among), wide});
        else
            all.push_back({name + "_seconds_a_sequence", name + ", s per sequence", false, true,
                           std::log(seconds[i] / sequences), wide});
    }
    all.push_back({"crowding", "slowdown when all slots of a node are taken, share", false,
                   program_.places_per_node > 1, std::log(0.03), 1.6});
    all.push_back({"spread", "spread of the ranks' compute, share", false, true, std::log(0.01), 1.4});
    all.push_back({"tail", "tail of the slowest rank: 0 normal, 1 exponential", true, true, 0, 1});
    all.push_back({"hidden", "share of the backward pass that hides the exchange of gradients", true, true, 0, 1});
    const auto latency = [](double microseconds) { return std::log(1e-6 * std::max(microseconds, least_latency_us)); };
    const double node = reached * 1e9 * machine.node_link.gb_per_second,
                 network = reached * machine.network_bytes_per_second();
    all.push_back(
        {"node_bytes_per_second", "bandwidth of a device within a node, bytes/s", false, true, std::log(node), 1.4});
    all.push_back(
        {"node_latency_seconds", "latency within a node, s", false, true, latency(machine.node_link.latency_us), 1.4});
    all.push_back({"network_bytes_per_second", "bandwidth of all network cards of a node, bytes/s", false, true,
                   std::log(network), 0.45});
    all.push_back(
        {"network_latency_seconds", "latency between nodes, s", false, true, latency(machine.network.latency_us), 0.9});
    const bool guess = !(program_.gradient_bytes > 0);
    all.push_back({"traffic", guess ? "bytes and messages, relative to the estimate" : "bytes, relative to the count",
                   false, guess, 0, guess ? 2.3 : 0.02});
    // Trees take the logarithm of the groups; rings, and optimizer states divided among all ranks, as many messages as
    // there are groups. Which of them a library takes differs with its version and the size. Where the messages are
    // counted, there is at most one of a ring for each group.
    if (guess)
        all.push_back({"ring", "messages in turn for each further node, beside the logarithm", false, true,
                       std::log(guessed_ring), 2.3});
    else
        all.push_back({"ring", "messages in turn for each further node, beside the logarithm", true, true, -1.5, 1});
    guessed_ = guess;
    if (guess) {
        const double whole = std::accumulate(seconds.begin(), seconds.end(), 0.0);
        program_.gradient_bytes = guessed_bytes * whole * node / 2;
        steps_ = guessed_messages * whole / std::exp(latency(machine.node_link.latency_us));
    }
    return all;
}

// `window`: the seconds beneath which gradients may travel.
double ScalingModel::exchange(const Scale& scale, const double* links, double window) const {
    if (scale.ranks <= 1) return 0;
    const double on_node = scale.ranks / scale.nodes, all = replicas(scale);
    const double near = std::clamp(on_node / program_.shards, 1.0, all);  // replicas of one node
    const double groups = all / near;
    const double node_rate_is = std::exp(links[node_rate]), network_rate_is = std::exp(links[network_rate]);
    const double node_message = std::exp(links[node_latency]), network_message = std::exp(links[network_latency]);
    const double more = std::exp(links[traffic]);
    const double between = hops(groups) + (guessed_ ? std::exp(links[ring]) : normal_share(links[ring])) * (groups - 1);
    // One half of an all-reduce: a sum that is scattered, or parts that are gathered. Inside the node first; then each
    // device sends its part between the nodes, all of a node through its cards.
    const auto half = [&](double bytes) {
        const double beside = std::min(program_.shards, on_node);  // devices with different parameters
        return more * (steps_ * program_.buckets * (hops(near) * node_message + between * network_message) +
                       bytes * ((near - 1) / near / node_rate_is + (groups - 1) / groups * beside / network_rate_is));
    };
    double seconds = steps_ * control_messages * (hops(on_node) * node_message + hops(scale.nodes) * network_message);
    if (all <= 1) return seconds;
    const double beneath = (program_.divided_update ? 1 : 2) * half(program_.gradient_bytes);
    seconds +=
        smooth_larger(beneath - normal_share(links[hidden]) * window, beneath / program_.buckets, 0.002 * beneath);
    if (program_.divided_update) seconds += half(program_.gather_bytes);
    return seconds;
}

StepTime ScalingModel::step(const Scale& scale, const std::vector<double>& unknowns) const {
    const double* further = unknowns.data() + 2 * terms_.size();
    const double sequences = sequences_per_replica(scale), on_node = scale.ranks / scale.nodes;
    const double places = program_.places_per_node;
    const double crowd = places > 1 ? std::clamp((on_node - 1) / (places - 1), 0.0, 1.0) : 0;
    const double slower = (1 + crowd * std::exp(further[crowding])) * std::max(on_node / places, 1.0);
    StepTime time;
    double window = 0;
    for (std::size_t i = 0; i < terms_.size(); ++i) {
        const WorkTerm& term = terms_[i];
        double seconds = std::exp(unknowns[2 * i]);
        if (term.follows == WorkTerm::Follows::share)
            seconds += sequences * std::exp(unknowns[2 * i + 1]);
        else if (program_.divided_update)
            seconds += std::exp(unknowns[2 * i + 1]) / replicas(scale);
        if (!term.communication) seconds *= slower;
        (term.communication ? time.communication : time.compute) += seconds;
        window += term.backward * seconds;
        time.work.push_back(seconds);
    }
    // Gradients are whole in the last micro-batch only.
    if (program_.micro_batch > 0) window /= std::max(sequences / program_.micro_batch, 1.0);
    const double far = normal_share(further[tail]);
    time.wait =
        std::exp(further[spread]) * time.compute * ((1 - far) * scale.normal_largest + far * scale.exponential_largest);
    time.exchange = exchange(scale, further, window);
    time.communication += time.wait + time.exchange;
    return time;
}

}  // namespace lockstep::analysis
