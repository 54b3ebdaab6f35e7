#include "cost/prices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/format.hpp"
#include "cost/described_program.hpp"
#include "cost/memory_model.hpp"
#include "cost/own_prices.hpp"
#include "cost/own_time.hpp"
#include "cost/time_model.hpp"
#include "layout/memory_plan.hpp"
#include "layout/rank_share.hpp"
#include "layout/run_layout.hpp"
#include "model/frozen.hpp"

namespace lockstep::cost {
namespace {

std::int64_t ranks_on_node(const config::Machine& machine, const Job& job, const Layout& layout) {
    return std::min(layout.ranks(), ranks_per_node(machine, job));
}

// As the trainer runs it on this machine: a processor without instructions for bf16 computes in fp32.
config::RunDescription run_of(const config::Machine& machine, const Job& job, const Layout& layout) {
    config::RunDescription run = laid_out(job, layout);
    run.precision.compute = precision_on(machine, run.precision.compute);
    return run;
}

// How many blocks of each kind and window each piece of a stage has.
using PieceKinds = std::map<std::pair<config::BlockKind, std::int64_t>, std::int64_t>;
std::vector<PieceKinds> blocks_by_kind(const config::RunDescription& run, const config::Grid& grid,
                                       std::int64_t stage) {
    std::vector<PieceKinds> pieces;
    for (const model::StageRange& piece : layout::share_of_model(run, grid, stage)) {
        pieces.emplace_back();
        for (std::int64_t block = piece.first_block; block < piece.last_block; ++block)
            ++pieces.back()[{config::kind_of_block(run.model, block), run.model.layer(block).window}];
    }
    return pieces;
}

// Of the stage that needs most: the first has most micro-batches under way, the last the head.
void price_own_memory(Price& price, const config::Machine& machine, const Job& job, const Layout& layout) {
    const config::RunDescription run = run_of(machine, job, layout);
    const config::Grid& grid = layout;
    const bool gpu = machine.device.kind == config::MachineKind::gpu;
    const std::int64_t on_node = ranks_on_node(machine, job, layout);
    const int threads = static_cast<int>(std::max<std::int64_t>(
        1, static_cast<std::int64_t>(machine.device.per_node) / std::max<std::int64_t>(1, on_node)));
    if (!gpu) price.room /= static_cast<double>(on_node);
    const bool alike = model::blocks_are_alike(run.model);
    std::set<std::vector<PieceKinds>> seen;
    for (std::int64_t stage = 0; stage < grid.pipeline; ++stage) {
        // Those between hold less and less, where all blocks are alike; of others, where a stage before has as many
        // of each kind.
        const bool between = stage > 0 && stage + 1 < grid.pipeline;
        if (alike && between) continue;
        if (!alike && !model::freezes(run.model) && !seen.insert(blocks_by_kind(run, grid, stage)).second && between)
            continue;
        cluster::GridPlace place;
        place.pipeline = stage;
        place = layout::largest_share(run, grid, place).place;
        const layout::MemoryPlan plan = layout::plan_memory(run, grid, place, gpu ? DeviceKind::cuda : DeviceKind::cpu);
        const double bytes =
            gpu ? static_cast<double>(plan.planned() + plan.tables + plan.kernels) + machine.memory.fixed_gb * 1e9
                : static_cast<double>(layout::process_bytes(run, grid, place, {}, threads));
        if (bytes <= price.memory) continue;
        price.memory = bytes;
        if (bytes > price.room)
            price.why_not = fmt::format("{} needed of {}: {}", human_bytes(bytes), human_bytes(price.room),
                                        layout::memory_advice(plan, run));
    }
}

}  // namespace

std::int64_t ranks_per_node(const config::Machine& machine, const Job& job) {
    return job.ranks_per_node > 0 ? job.ranks_per_node : static_cast<std::int64_t>(machine.device.per_node);
}

Price price_time(const config::Machine& machine, const Job& job, const Layout& layout) {
    Price price;
    if (!job.own_program()) {
        for (const ModelLoad& load : job.models)
            if (price.why_not.empty()) price.why_not = why_unknown(job, load);
        if (!price.why_not.empty()) return price;
        price.time = described_step_time(machine, job, layout, memory_use(machine, job, layout));
        return price;
    }
    const config::RunDescription run = run_of(machine, job, layout);
    price.why_not = layout::why_impossible(run, layout);
    if (!price.why_not.empty()) return price;
    if (machine.rates.measured())
        price.time = own_step_time(run, layout, ranks_on_node(machine, job, layout), machine);
    else
        price.time = described_step_time(machine, job, layout, memory_use(machine, job, layout));
    return price;
}

void price_memory(Price& price, const config::Machine& machine, const Job& job, const Layout& layout,
                  double memory_limit) {
    price.room = memory_limit > 0 ? std::min(memory_limit, machine.memory_bytes()) : machine.memory_bytes();
    if (job.own_program()) return price_own_memory(price, machine, job, layout);
    const MemoryUse use = memory_use(machine, job, layout);
    price.memory = use.total();
    if (price.memory > price.room) price.why_not = why_too_large(machine, layout, use, memory_limit);
}

}  // namespace lockstep::cost
