// The step time of our own program, composed of invented rates whose results can be computed by hand.
#define BOOST_TEST_MODULE own_time
#include <algorithm>
#include <boost/test/unit_test.hpp>

#include "base/error.hpp"
#include "calibrate/rate_fit.hpp"
#include "cost/own_prices.hpp"
#include "cost/own_time.hpp"
#include "cost/pipeline_time.hpp"
#include "model/frozen.hpp"
#include "model/parameter_description.hpp"

using namespace lockstep;
using namespace lockstep::config;
using namespace lockstep::cost;
using namespace lockstep::calibrate;

namespace {

constexpr double close = 1e-9;
const auto near = boost::test_tools::tolerance(close);

config::RunDescription small() {
    config::RunDescription description;
    auto& model = description.model;
    model.mixers = {"attention"};
    model.width = 64;
    model.layers = 4;
    model.heads = {4};
    model.mlp_width = 256;
    model.vocabulary = 512;
    model.context = 32;
    model.mlp = config::MlpKind::gelu;
    model.position = config::Position::none;
    config::resolve(model);
    description.batch.global = 8;
    description.batch.micro = 1;
    description.batch.length = 32;
    return description;
}

// Every product takes 1 ms whatever its size; all else takes no time. A node of two cores, each with a rank.
Machine one_millisecond_a_product() {
    Machine machine;
    machine.name = "invented";
    machine.device.kind = config::MachineKind::cpu;
    Rates& rates = machine.rates;
    rates.ranks = 2;
    rates.threads = 1;
    rates.cores = 2;
    rates.loading_mtokens_per_second = 1e300;
    machine.node_link.gb_per_second = 1e290;
    for (ProductRates* products : {&rates.fp32.layer, &rates.fp32.head})
        for (ProductRate* product : {&products->forward, &products->input_gradient, &products->weight_gradient}) {
            product->us = 1000;
            product->tflops = 1e290;
        }
    return machine;
}

// Attention with GELU: one for queries, keys and values; output, up, down.
constexpr double products_a_block = 4, millisecond = 1e-3;

StepTime step_of(const config::RunDescription& description, const config::Grid& grid, const Machine& machine,
                 std::int64_t ranks_per_node = 64) {
    return own_step_time(description, grid, ranks_per_node, machine);
}

}  // namespace

// Ranks begin a chain of blocks one behind the other; blocks in which all meet end it.
BOOST_AUTO_TEST_CASE(a_chain_along_the_sequence_is_filled_between_meetings) {
    config::ModelDescription model = small().model;
    model.layers = 5;
    const std::vector<double> seconds = {1, 3, 10, 2, 4};
    const auto fill = [&](const std::vector<std::string>& mixers, std::int64_t ranks, bool in_turn = false) {
        model.mixers = mixers;
        return context_fill(model, ranks, 5, in_turn,
                            [&](std::int64_t number) { return seconds[static_cast<std::size_t>(number)]; });
    };
    BOOST_TEST(fill({"ttt-linear"}, 4) == 3 * 10);
    BOOST_TEST(fill({"ttt-linear"}, 4, true) == 5 * 3 * 10);
    BOOST_TEST(fill({"attention"}, 4) == 0);
    BOOST_TEST(fill({"ttt-linear", "ttt-mlp", "attention"}, 4) == 5 * 3 * (3 + 4));  // in each micro-batch
    BOOST_TEST(fill({"ttt-linear"}, 1) == 0);
}

BOOST_AUTO_TEST_CASE(calibrated_hardware_reads_back_as_it_was) {
    Machine machine = one_millisecond_a_product();
    machine.node_link.gb_per_second = 3;
    double value = 0.1;
    std::vector<Key> rates;
    machine.rates.add_keys(rates);
    for (const Key& key : rates) *std::get<double*>(key.member) = std::min(key.most, value += 1.0 / 3);
    BOOST_TEST(rates.size() > 60u);

    Machine read;
    read_keys(to_toml(machine), "machine.toml", read.keys());
    BOOST_TEST(to_toml(read) == to_toml(machine));
    BOOST_TEST(read.rates.bf16.memory.adamw == machine.rates.bf16.memory.adamw);
    BOOST_TEST(read.rates.messages.latency_us == machine.rates.messages.latency_us);
    BOOST_TEST(read.rates.measured());
}

BOOST_AUTO_TEST_CASE(hardware_without_rates_is_written_without_them_and_refused) {
    Machine machine;
    machine.name = "described";
    BOOST_TEST(to_toml(machine).find("rates") == std::string::npos);
    const auto says = [](const std::string& part) {
        return [part](const Error& error) {
            return error.code() == ExitCode::usage && std::string(error.what()).find(part) != std::string::npos;
        };
    };
    BOOST_CHECK_EXCEPTION(step_of(small(), {}, machine), Error, says("bench --calibrate"));
    // A CPU of which only fp32 was measured neither, unless it has no bf16: then runs compute in fp32.
    machine = one_millisecond_a_product();
    auto description = small();
    description.precision.compute = config::Precision::bf16;
    BOOST_CHECK_EXCEPTION(step_of(description, {}, machine), Error, says("has no rates for bf16"));
    machine.rates.bf16_is_fp32 = 1;
    BOOST_TEST(step_of(description, {}, machine).total() == step_of(small(), {}, machine).total());
    description.precision.compute = config::Precision::fp16;
    BOOST_CHECK_EXCEPTION(step_of(description, {}, machine), Error, says("fp16"));
    // A GPU of which only fp32 was measured is not asked for bf16.
    machine = one_millisecond_a_product();
    machine.device.kind = config::MachineKind::gpu;
    description.precision.compute = config::Precision::bf16;
    BOOST_CHECK_EXCEPTION(step_of(description, {}, machine), Error, says("bf16"));
}

// A calibration from before Gated DeltaNet serves other models as ever.
BOOST_AUTO_TEST_CASE(an_older_calibration_is_refused_for_newer_operations_only) {
    const Machine machine = one_millisecond_a_product();
    auto description = small();
    BOOST_TEST(step_of(description, {}, machine).total() > 0);
    description.model.mixers = {"gated-deltanet"};
    BOOST_CHECK_EXCEPTION(step_of(description, {}, machine), Error, [](const Error& error) {
        return error.code() == ExitCode::usage &&
               std::string(error.what()).find("no rates for Gated DeltaNet") != std::string::npos;
    });
}

BOOST_AUTO_TEST_CASE(a_fit_finds_the_costs_that_made_the_times) {
    std::vector<TimedOperation> timed;
    for (const double size : {1.0, 3.0, 10.0, 40.0})
        for (const double depth : {1.0, 5.0, 20.0}) {
            const double flop = 1e8 * size * depth, bytes = 1e6 * (size + depth);
            timed.push_back({flop, bytes, 20e-6 + flop / 400e9 + bytes / 30e9});
        }
    const ProductRate found = fit_rate(timed, true);
    const auto nearly = boost::test_tools::tolerance(1e-5);
    BOOST_TEST(found.us == 20, nearly);
    BOOST_TEST(found.tflops == 0.4, nearly);
    BOOST_TEST(found.gb_per_second == 30, nearly);
    // Costs are never negative: times that fall with the bytes have none of them.
    for (TimedOperation& one : timed) one.seconds = one.flop / 400e9 - 1e-13 * one.bytes;
    const ProductRate bound = fit_rate(timed, false);
    BOOST_TEST(bound.us == 0);
    BOOST_TEST(bound.gb_per_second == 0);
    BOOST_TEST(bound.tflops > 0);
}

BOOST_AUTO_TEST_CASE(a_step_of_one_rank_is_the_sum_of_its_products) {
    const StepTime time = step_of(small(), {}, one_millisecond_a_product());
    const double blocks = 8 * 4 * products_a_block * millisecond;  // micro-batches, layers
    // A rank alone has both cores.
    BOOST_TEST(time.forward == blocks / 2, near);
    BOOST_TEST(time.backward == 2 * blocks / 2, near);
    BOOST_TEST(time.loss == 8 * 3 * millisecond / 2, near);
    BOOST_TEST(time.total() == (3 * blocks + 24 * millisecond) / 2, near);
}

BOOST_AUTO_TEST_CASE(recomputation_repeats_all_products_of_a_block_but_the_last) {
    auto description = small();
    description.parallel.recompute = config::Recompute::full;
    const StepTime time = step_of(description, {}, one_millisecond_a_product());
    BOOST_TEST(time.recomputation == 8 * 4 * (products_a_block - 1) * millisecond / 2, near);
    description.parallel.recompute = config::Recompute::selective;  // the MLP's first
    BOOST_TEST(step_of(description, {}, one_millisecond_a_product()).recomputation == 8 * 4 * millisecond / 2, near);
    description.parallel.recompute = config::Recompute::cheap;
    BOOST_TEST(step_of(description, {}, one_millisecond_a_product()).recomputation == 0);
}

// Of all micro-batches of a step the first does not read the gradients of weights, and only a table without a tied head
// is set to zero before.
BOOST_AUTO_TEST_CASE(gradients_of_weights_are_written_before_they_are_added_to) {
    auto description = small();
    Machine machine = one_millisecond_a_product();
    machine.rates.fp32.layer.weight_gradient.gb_per_second = 1;
    machine.rates.fp32.head.weight_gradient.gb_per_second = 1;
    const StepTime eight = step_of(description, {}, machine);
    description.batch.global = 16;
    const StepTime sixteen = step_of(description, {}, machine);
    const double weights = 4 * (4 * 64 * 64 + 2 * 64 * 256), table = 512 * 64;
    const auto loose = boost::test_tools::tolerance(1e-6);
    BOOST_TEST(sixteen.backward - 2 * eight.backward == 4 * weights / 1e9 / 2, loose);
    BOOST_TEST(sixteen.loss - 2 * eight.loss == 4 * table / 1e9 / 2, loose);
    machine.rates.fill_gb_per_second = 1;
    BOOST_TEST(step_of(description, {}, machine).optimizer == 0);
    description.model.tied_head = false;
    BOOST_TEST(step_of(description, {}, machine).optimizer == 4 * table / 1e9 / 2, loose);
}

BOOST_AUTO_TEST_CASE(frozen_parameters_cost_what_the_trainer_does_for_them) {
    auto description = small();
    description.model.tied_head = false;
    // Block 0 has no backward pass. Of block 1 the MLP's two weights are trained: both of their gradients, and that of
    // what lies between them. Block 2 lacks one of its eight; the head passes its gradient on.
    description.model.frozen = {"embedding/*",         "blocks/0/*",        "blocks/1/mixer*",
                                "blocks/1/mlp_norm/*", "blocks/2/mlp/up/*", "head/*"};
    Machine machine = one_millisecond_a_product();
    const StepTime time = step_of(description, {}, machine);
    BOOST_TEST(time.forward == 8 * 4 * products_a_block * millisecond / 2, near);
    BOOST_TEST(time.backward == 8 * (3 + 7 + 8) * millisecond / 2, near);
    BOOST_TEST(time.loss == 8 * 2 * millisecond / 2, near);
    description.parallel.recompute = config::Recompute::full;
    BOOST_TEST(step_of(description, {}, machine).recomputation == 8 * 3 * (products_a_block - 1) * millisecond / 2,
               near);

    // Nothing but trained parameters is reduced, updated, and has moments in a checkpoint.
    const auto all = static_cast<double>(model::parameter_count(description.model));
    const auto trained = static_cast<double>(model::trained_parameter_count(description.model));
    BOOST_TEST(trained < all / 2);
    machine.rates.messages.bucket_gb_per_second = 1;
    BOOST_TEST(step_of(description, {1, 1, 2, 1}, machine).data == 4 * trained / 1e9, near);
    machine.rates.fill_gb_per_second = machine.rates.norm_gb_per_second = machine.rates.fp32.memory.adamw = 1;
    BOOST_TEST(step_of(description, {1, 1, 2, 1}, machine).optimizer == (4 + 28) * trained / 1e9, near);
    machine.rates.checkpoint_gb_per_second = 2;
    BOOST_TEST(own_checkpoint_seconds(description, 1, machine) == 4 * (all + 2 * trained) / 2e9, near);
}

BOOST_AUTO_TEST_CASE(a_frozen_tied_table_is_not_added_up_over_its_stages) {
    auto description = small();
    description.model.tied_head = true;
    Machine machine = one_millisecond_a_product();
    machine.rates.messages.bucket_gb_per_second = 1;
    BOOST_TEST(step_of(description, {1, 1, 1, 2}, machine).data == 4 * 512 * 64 / 1e9, near);
    description.model.frozen = {"embedding/*"};
    BOOST_TEST(step_of(description, {1, 1, 1, 2}, machine).data == 0);
}

BOOST_AUTO_TEST_CASE(the_head_goes_in_pieces_of_rows) {
    auto description = small();
    description.model.vocabulary = 50257;
    // 128 MiB hold 667 rows of 50,257 fp32 logits: 32 sequences of 32 tokens need two pieces.
    description.batch.global = description.batch.micro = 32;
    BOOST_TEST(step_of(description, {}, one_millisecond_a_product()).loss == 2 * 3 * millisecond / 2, near);
    // In bf16 they fit into one.
    Machine machine = one_millisecond_a_product();
    machine.rates.bf16 = machine.rates.fp32;
    description.precision.compute = config::Precision::bf16;
    BOOST_TEST(step_of(description, {}, machine).loss == 3 * millisecond / 2, near);
}

BOOST_AUTO_TEST_CASE(replicas_reduce_their_gradients_once_a_step) {
    auto description = small();
    Machine machine = one_millisecond_a_product();
    machine.rates.messages.bucket_gb_per_second = 1;
    const double parameters = static_cast<double>(model::parameter_count(description.model));
    // Two ranks: each moves 2 · 1/2 of the bytes.
    BOOST_TEST(step_of(description, {1, 1, 2, 1}, machine).data == 4 * parameters / 1e9, near);
    // Four on four cores: 2 · 3/4.
    machine.rates.cores = 4;
    BOOST_TEST(step_of(description, {1, 1, 4, 1}, machine).data == 1.5 * 4 * parameters / 1e9, near);
    // Two nodes of two: within each as before, then half of the bytes of both ranks over the node's card and back.
    machine.rates.cores = 2;
    machine.network.cards_per_node = 1;
    machine.network.gb_per_second = 2;
    machine.network.latency_us = 0;
    const double within = 4 * parameters / 1e9, between = 4 * parameters / 2e9;
    BOOST_TEST(step_of(description, {1, 1, 4, 1}, machine, 2).data == within + between, near);
    // With ZeRO-1 gradients are scattered and parameters gathered, half of the bytes each.
    description.parallel.zero = 1;
    machine.rates.messages.scatter_gb_per_second = 4;
    machine.rates.messages.gather_gb_per_second = 2;
    const double halves = 2 * parameters / 4e9 + 2 * parameters / 2e9;
    BOOST_TEST(step_of(description, {1, 1, 2, 1}, machine).data == halves, near);
}

// Two replicas, four micro-batches each: half of the bytes of each message.
BOOST_AUTO_TEST_CASE(divided_gradients_and_parameters_travel_in_every_micro_batch) {
    auto description = small();
    Machine machine = one_millisecond_a_product();
    machine.rates.messages.scatter_gb_per_second = 4;
    machine.rates.messages.gather_gb_per_second = 2;
    const auto& model = description.model;
    for (const bool tied : {true, false}) {
        description.model.tied_head = tied;
        const double parameters = static_cast<double>(model::parameter_count(model));
        const double table = static_cast<double>(model.vocabulary * model.width);
        double block = 0;
        for (const auto& parameter : model::describe_parameters(model, {0, 1, false, false}))
            block += static_cast<double>(element_count(parameter.shape));
        const double ends = parameters - 4 * block - (tied ? table : 0);  // the norm; tables that are not tied
        description.parallel.zero = 2;
        const double scattered = 4 * 2 * parameters / 4e9;
        BOOST_TEST(step_of(description, {1, 1, 2, 1}, machine).data == scattered + 2 * parameters / 2e9, near);
        description.parallel.zero = 3;
        const double gathered = (tied ? table : 0) + 4 * (ends + 2 * 2 * block) + 2 * block;
        BOOST_TEST(step_of(description, {1, 1, 2, 1}, machine).data == scattered + 2 * gathered / 2e9, near);
    }
}

BOOST_AUTO_TEST_CASE(groups_that_do_not_fill_nodes_go_by_the_network) {
    Machine machine = one_millisecond_a_product();
    machine.rates.cores = 8;
    machine.rates.messages.bucket_gb_per_second = 1;
    machine.network.cards_per_node = 1;
    machine.network.gb_per_second = 4;
    machine.network.latency_us = 0;
    const auto seconds = [&](std::int64_t ranks_per_node, std::int64_t all, std::int64_t ranks, std::int64_t stride) {
        return CalibratedPrices(machine, config::Precision::fp32, {1, 1, all}, ranks_per_node)
            .reduce_bucket(1e9, ranks, stride);
    };
    const double of_three = 2 * 2.0 / 3;
    BOOST_TEST(seconds(6, 12, 3, 1) == of_three, near);
    BOOST_TEST(seconds(6, 12, 3, 2) == of_three, near);
    // Nodes of four have a whole group of three and a part of another; a node that has all ranks holds any group.
    BOOST_TEST(seconds(4, 12, 3, 1) == of_three * 2 / 4, near);
    BOOST_TEST(seconds(4, 4, 3, 1) == of_three, near);
    // Eight ranks on two nodes of four: 2 · 3/4 within, 2 · 1/2 between. Three apart they lie unevenly on nodes of
    // eight.
    BOOST_TEST(seconds(4, 8, 8, 1) == 1.5 + 1.0 / 4, near);
    BOOST_TEST(seconds(8, 24, 8, 3) == 2 * 7.0 / 8 * 6 / 4, near);
}

BOOST_AUTO_TEST_CASE(tensor_ranks_add_up_four_times_a_block) {
    auto description = small();
    Machine machine = one_millisecond_a_product();
    machine.rates.fp32.all_reduce_gb_per_second = 1;
    const StepTime time = step_of(description, {2, 1, 1, 1}, machine);
    // And once behind the embedding and once in the head, with 4 and 8 bytes a row for the loss.
    const double rows = 32, sum = 4 * rows * 64 / 1e9, loss = 12 * rows / 1e9;
    BOOST_TEST(time.tensor == 8 * (4 * 4 * sum + 2 * sum + loss), near);
}

BOOST_AUTO_TEST_CASE(ranks_that_share_cores_take_turns) {
    auto description = small();
    const Machine machine = one_millisecond_a_product();
    const StepTime apart = step_of(description, {1, 1, 2, 1}, machine);
    const StepTime shared = step_of(description, {1, 1, 4, 1}, machine);
    // Twice the ranks have half the micro-batches each, and half a core.
    BOOST_TEST(shared.forward == apart.forward, near);
    BOOST_TEST(shared.total() == apart.total(), near);
    BOOST_TEST(apart.forward == 4 * 4 * products_a_block * millisecond, near);
}

BOOST_AUTO_TEST_CASE(a_pipeline_stands_idle_for_its_stages_less_one) {
    PipelineWork work;
    work.micro_batches = 8;
    work.forward = {{1}, {1}, {1}, {1}};
    work.backward = {{2}, {2}, {2}, {2}};
    BOOST_TEST(pipeline_seconds(work) == (8 + 3) * 3.0, near);
    // 40 rounds are not played through to the end, and cost the same each.
    work.micro_batches = 160;
    BOOST_TEST(pipeline_seconds(work) == (160 + 3) * 3.0, near);
    // Two cores for four stages: never faster than all work on two cores.
    work.cores = 2;
    const double shared = pipeline_seconds(work);
    BOOST_TEST(shared >= 160 * 6.0);
    BOOST_TEST(shared <= (160 + 3) * 6.0);
    // Two pieces a stage halve the idle time.
    PipelineWork interleaved;
    interleaved.micro_batches = 8;
    interleaved.forward = {{0.5, 0.5}, {0.5, 0.5}};
    interleaved.backward = {{1, 1}, {1, 1}};
    BOOST_TEST(pipeline_seconds(interleaved) == 8 * 3 + 1.5, near);
    // One stage waits for nobody.
    PipelineWork alone;
    alone.micro_batches = 5;
    alone.forward = {{1}};
    alone.backward = {{2}};
    BOOST_TEST(pipeline_seconds(alone) == 15, near);
}

BOOST_AUTO_TEST_CASE(long_passes_end_whatever_rounding_leaves_of_them) {
    const auto seconds = [](double pass) {
        PipelineWork work;
        work.micro_batches = 1024;
        work.message = 1e-4 * pass;
        work.cores = 2;
        for (int stage = 0; stage < 16; ++stage) {
            work.forward.push_back({pass * (1 + 0.01 * stage)});
            work.backward.push_back({pass * 2.003});
        }
        return pipeline_seconds(work);
    };
    BOOST_TEST(seconds(1e4) == 1e4 * seconds(1), near);
}

// A multiprocessor takes one head of one sequence at a time: with four of them, 6 heads take as long as 8.
BOOST_AUTO_TEST_CASE(scans_of_mlps_go_in_waves_over_a_gpu) {
    BOOST_TEST(filled_share(6, 4) == 0.75, near);
    BOOST_TEST(filled_share(8, 4) == 1.0, near);
    BOOST_TEST(filled_share(0, 4) == 1.0, near);
    Machine machine = one_millisecond_a_product();
    machine.device.kind = config::MachineKind::gpu;
    machine.device.units = 4;
    machine.rates.bf16 = machine.rates.fp32;
    machine.rates.bf16.ttt_mlp_forward.tflops = 1e-6;
    kernels::Operation scan;
    scan.kind = kernels::OperationKind::ttt_mlp_forward;
    scan.flop = 3;
    scan.batch = 6;
    const CalibratedPrices prices(machine, config::Precision::bf16, {}, 1);
    BOOST_TEST(prices.seconds(scan, false) == 4e-6, near);
    scan.kind = kernels::OperationKind::ttt_linear_forward;
    machine.rates.bf16.ttt_linear_forward.tflops = 1e-6;
    BOOST_TEST(prices.seconds(scan, false) == 3e-6, near);
}

BOOST_AUTO_TEST_CASE(messages_of_a_pipeline_lengthen_its_ramp) {
    PipelineWork work;
    work.micro_batches = 1;
    work.forward = {{1}, {1}};
    work.backward = {{2}, {2}};
    work.message = 0.25;
    BOOST_TEST(pipeline_seconds(work) == 6.5, near);
}

BOOST_AUTO_TEST_CASE(a_stage_without_a_backward_pass_waits_for_no_gradients) {
    PipelineWork work;
    work.micro_batches = 4;
    work.forward = {{1}, {1}};
    work.backward = {{0}, {2}};
    work.message = 5;
    BOOST_TEST(pipeline_seconds(work) == 1 + 5 + 4 * 3.0, near);
}

BOOST_AUTO_TEST_CASE(idle_time_of_a_step_is_what_the_stages_wait) {
    auto description = small();
    description.model.layers = 8;
    const StepTime time = step_of(description, {1, 1, 1, 2}, one_millisecond_a_product());
    BOOST_TEST(time.idle > 0);
    // The busiest stage computes for less than the whole, which is more than an even division.
    const double all = 8 * (8 * 3 * products_a_block + 3) * millisecond;
    BOOST_TEST(time.total() > all / 2);
    BOOST_TEST(time.total() < all);
    // On one core they take turns, and there is nothing to wait for.
    Machine one_core = one_millisecond_a_product();
    one_core.rates.cores = 1;
    BOOST_TEST(step_of(description, {1, 1, 1, 2}, one_core).total() == all, near);
}

BOOST_AUTO_TEST_CASE(checkpoints_go_at_the_rate_of_the_folder) {
    const auto description = small();
    Machine machine = one_millisecond_a_product();
    machine.rates.checkpoint_gb_per_second = 2;
    const double bytes = 12 * static_cast<double>(model::parameter_count(description.model));
    BOOST_TEST(own_checkpoint_seconds(description, 2, machine) == bytes / 4e9, near);
}
