// How a run is laid out: process grids, pieces of the model, buckets of gradients, batches.
#define BOOST_TEST_MODULE layout
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <numeric>
#include <set>

#include "base/random.hpp"
#include "cluster/process_grid.hpp"
#include "layout/batch_plan.hpp"
#include "layout/even_cut.hpp"
#include "layout/gradient_plan.hpp"
#include "layout/run_layout.hpp"
#include "model/frozen.hpp"
#include "optim/adamw.hpp"
#include "optim/registry.hpp"

using namespace lockstep;
using namespace lockstep::layout;

namespace {

config::RunDescription small() {
    config::RunDescription description;
    auto& model = description.model;
    model.mixers = {"ttt-linear"};
    model.width = 32;
    model.layers = 6;
    model.heads = {4};
    model.mlp_width = 48;
    model.vocabulary = 259;
    model.context = 32;
    model.options.change("ttt").set("mini_batch", 4);
    config::resolve(model);
    description.batch.global = 12;
    description.batch.length = 32;
    return description;
}

std::string sentence_of(const std::function<void()>& work) {
    try {
        work();
    } catch (const Error& error) {
        BOOST_TEST(static_cast<int>(error.code()) == 2);
        return error.what();
    }
    return "";
}

}  // namespace

BOOST_AUTO_TEST_CASE(ranks_have_places_and_groups) {
    const config::Grid shape{2, 3, 2, 2};
    std::set<std::vector<int>> tensor, replicas;
    for (int rank = 0; rank < shape.ranks(); ++rank) {
        const cluster::GridPlace place = cluster::grid_place(rank, shape);
        BOOST_TEST(cluster::grid_rank(place, shape) == rank);
        tensor.insert(cluster::ranks_along(rank, shape, {cluster::Axis::tensor}));
        replicas.insert(cluster::ranks_along(rank, shape, {cluster::Axis::data, cluster::Axis::context}));
        const auto own = cluster::ranks_along(rank, shape, {cluster::Axis::data, cluster::Axis::context});
        BOOST_TEST(own[static_cast<std::size_t>(place.replica(shape))] == rank);
    }
    BOOST_TEST(tensor.size() == 12u);   // neighbours, two by two
    BOOST_TEST(replicas.size() == 4u);  // one group for each tensor rank and stage
    BOOST_TEST((cluster::ranks_along(5, shape, {cluster::Axis::tensor}) == std::vector<int>{4, 5}));
}

BOOST_AUTO_TEST_CASE(grids_follow_the_description_or_are_refused_with_others) {
    config::RunDescription description = small();
    description.parallel.tensor = 2;
    const config::Grid grid = choose_grid(description, 8);
    BOOST_TEST((grid.tensor == 2 && grid.data == 4 && grid.pipeline == 1 && grid.context == 1));
    description.parallel.tensor = 3;
    BOOST_TEST(
        sentence_of([&] { choose_grid(description, 6); }) ==
        "parallel.tensor = 3 does not divide model.heads = 4; possible with 6 ranks: data 3 x tensor 2 x pipeline 1, "
        "or data 6 x tensor 1 x pipeline 1, or data 1 x tensor 2 x pipeline 3");
    description.parallel.tensor = 1;
    BOOST_TEST(sentence_of([&] {
                   choose_grid(description, 7);
               }).find("12 sequences, which do not divide evenly among 7") != std::string::npos);
    BOOST_TEST(sentence_of([&] { choose_grid(description, 11); }).find("no grid of 11 ranks is possible") !=
               std::string::npos);
    description.parallel.context = 2;
    description.batch.length = 20;
    BOOST_TEST(sentence_of([&] { choose_grid(description, 2); }).find("whole mini-batches") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(the_most_ranks_that_a_grid_can_have) {
    config::RunDescription description = small();
    description.parallel.data = 0;  // "auto": 12 sequences divide among 1, 2, 3, 4, 6 or 12
    for (const auto& [limit, ranks] : {std::pair{100, 12}, {12, 12}, {11, 6}, {5, 4}, {1, 1}, {0, 0}})
        BOOST_TEST(most_ranks(description, limit) == ranks);
    description.parallel.tensor = 2;
    BOOST_TEST(most_ranks(description, 11) == 8);
    BOOST_TEST(most_ranks(description, 1) == 0);
    description.parallel.data = 3;
    BOOST_TEST(most_ranks(description, 11) == 6);
    BOOST_TEST(most_ranks(description, 5) == 0);
    description.parallel.data = 5;
    BOOST_TEST(most_ranks(description, 100) == 0);
}

BOOST_AUTO_TEST_CASE(pieces_are_whole_blocks_of_even_work) {
    config::RunDescription description = small();
    auto& model = description.model;
    const auto counts = [&](std::int64_t pieces) {
        std::vector<std::int64_t> list;
        std::int64_t next = 0;
        for (const auto& range : cut_model(model, 32, pieces)) {
            BOOST_TEST(range.first_block == next);
            next = range.last_block;
            list.push_back(range.last_block - range.first_block);
        }
        BOOST_TEST(next == model.layers);
        return list;
    };
    BOOST_TEST((counts(1) == std::vector<std::int64_t>{6}));
    BOOST_TEST((counts(6) == std::vector<std::int64_t>{1, 1, 1, 1, 1, 1}));
    model.vocabulary = 5000;  // a head that is the work of many of these blocks
    BOOST_TEST((counts(2) == std::vector<std::int64_t>{5, 1}));
    BOOST_TEST((counts(3) == std::vector<std::int64_t>{2, 3, 1}));  // the embedding is work, too
    model.vocabulary = 8;
    BOOST_TEST((counts(2) == std::vector<std::int64_t>{3, 3}));
    BOOST_TEST((counts(3) == std::vector<std::int64_t>{2, 2, 2}));
}

// Attention at a long context is the work of many blocks of TTT.
BOOST_AUTO_TEST_CASE(pieces_of_hybrids_weigh_each_block) {
    config::RunDescription description = small();
    auto& model = description.model;
    model.mixers = {"attention", "ttt-linear", "ttt-linear", "ttt-linear", "ttt-linear", "ttt-linear"};
    model.context = 8192;
    const auto counts = [&](std::int64_t length, std::int64_t pieces) {
        std::vector<std::int64_t> list;
        for (const auto& range : cut_model(model, length, pieces)) list.push_back(range.last_block - range.first_block);
        return list;
    };
    BOOST_TEST((counts(32, 2) == std::vector<std::int64_t>{3, 3}));
    BOOST_TEST((counts(8192, 2) == std::vector<std::int64_t>{1, 5}));
    BOOST_TEST((counts(8192, 3) == std::vector<std::int64_t>{1, 3, 2}));  // the head is work, too
    model.mixers = {"ttt-linear", "ttt-linear", "attention"};
    BOOST_TEST((counts(8192, 2) == std::vector<std::int64_t>{3, 3}));
    BOOST_TEST((counts(8192, 6) == std::vector<std::int64_t>{1, 1, 1, 1, 1, 1}));
}

namespace {

double heaviest(const std::vector<double>& items, const std::vector<std::int64_t>& counts, double first, double last) {
    double most = 0;
    std::size_t item = 0;
    for (std::size_t piece = 0; piece < counts.size(); ++piece) {
        double work = (piece == 0 ? first : 0) + (piece + 1 == counts.size() ? last : 0);
        for (std::int64_t i = 0; i < counts[piece]; ++i) work += items.at(item++);
        most = std::max(most, work);
    }
    BOOST_TEST(item == items.size());
    return most;
}

// The least that any cut of the items from `begin` on has.
double least_heaviest(const std::vector<double>& items, std::size_t begin, std::int64_t pieces, double first,
                      double last) {
    double work = first, least = INFINITY;
    const auto count = static_cast<std::int64_t>(items.size() - begin);
    for (std::int64_t taken = 1; taken <= count - pieces + 1; ++taken) {
        work += items[begin + static_cast<std::size_t>(taken) - 1];
        if (pieces > 1)
            least = std::min(least, std::max(work, least_heaviest(items, begin + static_cast<std::size_t>(taken),
                                                                  pieces - 1, 0, last)));
        else if (taken == count)
            least = work + last;
    }
    return least;
}

}  // namespace

BOOST_AUTO_TEST_CASE(no_cut_has_a_lighter_heaviest_piece) {
    const RandomStream random(7, "cuts");
    std::uint64_t drawn = 0;
    for (int repeat = 0; repeat < 300; ++repeat) {
        std::vector<double> items;
        for (std::int64_t left = 1 + static_cast<std::int64_t>(random.bits(drawn++) % 10); left > 0; --left)
            items.push_back(random.bits(drawn++) % 3 == 0 ? 10 : 1 + static_cast<double>(random.bits(drawn++) % 4));
        const double first = static_cast<double>(random.bits(drawn++) % 8),
                     last = static_cast<double>(random.bits(drawn++) % 30);
        for (std::int64_t pieces = 1; pieces <= static_cast<std::int64_t>(items.size()); ++pieces) {
            const auto counts = cut_evenly(items, pieces, first, last);
            BOOST_TEST_REQUIRE(counts.size() == static_cast<std::size_t>(pieces));
            BOOST_TEST(*std::min_element(counts.begin(), counts.end()) >= 1);
            BOOST_TEST(heaviest(items, counts, first, last) == least_heaviest(items, 0, pieces, first, last),
                       boost::test_tools::tolerance(1e-12));
        }
    }
}

// Equal items go one by one to the piece with the least work.
BOOST_AUTO_TEST_CASE(equal_items_are_dealt_out) {
    for (const double item : {1.0, 0.1, 7.3})
        for (const double first : {0.0, 0.3, 2.0})
            for (const double last : {0.0, 0.7, 5.0})
                for (const std::int64_t count : {1, 5, 24, 97})
                    for (const std::int64_t pieces : {1, 2, 3, 5, 8, 24}) {
                        if (pieces > count) continue;
                        std::vector<double> work(static_cast<std::size_t>(pieces), item);
                        std::vector<std::int64_t> dealt(work.size(), 1);
                        work.front() += first;
                        work.back() += last;
                        for (std::int64_t left = count - pieces; left > 0; --left) {
                            // The first of those with the least but for rounding.
                            const double least = *std::min_element(work.begin(), work.end());
                            std::size_t at = 0;
                            while (work[at] > least * (1 + 1e-9)) ++at;
                            work[at] += item;
                            ++dealt[at];
                        }
                        const std::vector<double> items(static_cast<std::size_t>(count), item);
                        BOOST_TEST(cut_evenly(items, pieces, first, last) == dealt, boost::test_tools::per_element());
                    }
}

BOOST_AUTO_TEST_CASE(buckets_cover_all_gradients_once) {
    const config::RunDescription description = small();
    for (const bool tied_ends : {false, true})
        for (const std::int64_t bucket_bytes : {1, 20000, 1 << 30})
            for (const std::int64_t replicas : {1, 2, 3, 5}) {
                std::vector<model::StageRange> chunks = {{0, 2, true, false}, {4, 6, false, !tied_ends}};
                const model::ParameterLayout layout(model::describe_parameters(description.model, chunks), {1, 2});
                GradientPlanOptions options;
                options.bucket_bytes = bucket_bytes;
                options.replicas = replicas;
                options.tied_ends = tied_ends;
                options.shared_layers = true;
                const GradientPlan plan = plan_gradients(layout, chunks, options);
                std::vector<int> covered(static_cast<std::size_t>(layout.total()), 0);
                for (std::int64_t replica = 0; replica < replicas; ++replica) {
                    std::int64_t end = 0;
                    for (const model::Piece& piece : plan.owned(replica)) {
                        BOOST_TEST(piece.first >= end);
                        end = piece.first + piece.count;
                        BOOST_TEST(piece.first % model::ParameterLayout::alignment == 0);
                        for (std::int64_t i = piece.first; i < end; ++i) ++covered[static_cast<std::size_t>(i)];
                    }
                }
                BOOST_TEST(std::all_of(covered.begin(), covered.end(), [](int count) { return count == 1; }));
                BOOST_TEST(plan.tied.has_value() == tied_ends);
                for (const auto& segments : plan.chunks) {
                    BOOST_TEST((segments.front().first && segments.back().last));
                    std::size_t left = 2;  // blocks
                    for (const Segment& segment : segments) {
                        BOOST_TEST(segment.last_block == left);
                        left = segment.first_block;
                    }
                    BOOST_TEST(left == 0u);
                }
                std::size_t partial = 0;
                for (const Bucket& bucket : plan.buckets) partial += bucket.partial.size();
                BOOST_TEST(partial == 4u);  // a token_step for each block
            }
}

namespace {

// May be cut nowhere, at blocks, or anywhere, by the name of the parameter.
class ByName final : public optim::OptimizerType {
  public:
    ByName() : OptimizerType("by-name") {}
    std::vector<optim::StateDescription> states(const model::ParameterDescription&) const override { return {}; }
    optim::Granularity granularity(const model::ParameterDescription& parameter) const override {
        using Unit = optim::Granularity::Unit;
        if (!parameter.matrix) return {};
        return parameter.name.find("mlp") == std::string::npos ? optim::Granularity{Unit::matrix}
                                                               : optim::Granularity{Unit::block, block};
    }
    std::unique_ptr<optim::Optimizer> make(const optim::OptimizerSetup&) const override { return nullptr; }
    static constexpr std::int64_t block = 96;  // with the alignment of 128: cuts at multiples of 384
};

}  // namespace

BOOST_AUTO_TEST_CASE(buckets_are_cut_where_the_optimizer_can_be_divided) {
    const config::RunDescription description = small();
    const ByName optimizer;
    const std::vector<model::StageRange> chunks = {{0, 3, true, false}, {3, 6, false, true}};
    for (const std::int64_t tensor : {1, 2})
        for (const std::int64_t bucket_bytes : {1, 20000, 1 << 30})
            for (const std::int64_t replicas : {1, 2, 3, 5}) {
                const model::ParameterLayout layout(model::describe_parameters(description.model, chunks), {0, tensor});
                GradientPlanOptions options;
                options.bucket_bytes = bucket_bytes;
                options.replicas = replicas;
                options.optimizer = &optimizer;
                const GradientPlan plan = plan_gradients(layout, chunks, options);
                std::int64_t inside = 0;
                for (const Bucket& bucket : plan.buckets)
                    for (const std::int64_t cut : bucket.cuts) {
                        const std::int64_t position = bucket.range.first + cut;
                        if (position == layout.total()) continue;
                        const std::size_t index = layout.at(position);
                        const std::int64_t within = position - layout.offset(index);
                        const optim::Granularity granularity = optimizer.granularity(layout.descriptions()[index]);
                        BOOST_TEST(position % model::ParameterLayout::alignment == 0);
                        inside += within > 0 ? 1 : 0;
                        if (granularity.unit == optim::Granularity::Unit::matrix) BOOST_TEST(within == 0);
                        if (granularity.unit == optim::Granularity::Unit::block)
                            BOOST_TEST(within % ByName::block == 0);
                    }
                if (replicas == 5) BOOST_TEST(inside > 0);  // the rule is not kept by chance
            }
}

// With fewer matrices in a bucket than replicas, other replicas have those of the next bucket.
BOOST_AUTO_TEST_CASE(whole_matrices_are_evened_out_over_the_buckets) {
    config::RunDescription description = small();
    description.model.layers = 24;
    const std::vector<model::StageRange> chunks = {{0, 24, false, false}};
    const model::ParameterLayout layout(model::describe_parameters(description.model, chunks), {0, 1});
    GradientPlanOptions options;
    options.bucket_bytes = 1;  // a bucket a block
    options.replicas = 16;
    options.optimizer = &optim::optimizer_named("muon");
    const GradientPlan plan = plan_gradients(layout, chunks, options);
    BOOST_TEST(plan.buckets.size() == 24u);
    std::int64_t sum = 0, most = 0, least = layout.total();
    for (std::int64_t replica = 0; replica < options.replicas; ++replica) {
        std::int64_t count = 0;
        for (const model::Piece& piece : plan.owned(replica)) count += piece.count;
        sum += count;
        most = std::max(most, count);
        least = std::min(least, count);
    }
    BOOST_TEST(sum == layout.trained_total());
    BOOST_TEST_MESSAGE("of " << sum << ": " << least << " to " << most);
    BOOST_TEST(static_cast<double>(most) < 1.75 * static_cast<double>(sum) / 16);
    BOOST_TEST(static_cast<double>(least) > 0.5 * static_cast<double>(sum) / 16);
}

// One collective takes parts of one size; the last replica has the few elements that are left over.
BOOST_AUTO_TEST_CASE(parts_are_of_one_size_unless_much_is_left_over) {
    const config::RunDescription description = small();
    const std::vector<model::StageRange> chunks = {{0, 6, true, true}};
    const model::ParameterLayout layout(model::describe_parameters(description.model, chunks), {0, 1});
    constexpr std::int64_t unit = model::ParameterLayout::alignment;
    const std::int64_t units = layout.total() / unit;
    int with_rest = 0, spread = 0;
    for (std::int64_t replicas = 2; replicas < 70; ++replicas) {
        GradientPlanOptions options;
        options.bucket_bytes = 1 << 30;
        options.replicas = replicas;
        const GradientPlan plan = plan_gradients(layout, chunks, options);
        BOOST_TEST_REQUIRE(plan.buckets.size() == 1u);
        const std::vector<std::int64_t>& cuts = plan.buckets[0].cuts;
        const std::int64_t each = units / replicas, rest = units % replicas;
        for (std::size_t part = 0; part + 1 < cuts.size(); ++part) {
            const std::int64_t size = (cuts[part + 1] - cuts[part]) / unit;
            if (16 * rest <= each)
                BOOST_TEST(size == each + (part + 2 == cuts.size() ? rest : 0));
            else
                BOOST_TEST((size == each || size == each + 1));
        }
        with_rest += rest > 0 && 16 * rest <= each ? 1 : 0;
        spread += 16 * rest > each ? 1 : 0;
    }
    BOOST_TEST(with_rest > 0);
    BOOST_TEST(spread > 0);
}

// What is trained, and nothing else; a block or a stage may be without.
BOOST_AUTO_TEST_CASE(buckets_leave_out_what_is_frozen) {
    using Patterns = std::vector<std::string>;
    const std::vector<model::StageRange> chunks = {{0, 2, true, false}, {4, 6, false, true}};
    for (const Patterns& frozen :
         {Patterns{"embedding/*"}, Patterns{"blocks/0/*"}, Patterns{"embedding/*", "blocks/[01]/*"},
          Patterns{"blocks/[145]/*", "final_norm/*"}, Patterns{"*/mixer/*"}, Patterns{"*norm/*", "blocks/*"},
          Patterns{"embedding/*", "blocks/[0145]/*", "final_norm/*"}})
        for (const bool tied_ends : {false, true})
            for (const std::int64_t bucket_bytes : {1, 20000, 1 << 30})
                for (const std::int64_t replicas : {1, 3}) {
                    config::ModelDescription model = small().model;
                    model.frozen = frozen;
                    const model::ParameterLayout layout(model::describe_parameters(model, chunks), {1, 2});
                    GradientPlanOptions options;
                    options.bucket_bytes = bucket_bytes;
                    options.replicas = replicas;
                    options.tied_ends = tied_ends;
                    options.shared_layers = true;
                    const GradientPlan plan = plan_gradients(layout, chunks, options);
                    std::vector<int> covered(static_cast<std::size_t>(layout.total()), 0);
                    for (const Bucket& bucket : plan.buckets) {
                        BOOST_TEST(bucket.range.count > 0);
                        for (std::int64_t i = 0; i < bucket.range.count; ++i)
                            ++covered[static_cast<std::size_t>(bucket.range.first + i)];
                        for (const std::size_t index : bucket.partial) BOOST_TEST(layout.descriptions()[index].trained);
                    }
                    for (std::int64_t i = 0; i < layout.total(); ++i)
                        BOOST_REQUIRE(covered[static_cast<std::size_t>(i)] == (i < layout.trained_total() ? 1 : 0));
                    BOOST_TEST(plan.tied.has_value() == (tied_ends && !model::is_frozen(model, "embedding/weight")));
                    std::set<std::size_t> reduced;
                    if (plan.tied) reduced.insert(*plan.tied);
                    for (const auto& segments : plan.chunks) {
                        BOOST_TEST((segments.front().first && segments.back().last));
                        BOOST_TEST(segments.back().first_block == 0u);
                        std::size_t left = 2;  // blocks
                        for (const Segment& segment : segments) {
                            BOOST_TEST(segment.last_block == left);
                            left = segment.first_block;
                            if (segment.bucket) BOOST_TEST(reduced.insert(*segment.bucket).second);
                        }
                        // Without a bucket only where nothing of the chunk is trained.
                        BOOST_TEST((segments.size() == 1 || segments.back().bucket.has_value()));
                    }
                    BOOST_TEST(reduced.size() == plan.buckets.size());
                }
}

// With lanes, so that the sums of squares of whole blocks are any number of replicas'.
BOOST_AUTO_TEST_CASE(cuts_lie_between_blocks_of_a_parameter) {
    config::RunDescription description = small();
    description.model.vocabulary = 5003;
    const auto chunks = std::vector<model::StageRange>{model::whole_model(description.model)};
    const model::ParameterLayout layout(model::describe_parameters(description.model, chunks), {});
    for (const std::int64_t replicas : {1, 2, 3, 7, 30})
        for (const std::int64_t bucket_bytes : {1 << 10, 1 << 17, 1 << 25}) {
            GradientPlanOptions options;
            options.bucket_bytes = bucket_bytes;
            options.replicas = replicas;
            options.block = 4096;
            for (const Bucket& bucket : plan_gradients(layout, chunks, options).buckets) {
                BOOST_TEST(bucket.cuts.size() == static_cast<std::size_t>(replicas + 1));
                BOOST_TEST(bucket.cuts.front() == 0);
                BOOST_TEST(bucket.cuts.back() == bucket.range.count);
                BOOST_TEST(std::is_sorted(bucket.cuts.begin(), bucket.cuts.end()));
                for (std::size_t i = 1; i + 1 < bucket.cuts.size(); ++i) {
                    const std::int64_t position = bucket.range.first + bucket.cuts[i];
                    if (bucket.cuts[i] == bucket.range.count) continue;
                    BOOST_TEST((position - layout.offset(layout.at(position))) % options.block == 0);
                    // No further from an even one than half a block.
                    const double even = static_cast<double>(bucket.range.count) * static_cast<double>(i) /
                                        static_cast<double>(replicas);
                    BOOST_TEST(std::abs(static_cast<double>(bucket.cuts[i]) - even) <= 4096 / 2 + even / 16 + 256);
                }
            }
        }
}

BOOST_AUTO_TEST_CASE(a_rank_without_trained_parameters_has_no_optimizer_state) {
    config::ModelDescription model = small().model;
    model.frozen = {"blocks/[345]/*", "final_norm/*", "embedding/*"};
    for (const Type compute : {Type::fp32, Type::bf16}) {
        const auto backend = kernels::make_cpu_backend();
        model::ParameterSet parameters(
            {}, model::ParameterLayout(model::describe_parameters(model, {3, 6, false, true}), {}), true, compute);
        parameters.initialize(*backend, 1);
        BOOST_TEST(parameters.all_gradients().empty());
        optim::AdamW optimizer({*backend, parameters, {}, {optim::counted_pieces(parameters, {}, true)}});
        BOOST_TEST(optimizer.state().all().empty());
        BOOST_TEST(optimizer.padding() == 0);
        double loss = 1;
        optimizer.update(1e-2, Tensor(&loss, Type::fp64, {1}));
        BOOST_TEST(optimizer.decision().fp64()[kernels::Decision::gradient_norm] == 0);
    }
}

BOOST_AUTO_TEST_CASE(every_parameter_counts_once_in_the_norm) {
    const config::RunDescription description = small();
    const auto& model = description.model;
    std::int64_t counted = 0;
    const std::vector<model::StageRange> stages = {{0, 3, true, false}, {3, 6, false, true}};
    for (std::size_t stage = 0; stage < stages.size(); ++stage)
        for (std::int64_t rank = 0; rank < 2; ++rank) {
            const model::Part part{rank, 2};
            model::ParameterSet parameters(
                {}, model::ParameterLayout(model::describe_parameters(model, stages[stage]), part), true);
            const auto backend = kernels::make_cpu_backend();
            optim::NormPlan norm{optim::counted_pieces(parameters, part, stage == 1), nullptr};
            const optim::AdamW optimizer({*backend, parameters, {}, norm});
            for (const model::Piece& piece : norm.counted) counted += piece.count;
            counted -= optimizer.padding();
        }
    BOOST_TEST(counted == model::parameter_count(model));
}

BOOST_AUTO_TEST_CASE(batches_grow_with_the_samples) {
    config::BatchSection batch;
    batch.global = 32;
    batch.length = 16;
    batch.ramp = config::BatchRamp{8, 8, 96};
    BOOST_TEST((batch_sizes(batch) == std::vector<std::int64_t>{8, 16, 24, 32}));
    BOOST_TEST(batch_after(batch, 0) == 8);
    BOOST_TEST(batch_after(batch, 31) == 8);
    BOOST_TEST(batch_after(batch, 32) == 16);
    BOOST_TEST(batch_after(batch, 95) == 24);
    BOOST_TEST(batch_after(batch, 96) == 32);
    // 8 8 8 8, 16 16, 24 24, then 32 each.
    BOOST_TEST(steps_for(batch, 32) == 4);
    BOOST_TEST(steps_for(batch, 32 + 32 + 48 + 320) == 18);
    BOOST_TEST(micro_batch_size(batch, {2}, 1, 1 << 20) == 4);
    BOOST_TEST(micro_batch_size(batch, {2}, 2, 1 << 20) == 2);
    BOOST_TEST(micro_batch_size(batch, {1}, 1, 3 * 16) == 2);      // three would fit, but do not divide 8
    BOOST_TEST(micro_batch_size(batch, {1}, 1, 1 << 20, 4) == 2);  // four micro-batches of the smallest
    batch.micro = 4;
    BOOST_TEST(sentence_of([&] { micro_batch_size(batch, {4}, 1, 1); }).find("which batch.micro = 4 does not divide") !=
               std::string::npos);
    BOOST_TEST(sentence_of([&] { micro_batch_size(batch, {3}, 1, 1); }).find("do not divide evenly among 3 replicas") !=
               std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_validation_takes_a_tenth_of_the_training) {
    config::ValidationSection validation;
    const auto batches = [&](std::int64_t every) {
        validation.every = every;
        return layout::validation_batches(validation, 1000);
    };
    // Forward passes of so many batches, over three times the FLOP of `every` batches.
    for (const std::int64_t every : {1, 5, 100})
        BOOST_TEST(batches(every) / (3 * static_cast<double>(every)) == 0.1, boost::test_tools::tolerance(1e-12));
    BOOST_TEST(batches(0) == 300);  // at the end only
    BOOST_TEST(batches(5000) == 300);
    validation.batches = 4;
    BOOST_TEST(batches(1) == 4);
    validation.batches = 0;
    BOOST_TEST(batches(1) == 0);
}
