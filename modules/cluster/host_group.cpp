#include "cluster/host_group.hpp"

namespace lockstep::cluster {

std::string HostGroup::broadcast_text(std::string text, int root) {
    std::uint64_t bytes = text.size();
    broadcast(&bytes, sizeof bytes, root);
    text.resize(bytes);
    broadcast(text.data(), bytes, root);
    return text;
}

std::int64_t HostGroup::all_maximum(std::int64_t value) {
    std::vector<std::int64_t> values = {value};
    all_reduce(values, Reduce::maximum);
    return values[0];
}

double HostGroup::all_sum(double value) {
    std::vector<double> values = {value};
    all_reduce(values, Reduce::sum);
    return values[0];
}

}  // namespace lockstep::cluster
