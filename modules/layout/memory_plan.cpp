#include "layout/memory_plan.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/format.hpp"
#include "base/plural.hpp"
#include "checkpoint/checkpoint.hpp"
#include "cluster/communicator.hpp"
#include "kernels/counting_backend.hpp"
#include "kernels/cpu/scratch_sizes.hpp"
#include "layout/lane_buffers.hpp"
#include "layout/rank_share.hpp"
#include "model/frozen.hpp"
#include "model/low_rank_update.hpp"
#include "model/mixers/registry.hpp"
#include "model/parameters.hpp"
#include "model/stage.hpp"
#include "optim/optimizer.hpp"
#include "optim/registry.hpp"

namespace lockstep::layout {
namespace {

const std::size_t at_start = process_memory().resident;

std::string bytes_text(std::size_t bytes) {
    return human_bytes(static_cast<double>(bytes));
}

struct StageBytes {
    std::size_t activations = 0, workspace = 0, tables = 0;
};

// A chunk's stages as planned with few of its blocks: each period of the layers adds as much as the one before.
// Not so where some parameters are frozen.
StageBytes bytes_of_chunk(kernels::Backend& backend, const config::ModelDescription& model, Type type,
                          const model::Part& part, model::StageOptions options) {
    const auto with_blocks = [&](std::int64_t count) {
        model::StageOptions some = options;
        some.range.last_block = some.range.first_block + count;
        model::ParameterSet parameters(
            backend.device(), model::ParameterLayout(model::describe_parameters(model, some.range), part), true, type);
        const model::Stage stage(backend, parameters, model, some);
        return StageBytes{stage.activation_bytes(), stage.workspace_bytes(), stage.table_bytes()};
    };
    const std::int64_t blocks = options.range.last_block - options.range.first_block;
    const std::int64_t period = model.period();
    if (model::freezes(model) || blocks < 2 * period) return with_blocks(blocks);
    const StageBytes one = with_blocks(period), two = with_blocks(2 * period);
    const std::int64_t rest = blocks % period;
    StageBytes bytes = rest == 0 ? one : with_blocks(period + rest);
    const auto others = static_cast<std::size_t>(blocks / period - 1);
    bytes.activations += others * (two.activations - one.activations);
    bytes.tables += others * (two.tables - one.tables);
    return bytes;
}

bool has_head(const MemoryPlan& plan) {
    return !plan.chunks.empty() && plan.chunks.back().head;
}

// What kernels of the CPU grow on demand and keep.
std::size_t scratch_bytes(const config::RunDescription& description, const config::Grid& grid, const MemoryPlan& plan,
                          int threads) {
    const config::ModelDescription& model = description.model;
    const Type type = compute_type(description.precision.compute);
    const model::PassShape shape{plan.micro, description.batch.length / grid.context};
    std::int64_t row_sums = kernels::cpu::row_sums_scratch_floats(shape.rows(), 2 * model.width);
    std::int64_t of_mixers = 0;
    for (std::int64_t block = 0; block < model.period(); ++block) {
        const config::LayerShape layer = model.layer(block);
        if (model.qk_norm)
            row_sums = std::max(row_sums, kernels::cpu::row_sums_scratch_floats(
                                              shape.rows() * layer.heads / grid.tensor, layer.head_width));
        of_mixers = std::max(
            of_mixers,
            model::mixer_type(model.mixer(block)).scratch_floats(model, layer, grid.tensor, shape, type, threads));
    }
    const std::int64_t mlp = model.mlp_width / grid.tensor;
    std::int64_t of_products = kernels::cpu::linear_scratch_floats(shape.rows(), model.width, mlp, type);
    if (has_head(plan))
        of_products = std::max(of_products, kernels::cpu::linear_scratch_floats(shape.rows(), model.width,
                                                                                model.vocabulary / grid.tensor, type));
    return static_cast<std::size_t>(of_mixers + row_sums + of_products +
                                    (model.mlp == config::MlpKind::gelu
                                         ? kernels::cpu::gelu_product_scratch_floats(shape.rows(), mlp, type)
                                         : 0)) *
           sizeof(float);
}

// What MPICH was seen to touch of the buffers it allocates while gradients are reduced: half of what is reduced at one
// time where all ranks add up; where each part has an owner all of it, and twice as much on the group's first rank.
std::size_t resident_of_mpi(const config::RunDescription& description, const config::Grid& grid,
                            const cluster::GridPlace& place, const MemoryPlan& plan) {
    if (plan.communication == 0) return 0;
    if (!divides_optimizer(description, grid)) return plan.communication / 2;
    return place.replica(grid) == 0 ? plan.communication : plan.communication / 2;
}

// There is one stage only.
bool has_whole_model(const MemoryPlan& plan) {
    return has_head(plan) && plan.chunks.front().embedding;
}

// Whether a rank has, as fp32 in host memory, all that it writes of a checkpoint. Of other ranks a part may lie there
// too; their plan is that all is copied.
bool holds_its_share(const config::RunDescription& description, const config::Grid& grid, DeviceKind device) {
    if (device != DeviceKind::cpu || grid.tensor > 1 || grid.pipeline > 1 || divides_optimizer(description, grid))
        return false;
    return !model::freezes(description.model) || description.precision.compute == config::Precision::fp32;
}

}  // namespace

std::size_t bytes_at_start() {
    return at_start;
}

MemoryPlan plan_memory(const config::RunDescription& description, const config::Grid& grid,
                       const cluster::GridPlace& place, DeviceKind device) {
    const config::ModelDescription& model = description.model;
    const Type type = compute_type(description.precision.compute);
    kernels::CountingBackend backend(device);
    const model::Part part{place.tensor, grid.tensor};
    MemoryPlan plan;
    const BatchShare batch = share_of_batch(description, grid, device);
    plan.micro = batch.micro;
    plan.micro_batches = batch.micro_batches;
    plan.chunks = share_of_model(description, grid, place.pipeline);

    const model::ParameterLayout layout(model::describe_parameters(model, plan.chunks), part);
    const std::int64_t lanes = description.parallel.lanes;
    GradientPlan gradients;
    if (divides_optimizer(description, grid) || lanes > 0)
        gradients = plan_gradients(description, grid, place, layout, plan.chunks);
    model::Division division = division_of(description, grid, gradients, place.replica(grid));
    kernels::CountingBackend host(DeviceKind::cpu);
    if (device == DeviceKind::cuda && description.parallel.offload != config::Offload::none)
        offload(division, host.device(), layout);
    model::ParameterSet parameters(backend.device(), layout, true, type, std::move(division));
    plan.parameters = parameters.value_bytes();
    plan.gradients = parameters.gradient_bytes();
    if (lanes > 0)
        plan.lanes = LaneBuffers(backend.device(), gradients, LaneTree(lanes, grid.data), grid, place.replica(grid),
                                 layout.trained_total(), description.parallel.bucket_bytes)
                         .bytes();
    plan.gradients += plan.lanes;
    const optim::OptimizerType& optimizer = optim::optimizer_of(description.optimizer);
    const auto built = optimizer.make({backend, parameters, description.optimizer, {}, {}, nullptr, &host});
    plan.optimizer_state = built->bytes();
    plan.offloaded = parameters.host_bytes() + built->host_bytes();

    const model::TensorGroup group(part, description.parallel.sequence);
    const model::ContextChain chain(static_cast<int>(place.context), static_cast<int>(grid.context));
    const model::Neighbours neighbours{group, chain};
    const std::vector<int> slots = slots_of_stage(description, grid, place, batch.micro_batches);
    for (std::size_t chunk = 0; chunk < plan.chunks.size(); ++chunk) {
        model::StageOptions options;
        options.range = plan.chunks[chunk];
        options.shape = {batch.micro, description.batch.length / grid.context};
        options.slots = slots[chunk];
        options.recompute = description.parallel.recompute;
        options.neighbours = &neighbours;
        options.restarts_positions = description.restarts_positions();
        const StageBytes bytes = bytes_of_chunk(backend, model, type, part, options);
        plan.activations += bytes.activations;
        plan.workspace += bytes.workspace;
        plan.tables += bytes.tables;
        plan.under_way += slots[chunk];
        // Tokens, targets and losses, on the device and where the host makes them.
        const bool separate = description.data.separates_documents(), on_cpu = device == DeviceKind::cpu;
        const bool dropout = model.adapters.dropout > 0, kept = options.range.embedding || separate || dropout;
        const std::int64_t batches = kept ? slots[chunk] : options.range.head ? 1 : 0;
        std::int64_t integers = options.shape.rows() * (on_cpu ? 5 : 3);
        if (dropout) integers += (on_cpu ? 2 : 1) * 2 * options.shape.rows();
        // Where documents begin and end in whole sequences, and positions in them.
        if (separate) integers += (on_cpu ? 2 : 1) * 2 * batch.micro * description.batch.length;
        if (options.restarts_positions) integers += (on_cpu ? 2 : 1) * options.shape.rows();
        plan.tables += static_cast<std::size_t>(batches * integers) * sizeof(std::int32_t);
    }

    model::reserve_adapter_scratch(backend.device(), parameters, model,
                                   batch.micro * description.batch.length / grid.context);
    plan.workspace += parameters.adapter_scratch_bytes();

    const bool ends =
        grid.pipeline > 1 && model.tied_head && (plan.chunks.front().embedding || plan.chunks.back().head);
    if (device == DeviceKind::cpu && lanes == 0 && (grid.replicas() > 1 || ends)) {
        plan.communication = std::min(parameters.gradient_bytes(), cluster::most_reduced_at_once);
        if (divides_optimizer(description, grid)) plan.communication *= 2;
        if (divides_gradients(description, grid)) {  // one bucket at a time
            std::int64_t largest = 0;
            for (const Bucket& bucket : gradients.buckets) largest = std::max(largest, bucket.range.count);
            plan.communication = std::min(plan.communication, static_cast<std::size_t>(largest) * sizeof(float));
        }
    }
    // What a checkpoint holds, divided among all ranks.
    const auto share = static_cast<std::uint64_t>(optim::checkpoint_bytes(description) / grid.ranks());
    if (device == DeviceKind::cuda)
        for (std::int64_t block = 0; block < model.period(); ++block)
            plan.kernels =
                std::max(plan.kernels, model::mixer_type(model.mixer(block))
                                           .gpu_scratch_bytes(model, model.layer(block), grid.tensor,
                                                              {plan.micro, description.batch.length / grid.context},
                                                              compute_type(description.precision.compute)));
    plan.checkpoint = checkpoint::bytes_while_writing(share, holds_its_share(description, grid, device)
                                                                 ? checkpoint::Values::left_in_place
                                                                 : checkpoint::Values::copied);
    const config::CheckpointSection& checkpoint = description.checkpoint;
    if (checkpoint.writes_local())
        plan.local_checkpoint = (checkpoint.partner ? 2 : 1) * static_cast<std::size_t>(share);
    return plan;
}

std::size_t process_bytes(const config::RunDescription& description, const config::Grid& grid,
                          const cluster::GridPlace& place, const ProcessOverhead& overhead, int threads,
                          bool with_checkpoint) {
    const MemoryPlan plan = plan_memory(description, grid, place, DeviceKind::cpu);
    std::size_t bytes = plan.planned() + plan.tables + overhead.libraries + overhead.program + overhead.data +
                        scratch_bytes(description, grid, plan, threads) +
                        resident_of_mpi(description, grid, place, plan);
    if (!with_checkpoint) return bytes;
    bytes += plan.checkpoint + plan.local_checkpoint + overhead.checkpoint;
    // What ranks hold of a tensor is not what they write: of a round's messages, what comes from one rank and what goes
    // to one.
    constexpr std::size_t round = std::size_t{64} << 20;
    const auto ranks = static_cast<std::size_t>(grid.ranks());
    if (grid.pipeline > 1 || divides_optimizer(description, grid))
        bytes += 2 * std::min(round / ranks / (ranks - 1), plan.checkpoint);
    return bytes;
}

std::string memory_text(const MemoryPlan& plan) {
    std::string blocks;
    for (const model::StageRange& chunk : plan.chunks)
        blocks += fmt::format("{}{} to {}", blocks.empty() ? "" : ", ", chunk.first_block, chunk.last_block - 1);
    const std::string of_mpi =
        plan.communication > 0
            ? fmt::format(", plus up to {} for MPI while gradients are reduced", bytes_text(plan.communication))
            : "";
    const std::string of_lanes = plan.lanes > 0 ? fmt::format(" ({} of them lane sums)", bytes_text(plan.lanes)) : "";
    const std::string of_host =
        plan.offloaded > 0 ? fmt::format(", and {} in host memory", bytes_text(plan.offloaded)) : "";
    return fmt::format(
        "blocks {}; parameters {}, gradients {}{}, optimizer state {}, activations {} ({} micro-batch{} in flight), "
        "workspace {}, together {}{}{}",
        blocks, bytes_text(plan.parameters), bytes_text(plan.gradients), of_lanes, bytes_text(plan.optimizer_state),
        bytes_text(plan.activations), plan.under_way, plural(plan.under_way, "es"), bytes_text(plan.workspace),
        bytes_text(plan.planned()), of_host, of_mpi);
}

std::string memory_advice(const MemoryPlan& plan, const config::RunDescription& description) {
    const std::size_t states = plan.parameters + plan.gradients + plan.optimizer_state;
    const std::size_t passing = plan.activations + plan.workspace;
    std::vector<std::string> ways;
    if (passing > states) {
        if (plan.micro > 1) ways.push_back(fmt::format("batch.micro below {}", plan.micro));
        std::vector<std::string> leaner;
        for (const config::Recompute recompute :
             {config::Recompute::cheap, config::Recompute::selective, config::Recompute::full})
            if (recompute > description.parallel.recompute) leaner.push_back(std::string(config::word_of(recompute)));
        if (!leaner.empty() && plan.activations > plan.workspace)
            ways.push_back(fmt::format("a leaner parallel.recompute ({})", fmt::join(leaner, ", ")));
        if (plan.under_way > 1 && !has_whole_model(plan)) ways.push_back("fewer stages of parallel.pipeline");
        ways.push_back("a smaller batch.length");
        if (model::divides_sequences(description.model)) ways.push_back("a larger parallel.context");
    } else {
        constexpr std::array stages = {"1, 2 or 3", "2 or 3", "3"};
        const auto zero = static_cast<std::size_t>(description.parallel.zero);
        if (zero == 0 && description.parallel.lanes > 0)
            ways.push_back("parallel.zero = 1 with several replicas");
        else if (zero < stages.size() && description.parallel.lanes == 0)
            ways.push_back(fmt::format("parallel.zero = {} with several replicas", stages[zero]));
        if (2 * plan.lanes > plan.gradients) ways.push_back("fewer lanes per replica (parallel.lanes)");
        ways.push_back("a larger parallel.pipeline or parallel.tensor");
        ways.push_back("a smaller model");
    }
    const std::array<std::pair<const char*, std::size_t>, 5> parts = {{{"parameters", plan.parameters},
                                                                       {"gradients", plan.gradients},
                                                                       {"optimizer state", plan.optimizer_state},
                                                                       {"activations", plan.activations},
                                                                       {"workspace", plan.workspace}}};
    const auto largest =
        std::max_element(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    const bool many = std::string_view(largest->first).ends_with('s');
    return fmt::format("{} {} the largest part ({}); try: {}", largest->first, many ? "are" : "is",
                       bytes_text(largest->second), joined(ways, "or"));
}

}  // namespace lockstep::layout
