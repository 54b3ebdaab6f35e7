#include "layout/pipeline_schedule.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"

namespace lockstep::layout {
namespace {

// The `number`-th pass of a stage: p micro-batches through the first chunk, the same through the next, and so on.
PipelineStep pass(const PipelineShape& shape, std::int64_t number, bool forward) {
    const std::int64_t round = shape.stages * shape.chunks, in_round = number % round;
    PipelineStep step;
    step.forward = forward;
    step.chunk = in_round / shape.stages;
    if (!forward) step.chunk = shape.chunks - 1 - step.chunk;
    step.micro_batch = number / round * shape.stages + in_round % shape.stages;
    return step;
}

void assign_slots(std::vector<PipelineStep>& steps, std::int64_t chunks) {
    std::vector<std::set<int>> free(static_cast<std::size_t>(chunks));
    std::vector<std::map<std::int64_t, int>> held(free.size());  // the slot of each micro-batch under way
    std::vector<int> made(free.size(), 0);
    for (PipelineStep& step : steps) {
        const auto chunk = static_cast<std::size_t>(step.chunk);
        if (step.forward) {
            if (free[chunk].empty()) free[chunk].insert(made[chunk]++);
            step.slot = *free[chunk].begin();
            free[chunk].erase(free[chunk].begin());
            held[chunk][step.micro_batch] = step.slot;
            continue;
        }
        step.slot = held[chunk].at(step.micro_batch);
        held[chunk].erase(step.micro_batch);
        free[chunk].insert(step.slot);
    }
}

}  // namespace

std::vector<PipelineStep> pipeline_schedule(const PipelineShape& shape, std::int64_t stage, std::int64_t ahead) {
    LOCKSTEP_ASSERT(stage >= 0 && stage < shape.stages && shape.chunks > 0);
    LOCKSTEP_ASSERT(shape.chunks == 1 || shape.micro_batches % shape.stages == 0);
    const std::int64_t all = shape.micro_batches * shape.chunks;
    const std::int64_t behind = shape.stages - 1 - stage;  // stages
    const std::int64_t needed = shape.chunks == 1 ? behind : 2 * behind + (shape.chunks - 1) * shape.stages;
    const std::int64_t before = std::min(all, needed + ahead);  // forward passes before the first backward
    // With one chunk micro-batches pass one by one, whatever their number.
    const PipelineShape order = shape.chunks == 1 ? PipelineShape{1, 1, shape.micro_batches} : shape;
    std::vector<PipelineStep> steps;
    for (std::int64_t number = 0; number < before; ++number) steps.push_back(pass(order, number, true));
    for (std::int64_t number = 0; number < all; ++number) {
        if (before + number < all) steps.push_back(pass(order, before + number, true));
        steps.push_back(pass(order, number, false));
    }
    assign_slots(steps, shape.chunks);
    return steps;
}

int slots_of(const std::vector<PipelineStep>& steps, std::int64_t chunk) {
    int slots = 0;
    for (const PipelineStep& step : steps)
        if (step.chunk == chunk) slots = std::max(slots, step.slot + 1);
    return slots;
}

}  // namespace lockstep::layout
