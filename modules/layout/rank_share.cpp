#include "layout/rank_share.hpp"

#include <algorithm>

#include "layout/batch_plan.hpp"
#include "layout/lane_tree.hpp"
#include "layout/pipeline_schedule.hpp"
#include "layout/run_layout.hpp"
#include "model/mixers/registry.hpp"
#include "optim/gradient_norm.hpp"
#include "optim/registry.hpp"

namespace lockstep::layout {
namespace {

// Tokens of a forward pass where the size of a micro-batch is chosen.
constexpr std::int64_t tokens_on_cpu = 8192, tokens_on_gpu = 32768;
constexpr std::int64_t rounds = 4;  // of micro-batches through a pipeline, so that it stands idle for a fifth at most

}  // namespace

Type compute_type(config::Precision precision) {
    switch (precision) {
        case config::Precision::bf16:
            return Type::bf16;
        case config::Precision::fp16:
            return Type::fp16;
        case config::Precision::fp32:
            break;
    }
    return Type::fp32;
}

BatchParts parts_of_batch(const config::RunDescription& description, const config::Grid& grid) {
    const std::int64_t lanes = description.parallel.lanes;
    return lanes > 0 ? BatchParts{lanes, true} : BatchParts{grid.data, false};
}

std::int64_t lanes_of_replica(const config::RunDescription& description, const config::Grid& grid) {
    return std::max<std::int64_t>(1, description.parallel.lanes / grid.data);
}

BatchShare share_of_batch(const config::RunDescription& description, const config::Grid& grid, DeviceKind device) {
    const config::BatchSection& batch = description.batch;
    const std::int64_t tokens = device == DeviceKind::cuda ? tokens_on_gpu : tokens_on_cpu;
    BatchShare share;
    // With lanes, the same for any number of replicas.
    share.micro = micro_batch_size(batch, parts_of_batch(description, grid),
                                   description.parallel.interleave > 1 ? grid.pipeline : 1, tokens * grid.context,
                                   grid.pipeline > 1 ? rounds * grid.pipeline : 1);
    share.micro_batches = batch.global / grid.data / share.micro;
    share.fewest_micro_batches = batch_sizes(batch).front() / grid.data / share.micro;
    return share;
}

std::vector<model::StageRange> share_of_model(const config::RunDescription& description, const config::Grid& grid,
                                              std::int64_t stage) {
    const std::int64_t chunks = description.parallel.interleave;
    const auto pieces = cut_model(description.model, description.batch.length, grid.pipeline * chunks);
    const PipelineShape shape{grid.pipeline, chunks, 1};
    std::vector<model::StageRange> share;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
        share.push_back(pieces[static_cast<std::size_t>(piece_of(shape, stage, chunk))]);
    return share;
}

std::int64_t begun_ahead(const config::RunDescription& description, bool last_along_sequence) {
    const bool in_turn = description.parallel.lanes > 0 || description.parallel.zero > 1 ||
                         model::exchanges_along_sequences(description.model);
    return last_along_sequence || in_turn ? 0 : 1;
}

std::vector<int> slots_of_stage(const config::RunDescription& description, const config::Grid& grid,
                                const cluster::GridPlace& place, std::int64_t micro_batches) {
    // A pipeline that is full keeps no more under way however many follow.
    const std::int64_t chunks = description.parallel.interleave, most = 4 * grid.pipeline;
    const auto steps = pipeline_schedule({grid.pipeline, chunks, std::min(micro_batches, most)}, place.pipeline,
                                         begun_ahead(description, place.context + 1 == grid.context));
    std::vector<int> slots;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) slots.push_back(slots_of(steps, chunk));
    return slots;
}

cluster::MessagesUsed messages_used(const config::RunDescription& description) {
    cluster::MessagesUsed used;
    used.ring = description.parallel.interleave > 1;
    used.exchange = model::exchanges_along_sequences(description.model);
    used.replicas = description.parallel.lanes > 0;
    used.gathers = description.parallel.zero > 2;
    return used;
}

bool divides_optimizer(const config::RunDescription& description, const config::Grid& grid) {
    return description.parallel.zero > 0 && grid.replicas() > 1;
}

bool divides_gradients(const config::RunDescription& description, const config::Grid& grid) {
    return description.parallel.zero > 1 && grid.replicas() > 1;
}

bool divides_parameters(const config::RunDescription& description, const config::Grid& grid) {
    return description.parallel.zero > 2 && grid.replicas() > 1;
}

model::Division division_of(const config::RunDescription& description, const config::Grid& grid,
                            const GradientPlan& plan, std::int64_t replica) {
    const bool values = divides_parameters(description, grid);
    if (!divides_optimizer(description, grid) || (plan.buckets.empty() && !values)) return {};
    model::Division division;
    division.gradients = divides_gradients(description, grid);
    division.values = values;
    division.owned = plan.owned(replica);
    if (division.owned.empty()) division.owned = {{0, 0}};  // nothing is trained here
    for (const Bucket& bucket : plan.buckets) division.windows.push_back({bucket.range, bucket.buffer});
    if (!values) return division;
    for (const Bucket& bucket : plan.frozen) {
        division.frozen_windows.push_back({bucket.range, bucket.buffer});
        division.frozen_owned.push_back(bucket.owned(replica));
    }
    return division;
}

void offload(model::Division& division, const Device& host, const model::ParameterLayout& layout) {
    division.offloaded = host;
    if (!division.owned.empty()) return;
    constexpr std::int64_t least = std::int64_t{1} << 23;  // elements: far more than what begins a copy takes
    std::int64_t first = 0;
    for (std::size_t i = 0; i < layout.size() && layout.offset(i) < layout.trained_total(); ++i) {
        const std::int64_t end =
            i + 1 < layout.size() ? std::min(layout.offset(i + 1), layout.trained_total()) : layout.trained_total();
        if (end - first < least && end < layout.trained_total()) continue;
        division.owned.push_back({first, end - first});
        first = end;
    }
    if (division.owned.empty()) division.owned = {{0, 0}};
}

LargestShare largest_share(const config::RunDescription& description, const config::Grid& grid,
                           cluster::GridPlace place) {
    place.data = grid.data - 1;  // has what is left over where parts are even
    place.context = grid.context - 1;
    LargestShare largest{place, 1};
    const std::int64_t lanes = description.parallel.lanes;
    const bool divided = divides_optimizer(description, grid);
    if (!divided && lanes == 0) return largest;
    const auto chunks = share_of_model(description, grid, place.pipeline);
    const model::ParameterLayout layout(model::describe_parameters(description.model, chunks),
                                        {place.tensor, grid.tensor});
    const GradientPlan plan = plan_gradients(description, grid, place, layout, chunks);
    const auto owned_by = [&](std::int64_t replica) {
        std::int64_t count = 0;
        for (const model::Piece& piece : plan.owned(replica)) count += piece.count;
        return count;
    };
    // Elements kept: of the optimizer's state about as many as two moments and a master, and sums that wait.
    constexpr std::int64_t states = 3;
    const auto kept_by = [&](const cluster::GridPlace& of, std::int64_t owned) {
        std::int64_t waiting = 0;
        if (lanes > 0)
            waiting =
                static_cast<std::int64_t>(LaneTree(lanes, grid.data).most_waiting(of.data)) * layout.trained_total();
        return waiting + (divided ? states * owned : 0);
    };
    std::int64_t most_owned = owned_by(place.replica(grid)), most_kept = kept_by(place, most_owned);
    for (std::int64_t data = 0; data < grid.data; ++data)
        for (std::int64_t context = 0; context < grid.context; ++context) {
            cluster::GridPlace other = place;
            other.data = data;
            other.context = context;
            const std::int64_t owned = owned_by(other.replica(grid)), kept = kept_by(other, owned);
            most_owned = std::max(most_owned, owned);
            if (kept <= most_kept) continue;
            most_kept = kept;
            largest.place = other;
        }
    if (divided)
        largest.share =
            static_cast<double>(most_owned) / static_cast<double>(std::max<std::int64_t>(1, layout.trained_total()));
    return largest;
}

GradientPlan plan_gradients(const config::RunDescription& description, const config::Grid& grid,
                            const cluster::GridPlace& place, const model::ParameterLayout& layout,
                            const std::vector<model::StageRange>& chunks) {
    const bool at_an_end = place.pipeline == 0 || place.pipeline + 1 == grid.pipeline;
    GradientPlanOptions options;
    options.bucket_bytes = description.parallel.bucket_bytes;
    options.replicas = grid.replicas();
    options.each_block = divides_gradients(description, grid);
    options.tied_apart =
        description.model.tied_head && at_an_end && (grid.pipeline > 1 || divides_gradients(description, grid));
    options.shared_layers = grid.tensor > 1;
    options.divided_rows = description.parallel.sequence;
    options.optimizer = &optim::optimizer_of(description.optimizer);
    if (description.parallel.lanes > 0) options.block = optim::GradientNorm::block;
    return plan_gradients(layout, chunks, options);
}

}  // namespace lockstep::layout
