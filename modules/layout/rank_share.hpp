// What one rank has of a run: its pieces of the model, its share of a batch, how its gradients are reduced.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/process_grid.hpp"
#include "config/run_description.hpp"
#include "device/memory.hpp"
#include "layout/batch_plan.hpp"
#include "layout/gradient_plan.hpp"
#include "model/parameter_description.hpp"

namespace lockstep::layout {

Type compute_type(config::Precision precision);

// What divides the batch, and how many of the lanes a replica has (1 without lanes).
BatchParts parts_of_batch(const config::RunDescription& description, const config::Grid& grid);
std::int64_t lanes_of_replica(const config::RunDescription& description, const config::Grid& grid);

// Sequences of a forward pass: batch.micro, or one chosen for the kind of device; and how many such passes a step has.
// Usage error where the batch cannot be divided so.
struct BatchShare {
    std::int64_t micro = 1;
    std::int64_t micro_batches = 1;         // of a step with batch.global
    std::int64_t fewest_micro_batches = 1;  // of a step with the first batch of a ramp
};
BatchShare share_of_batch(const config::RunDescription& description, const config::Grid& grid, DeviceKind device);

// The pieces of the model on a stage of the pipeline, in their order.
std::vector<model::StageRange> share_of_model(const config::RunDescription& description, const config::Grid& grid,
                                              std::int64_t stage);

// Micro-batches that a rank along a divided sequence begins earlier than its pipeline needs: one, so that the ranks of
// a chain need not wait for each other between micro-batches. None on the last rank, nor where layers exchange messages
// among all ranks: these do the same passes in the same order; nor with lanes: the head's gradients, which its forward
// pass computes, would be added to those of the lane before, or where replicas divide gradients, of the micro-batch.
std::int64_t begun_ahead(const config::RunDescription& description, bool last_along_sequence);

// Of each of them: how many sets of activations it keeps, one for each micro-batch that is under way at one time.
std::vector<int> slots_of_stage(const config::RunDescription& description, const config::Grid& grid,
                                const cluster::GridPlace& place, std::int64_t micro_batches);

// What its ranks send beside collectives and messages between neighbours.
cluster::MessagesUsed messages_used(const config::RunDescription& description);

// Whether replicas divide the optimizer (ZeRO stage 1), gradients too (stage 2), and parameters too (stage 3).
bool divides_optimizer(const config::RunDescription& description, const config::Grid& grid);
bool divides_gradients(const config::RunDescription& description, const config::Grid& grid);
bool divides_parameters(const config::RunDescription& description, const config::Grid& grid);
// What a replica has, by the plan of its gradients.
model::Division division_of(const config::RunDescription& description, const config::Grid& grid,
                            const GradientPlan& plan, std::int64_t replica);
// Values, and with them the update, go to host memory (parallel.offload). What is not divided is cut between
// parameters, so that copies and updates of pieces overlap.
void offload(model::Division& division, const Device& host, const model::ParameterLayout& layout);

// Of the replicas of a stage and tensor rank, the one that updates most, or with lanes keeps most sums, and the largest
// share of what they update.
struct LargestShare {
    cluster::GridPlace place;
    double share = 1;
};
LargestShare largest_share(const config::RunDescription& description, const config::Grid& grid,
                           cluster::GridPlace place);

GradientPlan plan_gradients(const config::RunDescription& description, const config::Grid& grid,
                            const cluster::GridPlace& place, const model::ParameterLayout& layout,
                            const std::vector<model::StageRange>& chunks);

}  // namespace lockstep::layout
