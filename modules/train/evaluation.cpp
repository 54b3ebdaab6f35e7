#include "train/evaluation.hpp"

#include <algorithm>
#include <numbers>

namespace lockstep::train {

BatchTensors::BatchTensors(Device device, const model::PassShape& shape) {
    memory = planned(device, "batch", [&](Arena& arena) {
        ids = arena.allocate(Type::int32, {shape.rows()});
        targets = arena.allocate(Type::int32, {shape.rows()});
        losses = arena.allocate(Type::fp32, {shape.rows()});
        sum = arena.allocate(Type::fp64, {1});
    });
    host_ids.resize(static_cast<std::size_t>(shape.rows()));
    host_targets.resize(static_cast<std::size_t>(shape.rows()));
}

void BatchTensors::upload(kernels::Backend& backend) {
    backend.upload(ids, host_ids.data());
    backend.upload(targets, host_targets.data());
}

Evaluation evaluate(kernels::Backend& backend, const data::Dataset& data, std::int64_t windows,
                    const EvaluationShare& share, Tensor sum, const EvaluateBatch& evaluate_batch,
                    cluster::HostGroup& group, ProgressLine& progress) {
    const std::int64_t all = windows > 0 ? std::min(windows, data.windows()) : data.windows();
    const std::int64_t first = share.replicas.first(all), last = first + share.replicas.count(all);
    std::vector<double> sums = {0, 0};  // loss, tokens
    backend.fill(sum, 0);
    for (std::int64_t window = first; window < last; window += share.micro) {
        progress.show(window - first, last - first);
        const std::int64_t real = std::min(share.micro, last - window);
        if (share.counts_tokens) sums[1] += static_cast<double>(real * share.length);
        evaluate_batch([&](std::int32_t* ids, std::int32_t* targets) {
            for (std::int64_t i = 0; i < share.micro; ++i) {
                // A short last micro-batch is padded with a repeated window whose targets are ignored.
                data.fetch(i < real ? window + i : window, ids + i * share.length, targets + i * share.length);
                if (i >= real) std::fill_n(targets + i * share.length, share.length, -1);
            }
        });
    }
    backend.download(sums.data(), sum);
    if (!share.counts_losses) sums[0] = 0;
    group.all_reduce(sums, cluster::Reduce::sum);
    Evaluation evaluation{sums[1] > 0 ? sums[0] / sums[1] : 0, static_cast<std::int64_t>(sums[1])};
    if (data.bytes_per_token() > 0)
        evaluation.bits_per_byte = evaluation.loss / std::numbers::ln2 / data.bytes_per_token();
    return evaluation;
}

Evaluation evaluate(kernels::Backend& backend, model::Stage& stage, BatchTensors& batch, const data::Dataset& data,
                    std::int64_t windows, cluster::HostGroup& group, ProgressLine& progress,
                    std::vector<double>* by_position) {
    EvaluationShare share;
    share.micro = stage.shape().batch;
    share.length = stage.shape().length;
    std::vector<float> losses;
    if (by_position) {
        losses.resize(static_cast<std::size_t>(stage.shape().rows()));
        by_position->assign(static_cast<std::size_t>(share.length), 0);
    }
    share.replicas = {group.rank(), group.size()};
    stage.set_timed(false);
    const auto evaluate_batch = [&](const LoadWindows& load) {
        load(batch.host_ids.data(), batch.host_targets.data());
        batch.upload(backend);
        stage.forward(0, batch.ids);
        stage.loss(0, batch.targets, 0, batch.losses);
        backend.sum(batch.sum, batch.losses, kernels::Accumulate::yes);
        if (!by_position) return;
        backend.download(losses.data(), batch.losses);
        for (std::size_t i = 0; i < losses.size(); ++i)  // ignored targets lose 0
            (*by_position)[i % by_position->size()] += static_cast<double>(losses[i]);
    };
    const Evaluation evaluation = evaluate(backend, data, windows, share, batch.sum, evaluate_batch, group, progress);
    if (!by_position) return evaluation;
    group.all_reduce(*by_position, cluster::Reduce::sum);
    const auto counted = static_cast<double>(evaluation.tokens / share.length);
    for (double& loss : *by_position) loss /= counted;
    return evaluation;
}

}  // namespace lockstep::train
