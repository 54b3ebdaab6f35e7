// What a model is counted to do: its operations and messages in their order, and what is said of them by hand.
#define BOOST_TEST_MODULE count
#include <algorithm>
#include <boost/test/unit_test.hpp>

#include "kernels/counting_backend.hpp"
#include "model/count.hpp"

using namespace lockstep;
using namespace lockstep::model;
using Kind = kernels::OperationKind;

namespace {

config::ModelDescription small(const std::string& mixer = "attention") {
    config::ModelDescription model;
    model.mixers = {mixer};
    model.width = 64;
    model.layers = 3;
    model.heads = {4};
    model.mlp_width = 256;
    model.vocabulary = 512;
    model.context = 64;
    model.mlp = config::MlpKind::gelu;
    model.position = config::Position::none;
    config::resolve(model);
    return model;
}

CountedShape shape_of(std::int64_t tensor = 1, bool divides_rows = false) {
    CountedShape shape;
    shape.pass = {2, 32};
    shape.tensor = tensor;
    shape.divides_rows = divides_rows;
    return shape;
}

std::vector<Kind> kinds_of(const std::vector<kernels::Operation>& operations) {
    std::vector<Kind> kinds;
    for (const auto& operation : operations) kinds.push_back(operation.kind);
    return kinds;
}

std::int64_t count_of(const std::vector<kernels::Operation>& operations, Kind kind) {
    return std::count_if(operations.begin(), operations.end(), [&](const auto& one) { return one.kind == kind; });
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_block_is_counted_as_it_runs) {
    ModelCount model(small());
    const Count& block = model.block(0, shape_of());
    const std::vector<Kind> expected = {
        Kind::norm_forward,   Kind::product_forward, Kind::attention_forward,  Kind::product_forward,
        Kind::norm_forward,   Kind::product_forward, Kind::activation_forward, Kind::copy,
        Kind::product_forward};
    BOOST_TEST((kinds_of(block.forward) == expected));
    BOOST_TEST(block.recompute.empty());
    BOOST_TEST(count_of(block.backward, Kind::product_input_gradient) == 4);  // queries, keys and values are one
    BOOST_TEST(count_of(block.backward, Kind::product_weight_gradient) == 4);
    // 64 rows of query, key, value and output, and of the MLP's two; half of the square of two sequences.
    const double rows = 64, products = 2 * rows * (4 * 64 * 64 + 2 * 64 * 256), attention = 2 * rows * 32 * 64;
    BOOST_TEST(total_flop(block.forward) == products + attention);
    BOOST_TEST(total_flop(block.backward) == 2 * (products + attention));
    // The norm of the mixer's output adds the residual stream first: four tensors and not two.
    BOOST_TEST(block.forward[0].bytes == 2 * rows * 64 * 4);
    BOOST_TEST(block.forward[4].bytes == 4 * rows * 64 * 4);
    // All blocks are one, which is kept.
    BOOST_TEST(model.alike(2) == 0);
    BOOST_TEST(&model.block(2, shape_of()) == &block);
    BOOST_TEST(ModelCount::of(small()).get() == ModelCount::of(small()).get());
}

// What is outside is not counted, and blocks with different windows are different blocks.
BOOST_AUTO_TEST_CASE(windows_are_counted) {
    config::ModelDescription windowed = small();
    windowed.windows = {8, 0};
    ModelCount model(windowed);
    BOOST_TEST(model.alike(1) == 1);
    BOOST_TEST(model.alike(2) == 0);
    const auto attention = [&](std::int64_t number) {
        const auto& operations = model.block(number, shape_of()).forward;
        return std::find_if(operations.begin(), operations.end(),
                            [](const auto& one) { return one.kind == Kind::attention_forward; })
            ->flop;
    };
    BOOST_TEST(attention(1) == 2.0 * 2 * 32 * 32 * 64);
    // The triangle of 24 queries beyond the window goes.
    BOOST_TEST(attention(0) == 2.0 * 2 * (32 * 32 - 24 * 24) * 64);
    // Queries 40 to 49 of a sequence, of which the first 30 keys are here: a window of 21 leaves keys 20 to 29.
    const kernels::AttentionShape part{1, 10, 30, 1, 1, 64, 40, 21};
    BOOST_TEST(kernels::attention_work(part, Type::fp32, false).flop == 4.0 * 64 * 60);
    BOOST_TEST(kernels::attention_work(part, Type::fp32, false).bytes == 4.0 * 2 * 64 * (10 + 10));
    windowed.logit_cap = 5;
    ModelCount capped(windowed);
    BOOST_TEST(count_of(capped.head(shape_of()).loss, Kind::cross_entropy) ==
               count_of(model.head(shape_of()).loss, Kind::cross_entropy) + 1);
}

BOOST_AUTO_TEST_CASE(what_is_made_again_is_apart) {
    ModelCount model(small());
    CountedShape shape = shape_of();
    const Count& none = model.block(0, shape);
    shape.recompute = Recompute::cheap;
    const Count& cheap = model.block(0, shape);
    BOOST_TEST((kinds_of(cheap.recompute) ==
                std::vector<Kind>{Kind::norm_forward, Kind::activation_forward, Kind::norm_forward}));
    BOOST_TEST((kinds_of(cheap.backward) == kinds_of(none.backward)));
    shape.recompute = Recompute::selective;
    const Count& selective = model.block(0, shape);
    BOOST_TEST((kinds_of(selective.recompute) == std::vector<Kind>{Kind::norm_forward, Kind::product_forward,
                                                                   Kind::activation_forward, Kind::norm_forward}));
    BOOST_TEST((kinds_of(selective.backward) == kinds_of(none.backward)));
    shape.recompute = Recompute::full;
    const Count& full = model.block(0, shape);
    // All but the product that ends the block, and the copy of the residual stream before it.
    BOOST_TEST(full.recompute.size() == full.forward.size() - 2);
    BOOST_TEST((kinds_of(full.backward) == kinds_of(none.backward)));
}

// Otherwise a product of a backward pass is taken for a part of the forward pass.
BOOST_AUTO_TEST_CASE(nothing_is_made_again_without_recomputation) {
    for (const char* mixer : {"attention", "ttt-linear", "ttt-mlp", "gated-deltanet"})
        for (const bool options : {false, true}) {
            config::ModelDescription description = small();
            description.mixers = {mixer};
            for (const char* name : {"gate", "share_qk", "pre_conv"})
                description.options.change("ttt").set(name, options);
            description.mlp = options ? config::MlpKind::swiglu : config::MlpKind::gelu;
            BOOST_TEST(ModelCount(description).block(0, shape_of()).recompute.empty(), mixer);
        }
}

// Queries and keys are neighbouring columns.
BOOST_AUTO_TEST_CASE(queries_and_keys_are_turned_in_one_pass) {
    for (const char* mixer : {"attention", "ttt-linear"}) {
        config::ModelDescription description = small();
        description.mixers = {mixer};
        description.position = config::Position::rope;
        ModelCount model(description);
        BOOST_TEST(count_of(model.block(0, shape_of()).forward, Kind::rotate) == 1, mixer);
        BOOST_TEST(count_of(model.block(0, shape_of()).backward, Kind::rotate) == 1, mixer);
        description.qk_norm = true;
        if (description.mixer(0) == "attention")
            BOOST_TEST(count_of(ModelCount(description).block(0, shape_of()).forward, Kind::rotate) == 2);
    }
}

// Heads of their own width and their norms: the products' sizes, two norms, and both again with the gradient.
BOOST_AUTO_TEST_CASE(heads_and_their_norms_are_counted) {
    config::ModelDescription wide = small();
    wide.heads = {4};
    wide.kv_heads = {2};
    wide.head_widths = {24};
    wide.qk_norm = true;
    ModelCount model(wide);
    CountedShape shape = shape_of();
    const Count& block = model.block(0, shape);
    const double rows = 64, products = 2 * rows * (64 * 24 * (4 + 2 + 2 + 4) + 2 * 64 * 256);
    const double attention = 2 * rows * 32 * 4 * 24;
    BOOST_TEST(total_flop(block.forward) == products + attention);
    BOOST_TEST(count_of(block.forward, Kind::norm_forward) == 4);
    BOOST_TEST(count_of(block.backward, Kind::norm_backward) == 4);
    BOOST_TEST(block.forward[4].bytes == 2 * rows * 4 * 24 * 4);  // of the queries, after the projections
    shape.recompute = Recompute::cheap;
    BOOST_TEST(count_of(model.block(0, shape).recompute, Kind::norm_forward) == 4);
    shape.tensor = 2;
    BOOST_TEST(model.block(0, shape).forward[4].bytes == rows * 4 * 24 * 4);
}

BOOST_AUTO_TEST_CASE(heads_too_wide_for_a_gpu_are_refused) {
    config::ModelDescription wide = small();
    wide.head_widths = {264};
    CountedShape shape = shape_of();
    BOOST_CHECK_NO_THROW(ModelCount(wide).block(0, shape));
    shape.device = DeviceKind::cuda;
    BOOST_CHECK_EXCEPTION(ModelCount(wide).block(0, shape), Error, [](const Error& error) {
        return std::string(error.what()).find("model.head_width = 264") != std::string::npos;
    });
    wide.head_widths = {256};
    BOOST_CHECK_NO_THROW(ModelCount(wide).block(0, shape));
}

BOOST_AUTO_TEST_CASE(what_is_frozen_has_no_gradient) {
    config::ModelDescription frozen = small();
    frozen.frozen = {"embedding/*", "blocks/0/*", "blocks/1/mixer*", "blocks/1/mlp_norm/*", "blocks/2/mlp/up/*"};
    ModelCount model(frozen);
    BOOST_TEST(model.alike(1) == 1);
    BOOST_TEST(model.block(0, shape_of()).backward.empty());
    // Of block 1 the MLP's weights, and the gradient that lies between them; block 2 lacks one of its eight.
    const auto products = [&](std::int64_t number) {
        const auto& backward = model.block(number, shape_of()).backward;
        return count_of(backward, Kind::product_input_gradient) + count_of(backward, Kind::product_weight_gradient);
    };
    BOOST_TEST(products(1) == 3);
    BOOST_TEST(products(2) == 7);
}

BOOST_AUTO_TEST_CASE(messages_are_counted_in_their_place) {
    ModelCount model(small());
    const Count& block = model.block(0, shape_of(2));
    BOOST_TEST(count_of(block.forward, Kind::all_reduce) == 2);
    BOOST_TEST(count_of(block.backward, Kind::all_reduce) == 2);
    const auto sum =
        std::find_if(block.forward.begin(), block.forward.end(), [](const auto& one) { return one.is_message(); });
    BOOST_TEST(sum->bytes == 64.0 * 64 * 4);
    BOOST_TEST((sum->group == kernels::MessageGroup::tensor));
    BOOST_TEST(((sum - 1)->kind == Kind::product_forward));
    const Count& divided = model.block(0, shape_of(2, true));
    BOOST_TEST(count_of(divided.forward, Kind::all_reduce) == 0);
    BOOST_TEST(count_of(divided.forward, Kind::all_gather) == 2);
    BOOST_TEST(count_of(divided.forward, Kind::reduce_scatter) == 2);
    // Of the loss: the maxima, and two sums a row.
    BOOST_TEST(count_of(model.head(shape_of(2)).loss, Kind::all_reduce) == 3);
    BOOST_TEST(count_of(model.embedding(shape_of(2)).forward, Kind::all_reduce) == 1);

    // Along a sequence a rank in the middle gets the state of every head and hands it on: [B, H, f, f] and [B, H, 1,
    // f].
    ModelCount ttt(small("ttt-linear"));
    CountedShape shape = shape_of();
    shape.pass.length = 16;
    shape.context = 2;
    for (const auto* part : {&ttt.block(0, shape).forward, &ttt.block(0, shape).backward}) {
        BOOST_TEST(count_of(*part, Kind::send) == 1);
        BOOST_TEST(count_of(*part, Kind::receive) == 1);
        const auto got =
            std::find_if(part->begin(), part->end(), [](const auto& one) { return one.kind == Kind::receive; });
        BOOST_TEST(got->bytes == 2.0 * 4 * (16 * 16 + 16) * 4);
    }
}

// Whatever the number of ranks, each computes its part of the scores, once.
BOOST_AUTO_TEST_CASE(attention_over_divided_sequences_is_shared_evenly) {
    ModelCount model(small());
    const auto flop = [](const std::vector<kernels::Operation>& operations, Kind kind) {
        double sum = 0;
        for (const auto& one : operations)
            if (one.kind == kind) sum += one.flop;
        return sum;
    };
    const auto received = [](const std::vector<kernels::Operation>& operations) {
        double bytes = 0;
        for (const auto& one : operations)
            if (one.kind == Kind::receive) bytes += one.bytes;
        return bytes;
    };
    const Count& whole = model.block(0, shape_of());
    for (const std::int64_t ranks : {2, 4, 8}) {
        CountedShape shape = shape_of();
        shape.pass.length = 32 / ranks;
        shape.context = ranks;
        const Count& part = model.block(0, shape);
        const auto share = static_cast<double>(ranks);
        BOOST_TEST(share * flop(part.forward, Kind::attention_forward) == flop(whole.forward, Kind::attention_forward));
        BOOST_TEST(share * flop(part.backward, Kind::attention_backward) ==
                   flop(whole.backward, Kind::attention_backward));
        BOOST_TEST(count_of(part.forward, Kind::send) > 0);
    }
    // The second of two ranks: keys and values of the first, and the results of half of its queries, with fp32
    // log_sum_exp.
    CountedShape shape = shape_of();
    shape.pass.length = 16;
    shape.context = 2;
    const double rows = 2 * 16, row = 64 * 4, head_row = 4 * 4;
    BOOST_TEST(received(model.block(0, shape).forward) == 2 * rows * row + rows / 2 * (row + head_row));
    BOOST_TEST(received(model.block(0, shape).backward) == 2 * rows * row + rows / 2 * row);
}

BOOST_AUTO_TEST_CASE(operations_of_ones_own_say_what_they_cost) {
    kernels::CountingBackend backend(DeviceKind::cuda);
    bool done = false;
    backend.custom({"average", 12, 34}, [&] { done = true; });
    BOOST_TEST(!done);
    const auto counted = backend.take();
    BOOST_TEST_REQUIRE(counted.size() == 1U);
    BOOST_TEST((counted[0].kind == Kind::custom));
    BOOST_TEST(counted[0].flop == 12);
    BOOST_TEST(counted[0].bytes == 34);
    BOOST_TEST(backend.operations().empty());
}
