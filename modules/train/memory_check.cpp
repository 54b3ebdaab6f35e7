#include "train/memory_check.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/format.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "base/plural.hpp"
#include "cluster/agree.hpp"
#include "device/available_memory.hpp"
#include "layout/rank_share.hpp"
#include "train/gradient_exchange.hpp"
#include "train/launch.hpp"
#include "train/pipeline.hpp"
#include "train/training_state.hpp"

namespace lockstep::train {
namespace {

// CUDA loads kernels and instantiates graphs at their first use, when the plan's memory is taken. An estimate.
constexpr std::uint64_t left_to_cuda = std::uint64_t{256} << 20;

std::uint64_t usable_memory(const Launch& launch) {
    if (!launch.devices.on_gpu()) return available_memory();
    const std::uint64_t free = launch.devices.free_memory();
    return free - std::min(free, left_to_cuda);
}

std::string bytes_text(std::uint64_t bytes) {
    return human_bytes(static_cast<double>(bytes));
}

// Collective. Usage error where what the ranks plan of one memory is not there; `gpu`: whose it is, "" the node's.
void check_memory(const Launch& launch, const std::string& gpu, std::uint64_t planned_here, std::uint64_t free_here,
                  const std::string& advice) {
    struct Need {
        std::uint64_t device, planned, free;
    };
    const auto& place = launch.session.place();
    const std::string device = fmt::format("{} {}", place.node, gpu);
    const Need own{hash64(device.data(), device.size()), planned_here, free_here};
    const std::vector<char> bytes = launch.control->all_gather_bytes(&own, sizeof own);
    std::vector<Need> all(static_cast<std::size_t>(launch.session.size()));
    std::memcpy(all.data(), bytes.data(), bytes.size());
    cluster::together(*launch.control, [&] {
        std::uint64_t planned = 0, most = 0, free = own.free;
        int ranks = 0;
        for (const Need& one : all) {
            if (one.device != own.device) continue;
            planned += one.planned;
            most = std::max(most, one.planned);
            free = std::min(free, one.free);
            ++ranks;
        }
        // The rank that plans most says so.
        if (planned <= free || own.planned < most) return;
        throw usage_error("not enough memory: {} rank{} would use {} on {} of {}, which has {} free; rank {}: {}; {}",
                          ranks, plural(ranks), bytes_text(planned), gpu.empty() ? "the node" : "GPU " + gpu,
                          place.host, bytes_text(free), launch.session.rank(), layout::memory_text(launch.plan),
                          advice);
    });
}

}  // namespace

void check_free_memory(const Launch& launch) {
    const bool on_gpu = launch.devices.on_gpu();
    check_memory(launch, on_gpu ? launch.devices.placement.seat().gpu : "",
                 launch.plan.planned() + launch.plan.tables + launch.plan.kernels, usable_memory(launch),
                 layout::memory_advice(launch.plan, launch.description));
    if (on_gpu && launch.description.parallel.offload != config::Offload::none)
        check_memory(launch, "", launch.plan.offloaded, available_memory(),
                     "use more nodes with parallel.zero = 1 to 3 to shard what is in host memory");
}

void check_memory_beside_messages(const Launch& launch) {
    if (!launch.devices.on_gpu() || launch.session.size() == 1) return;
    kernels::Backend& backend = *launch.devices.backend;
    {
        Arena arena(backend.device(), 2 * Arena::device_alignment, "the first messages");
        const Tensor sent = arena.allocate(Type::fp32, {1}), received = arena.allocate(Type::fp32, {1});
        launch.devices.communicator->all_reduce(sent, cluster::Reduce::sum);
        cluster::use_once(launch.groups, layout::messages_used(launch.description), sent, received);
        backend.synchronize();
    }
    check_free_memory(launch);
}

void check_memory_plan(const Launch& launch, const TrainingState& state, const GradientExchange& exchange,
                       const Pipeline& pipeline) {
    LOCKSTEP_ASSERT(launch.plan.parameters == state.parameters->value_bytes());
    LOCKSTEP_ASSERT(launch.plan.gradients == state.parameters->gradient_bytes() + exchange.bytes());
    LOCKSTEP_ASSERT(launch.plan.optimizer_state == state.optimizer->bytes());
    LOCKSTEP_ASSERT(launch.plan.offloaded == state.parameters->host_bytes() + state.optimizer->host_bytes());
    LOCKSTEP_ASSERT(launch.plan.activations == pipeline.activation_bytes());
    LOCKSTEP_ASSERT(launch.plan.workspace == pipeline.workspace_bytes());
}

void log_memory_plan(const Launch& launch) {
    const layout::MemoryPlan& plan = launch.plan;
    const config::BatchSection& batch = launch.description.batch;
    const std::int64_t stages = launch.grid.pipeline;
    std::string own = layout::memory_text(plan);
    if (launch.devices.on_gpu())
        own += fmt::format("; {} of the GPU left free", bytes_text(launch.devices.free_memory()));
    struct Line {
        std::uint64_t planned = 0;
        std::int64_t stage = 0;
        char text[512] = {};
    };
    Line line{plan.planned(), launch.groups.place.pipeline};
    std::copy_n(own.data(), std::min(own.size(), sizeof line.text - 1), line.text);
    const std::vector<char> bytes = launch.control->gather(&line, sizeof line, 0);
    if (!launch.root()) return;
    std::vector<Line> all(static_cast<std::size_t>(launch.session.size()));
    std::memcpy(all.data(), bytes.data(), bytes.size());
    for (std::int64_t stage = 0; stage < stages; ++stage) {
        const Line* fullest = nullptr;
        for (const Line& one : all)
            if (one.stage == stage && (fullest == nullptr || one.planned > fullest->planned)) fullest = &one;
        const std::string where = stages > 1 ? fmt::format(", stage {} of {}", stage + 1, stages) : "";
        log::info("memory per rank{}: {}", where, fullest->text);
    }
    log::detail("writing a checkpoint takes {} more host memory; micro-batches of {} x {} tokens, {} per step",
                bytes_text(plan.checkpoint + plan.local_checkpoint), plan.micro, batch.length, plan.micro_batches);
    if (!batch.ramp) return;
    log::info("batch ramp: from {} sequence{} in steps of {} to {}, reached after {} samples", batch.ramp->start,
              plural(batch.ramp->start), batch.ramp->increment, batch.global, with_commas(batch.ramp->samples));
}

}  // namespace lockstep::train
