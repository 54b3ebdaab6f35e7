#include "cost/pass_time.hpp"

#include <algorithm>

#include "model/mixers/registry.hpp"

namespace lockstep::cost {
namespace {

struct Part {
    double computing = 0, tensor = 0, context = 0;
};

Part priced(const std::vector<kernels::Operation>& operations, const Prices& prices, bool of_head) {
    Part part;
    for (const kernels::Operation& operation : operations) {
        const double seconds = operation.times * prices.seconds(operation, of_head);
        if (!operation.is_message())
            part.computing += seconds;
        else
            (operation.group == kernels::MessageGroup::tensor ? part.tensor : part.context) += seconds;
    }
    return part;
}

}  // namespace

PassTime& PassTime::add(const PassTime& other, double times) {
    for (double PassTime::*part : {&PassTime::forward, &PassTime::loss, &PassTime::recomputation, &PassTime::backward,
                                   &PassTime::tensor_forward, &PassTime::tensor_loss, &PassTime::tensor_recomputation,
                                   &PassTime::tensor_backward, &PassTime::context_forward, &PassTime::context_backward})
        this->*part += times * other.*part;
    return *this;
}

PassTime pass_time(const model::Count& count, const Prices& prices) {
    const Part forward = priced(count.forward, prices, false), loss = priced(count.loss, prices, true);
    const Part again = priced(count.recompute, prices, false), backward = priced(count.backward, prices, false);
    PassTime time;
    time.forward = forward.computing;
    time.loss = loss.computing;
    time.recomputation = again.computing;
    time.backward = backward.computing;
    time.tensor_forward = forward.tensor;
    time.tensor_loss = loss.tensor;
    time.tensor_recomputation = again.tensor;
    time.tensor_backward = backward.tensor;
    time.context_forward = forward.context;
    time.context_backward = again.context + backward.context;
    return time;
}

double context_fill(const config::ModelDescription& model, std::int64_t ranks, std::int64_t micro_batches, bool in_turn,
                    const std::function<double(std::int64_t number)>& seconds) {
    if (ranks == 1) return 0;
    double fill = 0, slowest = 0;
    bool meet = in_turn;
    for (std::int64_t number = 0; number < model.layers; ++number) {
        if (model::mixer_type(model.mixer(number)).sequence_division() == model::SequenceDivision::chain) {
            slowest = std::max(slowest, seconds(number));
        } else {
            fill += slowest;
            slowest = 0;
            meet = true;
        }
    }
    return static_cast<double>((ranks - 1) * (meet ? micro_batches : 1)) * (fill + slowest);
}

}  // namespace lockstep::cost
