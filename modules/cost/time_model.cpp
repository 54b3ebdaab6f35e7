#include "cost/time_model.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "cost/described_prices.hpp"
#include "cost/described_program.hpp"
#include "layout/lane_tree.hpp"

namespace lockstep::cost {
namespace {

// The ranks of a node have neighbouring places: tensor fastest, then context and data, then pipeline. A group is inside
// a node where the whole grid is, or where whole groups fill a node; else some group crosses, and all wait for it.
struct Neighbourhood {
    double members;  // of a group of replicas in one node
    double groups;   // of replicas that share a node's network cards
    bool inside;
};

bool divides(double part, double whole) {
    return std::fmod(whole, part) == 0;
}

Neighbourhood neighbourhood(const config::Machine& machine, const Layout& layout) {
    const auto dp = static_cast<double>(layout.data * layout.context), t = static_cast<double>(layout.tensor);
    const double per_node = machine.device.per_node;
    if (static_cast<double>(layout.ranks()) <= per_node || divides(t * dp, per_node)) return {dp, per_node / dp, true};
    const double members = divides(t, per_node) ? per_node / t : 1;
    const bool whole = divides(members, dp);
    return {whole ? members : 1, whole ? per_node / members : per_node, false};
}

// Every replica's gradients to their sum, and parameters back: twice (n - 1) / n of the bytes through the slowest link
// of a ring (Patarasuk and Yuan 2009).
double replica_seconds(const config::Machine& machine, const Layout& layout, double gradient_bytes,
                       double parameter_bytes) {
    const auto dp = static_cast<double>(layout.data * layout.context);
    if (dp <= 1) return 0;
    const auto [members, groups, inside] = neighbourhood(machine, layout);
    const double bytes = (dp - 1) / dp * (gradient_bytes + parameter_bytes);
    double rate = machine.node_link.gb_per_second * 1e9 * machine.node_link.efficiency;
    double latency = machine.node_link.latency_us;
    if (!inside) {
        rate = std::min(rate, machine.network_bytes_per_second() * machine.network.efficiency / groups);
        latency = machine.network.latency_us;
    }
    return bytes / rate + 2 * std::ceil(std::log2(dp)) * latency * 1e-6;
}

// A micro-batch from stage to stage: each tensor rank hands on its part of the stream.
double send_seconds(const config::Machine& machine, const Job& job, const ModelLoad& load, const Layout& layout) {
    if (layout.pipeline == 1) return 0;
    const auto t = static_cast<double>(layout.tensor);
    const double rows = static_cast<double>(layout.micro * job.run.batch.length) / static_cast<double>(layout.context);
    const double bytes =
        rows * static_cast<double>(load.shape.width) * bytes_of(job.run.precision.compute) / t;  // a rank's
    return hand_on_seconds(machine, layout, bytes, static_cast<double>(layout.tensor * layout.data * layout.context));
}

struct StageTime {
    PassTime pass;  // through its blocks and ends
    double send = 0;
    double total() const { return pass.computing() + pass.tensor() + send; }
};

struct Stages {
    std::vector<StageTime> stages;
    double context = 0;  // waits along divided sequences, of the whole step
};

Stages stage_times(const config::Machine& machine, const Job& job, const Layout& layout) {
    Stages all;
    std::vector<StageTime>& stages = all.stages;
    stages.resize(static_cast<std::size_t>(layout.pipeline));
    const DescribedPrices prices(machine, layout, job.run.precision.compute);
    for (const ModelLoad& load : job.models) {
        const ProgramCount count = count_program(machine, job, load, layout);
        std::vector<PassTime> kinds;
        for (const model::Count& block : count.blocks) kinds.push_back(pass_time(block, prices));
        const auto blocks = blocks_of_stages(job, load.shape, layout.pipeline * layout.interleave);
        const double send = 2 * send_seconds(machine, job, load, layout) * static_cast<double>(layout.interleave);
        std::size_t layer = 0;
        for (std::size_t piece = 0; piece < blocks.size(); ++piece) {
            StageTime& stage = stages[piece % stages.size()];
            std::vector<double> of_kind(kinds.size(), 0);
            for (auto left = static_cast<std::size_t>(blocks[piece]); left > 0; --left)
                ++of_kind[count.block_of[layer++]];
            for (std::size_t kind = 0; kind < kinds.size(); ++kind) stage.pass.add(kinds[kind], of_kind[kind]);
        }
        for (StageTime& stage : stages) stage.send += send;
        stages.front().pass.add(pass_time(count.embedding, prices));
        stages.back().pass.add(pass_time(count.head, prices));
        all.context += context_fill(load.shape, layout.context, micro_batches(job, layout),
                                    layout.lanes > 0 || layout.zero > 1, [&](std::int64_t number) {
                                        const PassTime& kind = kinds[count.block_of[static_cast<std::size_t>(number)]];
                                        return kind.computing() + kind.tensor() + kind.context();
                                    });
    }
    return all;
}

// Parameters of the rank that has most: those of the stage with the most blocks, and of the larger end.
struct Held {
    double all = 0, trained = 0;
};
Held most_held(const Job& job, const Layout& layout) {
    Held held;
    for (const ModelLoad& load : job.models) {
        const auto blocks = blocks_of_stages(job, load.shape, layout.pipeline);
        double ends = std::max(load.table, load.head), trained = std::max(load.table_trained, load.head_trained);
        if (layout.pipeline == 1) {
            ends = load.total - load.block * static_cast<double>(load.shape.layers);
            trained = load.trained - load.block_trained * static_cast<double>(load.shape.layers);
        }
        const double most = *std::max_element(blocks.begin(), blocks.end());
        held.all += (most * load.block + ends) / static_cast<double>(layout.tensor);
        held.trained += (most * load.block_trained + trained) / static_cast<double>(layout.tensor);
    }
    return held;
}

}  // namespace

StepTime described_step_time(const config::Machine& machine, const Job& job, const Layout& layout,
                             const MemoryUse& use) {
    const Stages all = stage_times(machine, job, layout);
    const auto m = static_cast<double>(micro_batches(job, layout));
    const StageTime& slowest =
        *std::max_element(all.stages.begin(), all.stages.end(),
                          [](const StageTime& a, const StageTime& b) { return a.total() < b.total(); });
    double sum = 0;
    for (const StageTime& stage : all.stages) sum += stage.total();

    StepTime time;
    time.forward = m * slowest.pass.forward;
    time.recomputation = m * slowest.pass.recomputation;
    time.backward = m * slowest.pass.backward;
    time.loss = m * slowest.pass.loss;
    time.tensor = m * slowest.pass.tensor();
    time.pipeline = m * slowest.send;
    // The first micro-batch goes through all stages before the slowest is busy all the time, and the last one after.
    time.idle = (sum - slowest.total()) / static_cast<double>(layout.interleave);
    time.context = all.context + m * slowest.pass.context();

    const bool fp32 =
        job.run.precision.compute == config::Precision::fp32;  // has no masters, and gradients of four bytes
    const double gradient_bytes = fp32 ? 4 : job.program.gradient_bytes;
    const double owner_bytes = job.program.owner_bytes - (fp32 ? 4 : 0);
    const Held held = most_held(job, layout);
    const double number = bytes_of(job.run.precision.compute);
    double gradients = held.trained * (fp32 ? 4 : job.program.reduced_bytes), parameters = held.trained * number;
    if (layout.zero == 0) parameters = gradients;  // the second half of an all-reduce
    // Our own program sends divided gradients in every micro-batch.
    const double reductions = job.own_program() && layout.zero >= 2 ? m : 1;
    gradients *= reductions;
    if (layout.zero >= 3) parameters = 2 * m * held.all * number;
    // Gradients travel beside the last backward pass where the program does so; parameters follow the update.
    const double last_backward = slowest.pass.backward + slowest.pass.recomputation;
    double both = layout.zero == 0 ? gradients + parameters : gradients;
    if (layout.lanes > 0) both += (layout::LaneTree(layout.lanes, layout.data).most_nodes() - 1) * gradients;
    time.data = std::max(
        0.0, replica_seconds(machine, layout, both, 0) - job.program.hidden_reduction * reductions * last_backward);
    if (layout.zero > 0) time.data += replica_seconds(machine, layout, parameters, 0);

    const double owned =
        layout.zero >= 1 ? held.trained / static_cast<double>(layout.data * layout.context) : held.trained;
    time.optimizer =
        (held.trained * 2 * gradient_bytes * 1.5 + owned * (2 * owner_bytes + number)) / machine.bytes_per_second();
    // Of a replica's lanes, all but one are copied, and added to others.
    constexpr double copying = 2, adding = 3;
    if (layout.lanes > 0)
        time.backward += static_cast<double>(layout.lanes / layout.data - 1) * (copying + adding) * gradients /
                         machine.bytes_per_second();

    // Of matrices that ranks of a tensor group divide, each has the products whole.
    double products = 0, all_trained = 0;
    const DescribedPrices prices(machine, layout, job.run.precision.compute);
    for (const kernels::Operation& operation : job.update_products)
        products += operation.times * prices.seconds(operation, false);
    for (const ModelLoad& load : job.models) all_trained += load.trained;
    time.optimizer += products * owned * static_cast<double>(layout.tensor) / std::max(1.0, all_trained);

    const double pressure = 1 + machine.memory.pressure_slowdown * use.pressure;
    for (double* part : {&time.forward, &time.recomputation, &time.backward, &time.loss, &time.tensor, &time.pipeline,
                         &time.idle, &time.data, &time.context, &time.optimizer})
        *part *= pressure;
    return time;
}

}  // namespace lockstep::cost
