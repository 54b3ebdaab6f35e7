#include "train/evaluation.hpp"

#include <algorithm>

namespace lockstep::train {

BatchTensors::BatchTensors(Device device, const model::PassShape& shape) {
    const auto plan = [&](Arena& arena) {
        ids = arena.allocate(Type::int32, {shape.rows()});
        targets = arena.allocate(Type::int32, {shape.rows()});
        losses = arena.allocate(Type::fp32, {shape.rows()});
        sum = arena.allocate(Type::fp64, {1});
    };
    Arena measure(device);
    plan(measure);
    memory = Arena(device, measure.peak(), "batch");
    plan(memory);
    host_ids.resize(static_cast<std::size_t>(shape.rows()));
    host_targets.resize(static_cast<std::size_t>(shape.rows()));
}

void BatchTensors::upload(kernels::Backend& backend) {
    backend.upload(ids, host_ids.data());
    backend.upload(targets, host_targets.data());
}

Evaluation evaluate(kernels::Backend& backend, model::Stage& stage, BatchTensors& batch, const data::Dataset& data,
                    std::int64_t windows, cluster::Communicator& communicator) {
    const model::PassShape& shape = stage.shape();
    const std::int64_t all = windows > 0 ? std::min(windows, data.windows()) : data.windows();
    const std::int64_t first = all * communicator.rank() / communicator.size();
    const std::int64_t last = all * (communicator.rank() + 1) / communicator.size();
    std::vector<double> sums = {0, 0};  // loss, tokens
    stage.set_timed(false);
    backend.fill(batch.sum, 0);
    for (std::int64_t window = first; window < last; window += shape.batch) {
        for (std::int64_t i = 0; i < shape.batch; ++i) {
            // The last micro-batch may be short: its empty places repeat a window whose targets are ignored.
            const bool real = window + i < last;
            auto* ids = batch.host_ids.data() + i * shape.length;
            auto* targets = batch.host_targets.data() + i * shape.length;
            data.fetch(real ? window + i : window, ids, targets);
            if (!real) std::fill_n(targets, shape.length, -1);
            if (real) sums[1] += static_cast<double>(shape.length);
        }
        batch.upload(backend);
        stage.forward(0, batch.ids);
        stage.loss(0, batch.targets, 0, batch.losses);
        backend.sum(batch.sum, batch.losses, kernels::Accumulate::yes);
    }
    backend.download(sums.data(), batch.sum);
    stage.set_timed(true);
    communicator.all_reduce(sums, cluster::Reduce::sum);
    return {sums[1] > 0 ? sums[0] / sums[1] : 0, static_cast<std::int64_t>(sums[1])};
}

}  // namespace lockstep::train
