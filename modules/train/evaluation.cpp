#include "train/evaluation.hpp"

#include <algorithm>
#include <numbers>

#include "base/error.hpp"
#include "base/plural.hpp"

namespace lockstep::train {

Evaluation evaluate(kernels::Backend& backend, const data::Dataset& data, std::int64_t windows,
                    const EvaluationShare& share, Tensor sum, const EvaluateBatch& evaluate_batch,
                    cluster::HostGroup& group, ProgressLine& progress) {
    const std::int64_t all = windows > 0 ? std::min(windows, data.windows()) : data.windows();
    const std::int64_t first = share.replicas.first(all), last = first + share.replicas.count(all);
    const std::int64_t most = share.equal_passes ? (all - 1) / share.replicas.size + 1 : last - first;
    std::vector<double> sums = {0, 0};  // loss, tokens
    backend.fill(sum, 0);
    for (std::int64_t window = first; window < first + most; window += share.micro) {
        progress.show(window - first, most);
        const std::int64_t real = std::clamp<std::int64_t>(last - window, 0, share.micro);
        for (std::int64_t i = 0; share.counts_tokens && i < real; ++i)
            sums[1] += static_cast<double>(data.counted_tokens(window + i));
        evaluate_batch([&](const HostBatch& batch) {
            for (std::int64_t i = 0; i < share.micro; ++i) {
                // A short last micro-batch is padded with a repeated window whose targets are ignored.
                fetch_sample(data, i < real ? window + i : std::min(window, all - 1), share.length, i, batch);
                if (i >= real && batch.targets) std::fill_n(batch.targets + i * share.length, share.length, -1);
            }
        });
    }
    backend.download(sums.data(), sum);
    if (!share.counts_losses) sums[0] = 0;
    group.all_reduce(sums, cluster::Reduce::sum);
    if (sums[1] == 0)
        throw usage_error(
            "every document in the {} window{} to evaluate is a single token, so there is nothing to predict", all,
            plural(all));
    Evaluation evaluation{sums[0] / sums[1], static_cast<std::int64_t>(sums[1])};
    if (data.bytes_per_token() > 0)
        evaluation.bits_per_byte = evaluation.loss / std::numbers::ln2 / data.bytes_per_token();
    return evaluation;
}

Evaluation evaluate(kernels::Backend& backend, model::Stage& stage, BatchTensors& batch, const data::Dataset& data,
                    std::int64_t windows, cluster::HostGroup& group, ProgressLine& progress,
                    LossesByPosition* by_position) {
    EvaluationShare share;
    share.micro = stage.shape().batch;
    share.length = stage.shape().length;
    std::vector<float> losses;
    if (by_position) {
        losses.resize(static_cast<std::size_t>(stage.shape().rows()));
        by_position->sums.assign(static_cast<std::size_t>(share.length), 0);
        by_position->targets = by_position->sums;
    }
    share.replicas = {group.rank(), group.size()};
    stage.set_timed(false);
    const auto evaluate_batch = [&](const LoadWindows& load) {
        load(batch.host());
        batch.upload(backend);
        stage.set_documents(0, batch.documents, batch.places);
        stage.forward(0, batch.ids);
        stage.loss(0, batch.targets, 0, batch.losses);
        backend.sum(batch.sum, batch.losses, kernels::Accumulate::yes);
        if (!by_position) return;
        backend.download(losses.data(), batch.losses);
        for (std::size_t i = 0; i < losses.size(); ++i) {  // ignored targets lose 0
            by_position->sums[i % by_position->sums.size()] += static_cast<double>(losses[i]);
            by_position->targets[i % by_position->sums.size()] += batch.host_targets[i] < 0 ? 0 : 1;
        }
    };
    const Evaluation evaluation = evaluate(backend, data, windows, share, batch.sum, evaluate_batch, group, progress);
    if (!by_position) return evaluation;
    group.all_reduce(by_position->sums, cluster::Reduce::sum);
    group.all_reduce(by_position->targets, cluster::Reduce::sum);
    return evaluation;
}

}  // namespace lockstep::train
