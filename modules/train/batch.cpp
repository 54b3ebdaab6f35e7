#include "train/batch.hpp"

namespace lockstep::train {

void fetch_sample(const data::Dataset& data, std::int64_t number, std::int64_t length, std::int64_t row,
                  const HostBatch& batch) {
    const std::int64_t at = row * length;
    if (batch.ids) data.fetch(number, batch.ids + at, batch.targets + at);
    if (batch.starts) data.fetch_documents(number, batch.starts + at, batch.ends + at);
    if (batch.samples) batch.samples[row] = number;
}

BatchTensors::BatchTensors(Device device, const model::PassShape& shape, const DocumentBatches& apart,
                           const std::optional<RandomStream>& dropout)
    : length_(shape.length), dropout_(dropout) {
    memory = planned(device, "batch", [&](Arena& arena) {
        ids = arena.allocate(Type::int32, {shape.rows()});
        targets = arena.allocate(Type::int32, {shape.rows()});
        losses = arena.allocate(Type::fp32, {shape.rows()});
        sum = arena.allocate(Type::fp64, {1});
        if (dropout) dropout_tokens = arena.allocate(Type::int32, {shape.rows(), 2});
        if (apart.positions == 0) return;
        documents.starts = arena.allocate(Type::int32, {shape.batch, apart.positions});
        documents.ends = arena.allocate(Type::int32, {shape.batch, apart.positions});
        if (apart.restarts_positions) places = arena.allocate(Type::int32, {shape.rows()});
    });
    documents.first_position = apart.first_position;
    host_ids.resize(static_cast<std::size_t>(shape.rows()));
    host_targets.resize(host_ids.size());
    host_starts.resize(static_cast<std::size_t>(shape.batch * apart.positions));
    host_ends.resize(host_starts.size());
    if (!places.empty()) host_places_.resize(host_ids.size());
    if (!dropout) return;
    host_samples_.resize(static_cast<std::size_t>(shape.batch));
    host_dropout_tokens_.resize(2 * host_ids.size());
}

HostBatch BatchTensors::host() {
    HostBatch batch{host_ids.data(), host_targets.data()};
    if (!documents.joined()) {
        batch.starts = host_starts.data();
        batch.ends = host_ends.data();
    }
    if (dropout_) batch.samples = host_samples_.data();
    return batch;
}

void BatchTensors::upload(kernels::Backend& backend) {
    backend.upload(ids, host_ids.data());
    backend.upload(targets, host_targets.data());
    if (dropout_) {
        for (std::size_t row = 0; row < host_ids.size(); ++row) {
            const auto length = static_cast<std::size_t>(length_);
            const auto sample = static_cast<std::uint64_t>(host_samples_[row / length]);
            const std::uint64_t position = static_cast<std::uint64_t>(documents.first_position) + row % length;
            const std::uint64_t bits = dropout_->bits(sample << 32 | position);
            host_dropout_tokens_[2 * row] = static_cast<std::int32_t>(static_cast<std::uint32_t>(bits));
            host_dropout_tokens_[2 * row + 1] = static_cast<std::int32_t>(static_cast<std::uint32_t>(bits >> 32));
        }
        backend.upload(dropout_tokens, host_dropout_tokens_.data());
    }
    if (documents.joined()) return;
    backend.upload(documents.starts, host_starts.data());
    backend.upload(documents.ends, host_ends.data());
    if (places.empty()) return;
    const std::int64_t positions = documents.starts.size(1);
    for (std::int64_t row = 0; row < places.count(); ++row) {
        const std::int64_t position = documents.first_position + row % length_;
        const std::int32_t start = host_starts[static_cast<std::size_t>(row / length_ * positions + position)];
        host_places_[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(position) - start;
    }
    backend.upload(places, host_places_.data());
}

}  // namespace lockstep::train
