#include "train/evaluation.hpp"

#include <algorithm>

namespace lockstep::train {

BatchTensors::BatchTensors(Device device, const model::PassShape& shape) {
    const auto bytes = static_cast<std::size_t>(shape.rows()) * 4 + 64;
    memory = Arena(device, 3 * bytes, "batch");
    ids = memory.allocate(Type::int32, {shape.rows()});
    targets = memory.allocate(Type::int32, {shape.rows()});
    losses = memory.allocate(Type::fp32, {shape.rows()});
}

Evaluation evaluate(kernels::Backend& backend, model::Stage& stage, BatchTensors& batch, const data::Dataset& data,
                    std::int64_t windows, cluster::Communicator& communicator) {
    const model::PassShape& shape = stage.shape();
    const std::int64_t all = windows > 0 ? std::min(windows, data.windows()) : data.windows();
    const std::int64_t first = all * communicator.rank() / communicator.size();
    const std::int64_t last = all * (communicator.rank() + 1) / communicator.size();
    std::vector<double> sums = {0, 0};  // loss, tokens
    stage.set_timed(false);
    for (std::int64_t window = first; window < last; window += shape.batch) {
        for (std::int64_t i = 0; i < shape.batch; ++i) {
            // The last micro-batch may be short: its empty places repeat a window whose targets are ignored.
            const bool real = window + i < last;
            auto* ids = batch.ids.as<std::int32_t>() + i * shape.length;
            auto* targets = batch.targets.as<std::int32_t>() + i * shape.length;
            data.fetch(real ? window + i : window, ids, targets);
            if (!real) std::fill_n(targets, shape.length, -1);
            if (real) sums[1] += static_cast<double>(shape.length);
        }
        stage.forward(0, batch.ids);
        stage.loss(0, batch.targets, 0, batch.losses);
        sums[0] += backend.sum(batch.losses);
    }
    stage.set_timed(true);
    communicator.all_reduce(sums, cluster::Reduce::sum);
    return {sums[1] > 0 ? sums[0] / sums[1] : 0, static_cast<std::int64_t>(sums[1])};
}

}  // namespace lockstep::train
