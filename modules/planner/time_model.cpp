#include "planner/time_model.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "planner/block_time.hpp"

namespace lockstep::planner {
namespace {

// The ranks of a node have neighbouring places: tensor fastest, then data, then pipeline.
struct Neighbourhood {
    double members;  // of a group of replicas in one node
    double groups;   // of replicas that share a node's network cards
};

Neighbourhood neighbourhood(const Hardware& hardware, const Layout& layout) {
    const auto dp = static_cast<double>(layout.data * layout.context), t = static_cast<double>(layout.tensor);
    const double per_node = hardware.device.per_node;
    const double members = std::clamp(std::floor(per_node / t), 1.0, dp);
    return {members, std::max(1.0, per_node / members)};
}

// Every replica's gradients to their sum, and parameters back: twice (n - 1) / n of the bytes through the slowest link
// of a ring (Patarasuk and Yuan 2009).
double replica_seconds(const Hardware& hardware, const Layout& layout, double gradient_bytes, double parameter_bytes) {
    const auto dp = static_cast<double>(layout.data * layout.context);
    if (dp <= 1) return 0;
    const auto [members, groups] = neighbourhood(hardware, layout);
    const double bytes = (dp - 1) / dp * (gradient_bytes + parameter_bytes);
    double rate = hardware.node_link.gb_per_second * 1e9 * hardware.node_link.efficiency;
    double latency = hardware.node_link.latency_us;
    if (members < dp) {
        rate = std::min(rate, hardware.network_bytes_per_second() * hardware.network.efficiency / groups);
        latency = hardware.network.latency_us;
    }
    return bytes / rate + 2 * std::ceil(std::log2(dp)) * latency * 1e-6;
}

// A micro-batch from stage to stage: each tensor rank hands on its part of the stream.
double send_seconds(const Hardware& hardware, const Job& job, const ModelLoad& load, const Layout& layout) {
    if (layout.pipeline == 1) return 0;
    const auto t = static_cast<double>(layout.tensor);
    const double rows = static_cast<double>(layout.micro * job.run.batch.length) / static_cast<double>(layout.context);
    const double bytes =
        rows * static_cast<double>(load.shape.width) * bytes_of(job.run.precision.compute) / t;  // a rank's
    const auto before = static_cast<double>(layout.tensor * layout.data * layout.context);
    if (before < hardware.device.per_node)  // the next stage is in the same node
        return bytes / (hardware.node_link.gb_per_second * 1e9) + hardware.node_link.latency_us * 1e-6;
    return bytes * hardware.device.per_node / hardware.network_bytes_per_second() + hardware.network.latency_us * 1e-6;
}

struct StageTime {
    PassTime blocks;
    double head = 0, send = 0;
    double total() const { return blocks.total() + head + send; }
};

std::vector<StageTime> stage_times(const Hardware& hardware, const Job& job, const Layout& layout) {
    std::vector<StageTime> stages(static_cast<std::size_t>(layout.pipeline));
    for (const ModelLoad& load : job.models) {
        const PassTime block = block_time(hardware, job, load, layout);
        const auto blocks = blocks_of_stages(job.program, load.shape, layout.pipeline * layout.interleave);
        const double send = 2 * send_seconds(hardware, job, load, layout) * static_cast<double>(layout.interleave);
        for (std::size_t piece = 0; piece < blocks.size(); ++piece) {
            StageTime& stage = stages[piece % stages.size()];
            stage.blocks.forward += blocks[piece] * block.forward;
            stage.blocks.recomputation += blocks[piece] * block.recomputation;
            stage.blocks.backward += blocks[piece] * block.backward;
            stage.blocks.tensor_forward += blocks[piece] * block.tensor_forward;
            stage.blocks.tensor_recomputation += blocks[piece] * block.tensor_recomputation;
            stage.blocks.tensor_backward += blocks[piece] * block.tensor_backward;
        }
        for (StageTime& stage : stages) stage.send += send;
        stages.back().head += head_seconds(hardware, job, load, layout);
    }
    return stages;
}

// Parameters of the rank that has most: the first stage's, or the last one's.
struct Held {
    double all = 0, trained = 0;
};
Held most_held(const Job& job, const Layout& layout) {
    Held held;
    for (const ModelLoad& load : job.models) {
        const auto blocks = blocks_of_stages(job.program, load.shape, layout.pipeline);
        double ends = std::max(load.table, load.head), trained = std::max(load.table_trained, load.head_trained);
        if (layout.pipeline == 1) {
            ends = load.total - load.block * static_cast<double>(load.shape.layers);
            trained = load.trained - load.block_trained * static_cast<double>(load.shape.layers);
        }
        held.all += (blocks.front() * load.block + ends) / static_cast<double>(layout.tensor);
        held.trained += (blocks.front() * load.block_trained + trained) / static_cast<double>(layout.tensor);
    }
    return held;
}

}  // namespace

StepTime described_step_time(const Hardware& hardware, const Job& job, const Layout& layout, const MemoryUse& use) {
    const auto stages = stage_times(hardware, job, layout);
    const auto m = static_cast<double>(micro_batches(job, layout));
    const StageTime& slowest = *std::max_element(
        stages.begin(), stages.end(), [](const StageTime& a, const StageTime& b) { return a.total() < b.total(); });
    double sum = 0;
    for (const StageTime& stage : stages) sum += stage.total();

    StepTime time;
    time.forward = m * slowest.blocks.forward;
    time.recomputation = m * slowest.blocks.recomputation;
    time.backward = m * slowest.blocks.backward;
    time.loss = m * slowest.head;
    time.tensor = m * slowest.blocks.tensor();
    time.pipeline = m * slowest.send;
    // The first micro-batch goes through all stages before the slowest is busy all the time, and the last one after.
    time.idle = (sum - slowest.total()) / static_cast<double>(layout.interleave);

    const Held held = most_held(job, layout);
    const double number = bytes_of(job.run.precision.compute);
    double gradients = held.trained * job.program.reduced_bytes, parameters = held.trained * number;
    if (layout.zero == 0) parameters = gradients;  // the second half of an all-reduce
    if (layout.zero >= 3) parameters = 2 * m * held.all * number;
    const double replicas = replica_seconds(hardware, layout, gradients, parameters);
    const double last_backward = slowest.blocks.backward + slowest.blocks.recomputation;
    time.data = std::max(0.0, replicas - job.program.hidden_reduction * last_backward);

    const double owned =
        layout.zero >= 1 ? held.trained / static_cast<double>(layout.data * layout.context) : held.trained;
    time.optimizer =
        (held.trained * 2 * job.program.gradient_bytes * 1.5 + owned * (2 * job.program.owner_bytes + number)) /
        hardware.bytes_per_second();

    const double pressure = 1 + hardware.memory.pressure_slowdown * memory_pressure(hardware, use);
    for (double* part : {&time.forward, &time.recomputation, &time.backward, &time.loss, &time.tensor, &time.pipeline,
                         &time.idle, &time.data, &time.optimizer})
        *part *= pressure;
    return time;
}

}  // namespace lockstep::planner
