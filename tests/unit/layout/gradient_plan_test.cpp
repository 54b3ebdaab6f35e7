// The buckets that gradients are reduced in, and how they are cut among replicas.
#include <boost/test/unit_test.hpp>
#include <numeric>
#include <set>

#include "layout/gradient_plan.hpp"
#include "layout/rank_share.hpp"
#include "model/frozen.hpp"
#include "optim/adamw.hpp"
#include "optim/registry.hpp"
#include "unit/layout/small_run.hpp"

using namespace lockstep;
using namespace lockstep::layout;

BOOST_AUTO_TEST_SUITE(gradient_plan)

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
                options.tied_apart = tied_ends;
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

BOOST_AUTO_TEST_CASE(windows_that_share_memory_are_not_needed_together) {
    config::RunDescription description = small();
    for (const bool tied : {false, true})
        for (const std::int64_t pipeline : {1, 2, 3})
            for (const bool frozen : {false, true}) {
                description.model.tied_head = tied;
                description.model.position = config::Position::learned;
                description.model.frozen.clear();
                if (frozen) description.model.frozen = {"blocks/[02]/*", "position/weight"};
                if (frozen && !tied) description.model.frozen = {"embedding/*", "head/*", "blocks/1/*"};
                description.parallel.zero = 3;
                description.parallel.interleave = pipeline > 1 ? 2 : 1;
                const config::Grid grid{1, 1, 2, pipeline};
                for (std::int64_t stage = 0; stage < pipeline; ++stage) {
                    const auto chunks = share_of_model(description, grid, stage);
                    const model::ParameterLayout layout(model::describe_parameters(description.model, chunks), {});
                    const GradientPlan plan = plan_gradients(description, grid, {0, 0, 1, stage}, layout, chunks);
                    const bool end = stage == 0 || stage + 1 == pipeline;
                    BOOST_TEST(plan.tied.has_value() == (tied && end));
                    std::int64_t covered = 0;
                    for (const Bucket& bucket : plan.buckets) covered += bucket.range.count;
                    BOOST_TEST(covered == layout.trained_total());
                    std::int64_t behind = layout.trained_total();
                    for (const Bucket& bucket : plan.frozen) {
                        BOOST_TEST(bucket.range.first == behind);
                        behind += bucket.range.count;
                        BOOST_TEST((bucket.cuts.front() == 0 && bucket.cuts.back() == bucket.range.count));
                        for (const Bucket& trained : plan.buckets) BOOST_TEST(trained.buffer != bucket.buffer);
                    }
                    BOOST_TEST(behind == layout.total());
                    for (const auto& segments : plan.chunks) {
                        BOOST_TEST((segments.front().first && segments.back().last));
                        const Bucket* before = nullptr;  // of the segment before
                        for (const Segment& segment : segments) {
                            const Bucket* bucket = segment.bucket ? &plan.buckets[*segment.bucket] : nullptr;
                            if (bucket != nullptr) BOOST_TEST(bucket->range.count > 0);
                            // A pass goes from one bucket to the next, which is computed while the other is sent.
                            if (before != nullptr && bucket != nullptr) BOOST_TEST(before->buffer != bucket->buffer);
                            if (plan.tied && bucket != nullptr)
                                BOOST_TEST(bucket->buffer != plan.buckets[*plan.tied].buffer);
                            before = bucket;
                        }
                    }
                }
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
                    options.tied_apart = tied_ends;
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

BOOST_AUTO_TEST_SUITE_END()
