#include "cost/own_prices.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.hpp"

namespace lockstep::cost {
namespace {

using Kind = kernels::OperationKind;

// Which measured rate prices which kind of operation.
struct RateOf {
    Kind kind;
    config::ProductRate config::ProductRates::*product = nullptr;
    config::MixingRate config::PrecisionRates::*mixing = nullptr;
    double config::PrecisionRates::Memory::*memory = nullptr;
};

const RateOf& rate_of(Kind kind) {
    using Product = config::ProductRates;
    using Rates = config::PrecisionRates;
    using Memory = config::PrecisionRates::Memory;
    static const std::vector<RateOf> table = {
        {Kind::product_forward, &Product::forward},
        {Kind::product_input_gradient, &Product::input_gradient},
        {Kind::product_weight_gradient, &Product::weight_gradient},
        {Kind::attention_forward, nullptr, &Rates::attention_forward},
        {Kind::attention_backward, nullptr, &Rates::attention_backward},
        {Kind::ttt_linear_forward, nullptr, &Rates::ttt_linear_forward},
        {Kind::ttt_linear_backward, nullptr, &Rates::ttt_linear_backward},
        {Kind::ttt_mlp_forward, nullptr, &Rates::ttt_mlp_forward},
        {Kind::ttt_mlp_backward, nullptr, &Rates::ttt_mlp_backward},
        {Kind::delta_forward, nullptr, &Rates::delta_forward},
        {Kind::delta_backward, nullptr, &Rates::delta_backward},
        {Kind::norm_forward, nullptr, nullptr, &Memory::norm_forward},
        {Kind::norm_backward, nullptr, nullptr, &Memory::norm_backward},
        {Kind::activation_forward, nullptr, nullptr, &Memory::activation_forward},
        {Kind::activation_backward, nullptr, nullptr, &Memory::activation_backward},
        {Kind::gated_forward, nullptr, nullptr, &Memory::gated_forward},
        {Kind::gated_backward, nullptr, nullptr, &Memory::gated_backward},
        {Kind::rotate, nullptr, nullptr, &Memory::rotate},
        {Kind::copy, nullptr, nullptr, &Memory::copy},
        {Kind::bias_gradient, nullptr, nullptr, &Memory::bias_gradient},
        {Kind::convolution_forward, nullptr, nullptr, &Memory::convolution_forward},
        {Kind::convolution_backward, nullptr, nullptr, &Memory::convolution_backward},
        {Kind::embedding_forward, nullptr, nullptr, &Memory::embedding_forward},
        {Kind::embedding_backward, nullptr, nullptr, &Memory::embedding_backward},
        {Kind::cross_entropy, nullptr, nullptr, &Memory::cross_entropy},
        {Kind::optimizer, nullptr, nullptr, &Memory::adamw},
        {Kind::custom},
    };
    const auto at = static_cast<std::size_t>(kind);
    LOCKSTEP_ASSERT(at < table.size() && table[at].kind == kind);
    return table[at];
}

const config::PrecisionRates& rates_of(const config::Machine& machine, config::Precision precision) {
    const config::Rates& rates = machine.rates;
    if (!rates.measured())
        throw usage_error(
            "{} has no [rates]; measure them on the machine itself with mpirun -np RANKS lockstep bench "
            "--calibrate FILE",
            machine.name);
    const config::PrecisionRates& found = precision == config::Precision::fp32 ? rates.fp32 : rates.bf16;
    if (!found.measured())
        throw usage_error("{} has no rates for {}; calibrate it with --precision all", machine.name,
                          precision == config::Precision::fp32 ? "fp32" : "bf16");
    return found;
}

// Of t threads, where all c cores have the efficiency E: E^(ln t / ln c).
double team_efficiency(const config::Rates& rates, double threads) {
    if (rates.cores < 2 || threads <= 1) return 1;
    return std::pow(rates.team_efficiency, std::log(threads) / std::log(rates.cores));
}

}  // namespace

config::Precision precision_on(const config::Machine& machine, config::Precision compute) {
    if (machine.device.kind == config::MachineKind::gpu) return compute;
    if (compute == config::Precision::fp16)
        throw usage_error(
            "precision.compute = \"fp16\": {} is a CPU machine, which computes in fp32 or bf16; set it to one of "
            "these, or plan for GPUs",
            machine.name);
    return compute == config::Precision::bf16 && machine.rates.bf16_is_fp32 > 0 ? config::Precision::fp32 : compute;
}

CalibratedPrices::CalibratedPrices(const config::Machine& machine, config::Precision compute, const config::Grid& grid,
                                   std::int64_t ranks_per_node)
    : machine_(machine),
      rates_(rates_of(machine, precision_on(machine, compute))),
      grid_(grid),
      ranks_per_node_(static_cast<double>(ranks_per_node)),
      element_(&rates_ == &machine.rates.fp32 ? 4 : 2) {
    const config::Rates& rates = machine.rates;
    double threads = 1;
    if (machine.device.kind == config::MachineKind::gpu) {
        turns_ = std::max(1.0, ranks_per_node_ / rates.cores);
    } else {
        const double cores = std::max(1.0, rates.cores);
        threads = std::max(1.0, std::floor(cores / ranks_per_node_));
        message_turns_ = turns_ = std::max(1.0, ranks_per_node_ / cores);
    }
    bandwidth_ = threads / std::max(1.0, rates.threads);
    speed_ = bandwidth_ * team_efficiency(rates, threads) / team_efficiency(rates, rates.threads);
    operation_ = (rates.operation_us + (threads > 1 ? rates.team_us : 0)) * 1e-6;
}

double CalibratedPrices::moved(double bytes, double gb_per_second) const {
    return operation_ + (gb_per_second > 0 ? bytes / (gb_per_second * 1e9 * bandwidth_) : 0);
}

double CalibratedPrices::seconds(const kernels::Operation& operation, bool of_head) const {
    if (operation.is_message()) return message_seconds(operation);
    const RateOf& rate = rate_of(operation.kind);
    if (rate.product) {
        const config::ProductRate& product = (of_head ? rates_.head : rates_.layer).*rate.product;
        return operation_ + product.seconds(operation.flop, operation.bytes) / speed_;
    }
    if (rate.mixing) {
        const bool newer = operation.kind == Kind::delta_forward || operation.kind == Kind::delta_backward;
        if (newer && !(rates_.*rate.mixing).measured())  // in a file from before the operation
            throw usage_error("{} has no rates for Gated DeltaNet; calibrate it again", machine_.name);
        // The rates of these are those of multiprocessors that all have work.
        const bool waves = machine_.device.kind == config::MachineKind::gpu &&
                           (operation.kind == Kind::ttt_mlp_forward || operation.kind == Kind::ttt_mlp_backward);
        const double filled = waves ? config::filled_share(operation.batch, machine_.device.units) : 1;
        return operation_ + (rates_.*rate.mixing).seconds(operation.flop, operation.bytes) / (bandwidth_ * filled);
    }
    if (rate.memory) return moved(operation.bytes, rates_.memory.*rate.memory);
    LOCKSTEP_ASSERT(operation.kind == Kind::custom);
    // Its arithmetic as that of a layer's products, its bytes as those of a copy: nothing more is known of it.
    const double tflops = rates_.layer.forward.tflops;
    return moved(operation.bytes, rates_.memory.copy) + (tflops > 0 ? operation.flop / (tflops * 1e12 * speed_) : 0);
}

double CalibratedPrices::send(double bytes, std::int64_t stride) const {
    if (static_cast<double>(stride) >= ranks_per_node_)
        return machine_.network.latency_us * 1e-6 + bytes * ranks_per_node_ / machine_.network_bytes_per_second();
    const config::Rates::Messages& rates = machine_.rates.messages;
    const double rate = rates.gb_per_second > 0 ? rates.gb_per_second : machine_.node_link.gb_per_second;
    return message_turns_ * (rates.latency_us * 1e-6 + bytes / (rate * 1e9));
}

// How many of a group's ranks a node has, where every node has as many; 1 where groups do not fill nodes so.
double CalibratedPrices::ranks_of_node(std::int64_t ranks, std::int64_t stride) const {
    if (static_cast<double>(grid_.ranks()) <= ranks_per_node_) return static_cast<double>(ranks);
    const auto node = static_cast<std::int64_t>(ranks_per_node_), span = ranks * stride;
    if (span <= node) return node % span == 0 ? static_cast<double>(ranks) : 1;
    return node % stride == 0 && span % node == 0 ? static_cast<double>(node / stride) : 1;
}

// Each rank sends and receives `passes` (R - 1) / R of the bytes. Beyond a node the groups of the node share its cards,
// and the ranks of a group within it reduce first; groups that do not fill nodes go by the cards only, and
// `stride` of them cross each of a node's two borders.
double CalibratedPrices::collective(double bytes, double passes, double gb_per_second, std::int64_t ranks,
                                    std::int64_t stride) const {
    if (ranks <= 1) return 0;
    const auto of = [](double count) { return (count - 1) / count; };
    const auto all = static_cast<double>(ranks);
    const double of_node = ranks_of_node(ranks, stride), nodes = all / of_node;
    double seconds = 0;
    if (of_node > 1) {
        const double rate = gb_per_second > 0 ? gb_per_second : machine_.node_link.gb_per_second;
        seconds += message_turns_ * (passes * of(of_node) * bytes / (rate * 1e9) +
                                     passes * of(of_node) * machine_.rates.messages.all_reduce_us * 1e-6);
    }
    if (nodes > 1) {
        // Groups that use the node's cards at once.
        const double sharing =
            of_node > 1 ? ranks_per_node_ / of_node : std::min(ranks_per_node_, 2 * static_cast<double>(stride));
        seconds += passes * of(nodes) * bytes * sharing / machine_.network_bytes_per_second() +
                   passes * std::log2(nodes) * machine_.network.latency_us * 1e-6;
    }
    return seconds;
}

double CalibratedPrices::message_seconds(const kernels::Operation& message) const {
    const bool tensor = message.group == kernels::MessageGroup::tensor;
    const std::int64_t ranks = tensor ? grid_.tensor : grid_.context, stride = tensor ? 1 : grid_.tensor;
    switch (message.kind) {
        case Kind::all_reduce:
            return all_reduce(message.bytes, ranks, stride);
        case Kind::all_gather:
            return gather(message.bytes, ranks, stride);
        case Kind::reduce_scatter:
            return scatter(message.bytes, ranks, stride);
        case Kind::receive:
            return send(message.bytes, stride * message.distance);
        default:  // what is sent goes while its receiver waits
            return 0;
    }
}

double CalibratedPrices::all_reduce(double bytes, std::int64_t ranks, std::int64_t stride) const {
    return collective(bytes, 2, rates_.all_reduce_gb_per_second, ranks, stride);
}
double CalibratedPrices::gather(double bytes, std::int64_t ranks, std::int64_t stride) const {
    return collective(bytes, 1, machine_.rates.messages.gather_gb_per_second, ranks, stride);
}
double CalibratedPrices::scatter(double bytes, std::int64_t ranks, std::int64_t stride) const {
    return collective(bytes, 1, machine_.rates.messages.scatter_gb_per_second, ranks, stride);
}
double CalibratedPrices::reduce_bucket(double bytes, std::int64_t ranks, std::int64_t stride) const {
    return collective(bytes, 2, machine_.rates.messages.bucket_gb_per_second, ranks, stride);
}

}  // namespace lockstep::cost
