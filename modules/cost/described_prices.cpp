#include "cost/described_prices.hpp"

#include <algorithm>
#include <cmath>

#include "cost/product_time.hpp"

namespace lockstep::cost {
namespace {

using Kind = kernels::OperationKind;

// Attention's backward pass computes the scores once more, which is not among its model FLOP.
constexpr double attention_backward_work = 2.5 / 2;

}  // namespace

double tensor_reduction_seconds(const config::Machine& machine, const Layout& layout, double bytes) {
    if (layout.tensor == 1) return 0;
    const auto t = static_cast<double>(layout.tensor);
    const double in_node = machine.node_link.gb_per_second * 1e9 * machine.node_link.efficiency;
    double rate = in_node, latency = machine.node_link.latency_us;
    const bool inside =
        static_cast<double>(layout.ranks()) <= machine.device.per_node || std::fmod(machine.device.per_node, t) == 0;
    if (!inside) {
        rate = std::min(in_node, machine.network_bytes_per_second() * machine.network.efficiency);
        latency = machine.network.latency_us;
    }
    return 2 * (t - 1) / t * bytes / rate + 2 * std::ceil(std::log2(t)) * latency * 1e-6;
}

double hand_on_seconds(const config::Machine& machine, const Layout& layout, double bytes, double places) {
    const double per_node = machine.device.per_node;
    if (static_cast<double>(layout.ranks()) <= per_node)
        return bytes / (machine.node_link.gb_per_second * 1e9) + machine.node_link.latency_us * 1e-6;
    return bytes * std::min(places, per_node) / machine.network_bytes_per_second() + machine.network.latency_us * 1e-6;
}

// A head of a sequence is one after the other: fewer of them than multiprocessors leave some idle.
double DescribedPrices::scan_seconds(const kernels::Operation& scan) const {
    const double filled = config::filled_share(scan.batch, machine_.device.units);
    return scan.flop / (machine_.peak_flops(precision_) * machine_.products.inner_efficiency * filled);
}

double DescribedPrices::message_seconds(const kernels::Operation& message) const {
    switch (message.kind) {
        case Kind::all_reduce:
            return tensor_reduction_seconds(machine_, layout_, message.bytes);
        case Kind::all_gather:
        case Kind::reduce_scatter:
            return tensor_reduction_seconds(machine_, layout_, message.bytes) / 2;
        case Kind::receive:
            return hand_on_seconds(machine_, layout_, message.bytes,
                                   static_cast<double>(layout_.tensor * message.distance));
        default:  // what is sent goes while its receiver waits
            return 0;
    }
}

double DescribedPrices::seconds(const kernels::Operation& operation, bool) const {
    if (operation.is_message()) return message_seconds(operation);
    const double bandwidth = machine_.bytes_per_second(), peak = machine_.peak_flops(precision_);
    if (operation.is_product()) {
        const double seconds = product_seconds(
            machine_, precision_,
            {operation.rows, operation.columns, operation.depth, operation.batch, operation.row_length});
        const bool adds = operation.accumulates && operation.kind == Kind::product_weight_gradient;
        return adds ? seconds + 2 * sizeof(float) * operation.rows * operation.columns / bandwidth : seconds;
    }
    switch (operation.kind) {
        case Kind::attention_forward:
            return operation.flop / (peak * machine_.products.attention_efficiency);
        case Kind::attention_backward:
            return attention_backward_work * operation.flop / (peak * machine_.products.attention_efficiency);
        case Kind::ttt_linear_forward:
        case Kind::ttt_linear_backward:
        case Kind::ttt_mlp_forward:
        case Kind::ttt_mlp_backward:
        case Kind::delta_forward:
        case Kind::delta_backward:
            return scan_seconds(operation);
        case Kind::launch:
            return machine_.device.kernel_us * 1e-6;
        default:  // a custom operation's arithmetic is taken for that of products
            return operation.bytes / bandwidth + operation.flop / (peak * machine_.products.efficiency);
    }
}

}  // namespace lockstep::cost
