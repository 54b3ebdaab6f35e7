#include "cluster/communicator.hpp"

namespace lockstep::cluster {

std::string Communicator::broadcast_text(std::string text, int root) {
    std::uint64_t bytes = text.size();
    broadcast(&bytes, sizeof bytes, root);
    text.resize(bytes);
    broadcast(text.data(), bytes, root);
    return text;
}

std::int64_t Communicator::all_maximum(std::int64_t value) {
    std::vector<std::int64_t> values = {value};
    all_reduce(values, Reduce::maximum);
    return values[0];
}

double Communicator::all_sum(double value) {
    std::vector<double> values = {value};
    all_reduce(values, Reduce::sum);
    return values[0];
}

}  // namespace lockstep::cluster
