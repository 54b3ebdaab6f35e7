// An optimizer of the test's own against its naive twin, divided among replicas, and what a state may look like.
#define BOOST_TEST_MODULE momentum_sgd
#include "extension/momentum_sgd.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <set>

#include "cost/job.hpp"
#include "kernels/counting_backend.hpp"
#include "layout/rank_share.hpp"
#include "optim/registry.hpp"

using namespace lockstep;

namespace {

constexpr double rate = 0.05, kept = 0.75;

config::RunDescription small() {
    config::RunDescription description;
    auto& model = description.model;
    model.mixers = {"ttt-linear"};
    model.width = 16;
    model.layers = 2;
    model.heads = {2};
    model.mlp_width = 24;
    model.vocabulary = 61;
    model.context = 32;
    config::resolve(model);
    description.batch.global = 6;
    description.batch.length = 32;
    description.optimizer.kind = tests::momentum_sgd().name();
    description.optimizer.options.change("momentum-sgd").set("momentum", kept);
    description.optimizer.clip = 0;  // each rank of this test would see a norm of its own
    description.parallel.zero = 1;
    description.parallel.bucket_bytes = 5000;
    return description;
}

float gradient_of(std::int64_t element, int step) {
    return static_cast<float>((element * 37 + step * 11) % 101 - 50) / 64;
}

// One replica of several, which has updated its part.
struct Replica {
    Replica(const config::RunDescription& description, int number, int replicas, const model::Part& part, Type compute)
        : backend(kernels::make_cpu_backend()) {
        config::Grid grid;
        grid.tensor = part.size;
        grid.data = replicas;
        cluster::GridPlace place;
        place.tensor = part.rank;
        place.data = number;
        const auto chunks = layout::share_of_model(description, grid, 0);
        const model::ParameterLayout layout(model::describe_parameters(description.model, chunks), part);
        plan = layout::plan_gradients(description, grid, place, layout, chunks);
        const auto owned = replicas > 1 ? plan.owned(number) : std::vector<model::Piece>{};
        parameters =
            std::make_unique<model::ParameterSet>(backend->device(), layout, true, compute, model::Division{owned});
        parameters->initialize(*backend, 5);
        optimizer = optim::make_optimizer({*backend, *parameters, description.optimizer, {parameters->owned()}});
    }
    void step(int number) {
        const model::ParameterLayout& layout = parameters->layout();
        float* gradients = parameters->all_gradients().fp32();
        for (std::size_t i = 0; i < layout.size(); ++i)
            for (std::int64_t e = 0; e < layout.count(i); ++e)
                gradients[layout.offset(i) + e] = gradient_of(layout.offset(i) + e, number);
        double loss = 1;
        optimizer->update(rate, Tensor(&loss, Type::fp64, {1}));
    }

    std::unique_ptr<kernels::Backend> backend;
    layout::GradientPlan plan;
    std::unique_ptr<model::ParameterSet> parameters;
    std::unique_ptr<optim::Optimizer> optimizer;
};

}  // namespace

BOOST_AUTO_TEST_CASE(replicas_update_whole_matrices_as_the_naive_twin_does) {
    constexpr int steps = 3;
    const config::RunDescription description = small();
    for (const Type compute : {Type::fp32, Type::bf16})
        for (const std::int64_t tensor : {1, 2})
            for (const int replicas : {1, 2, 3}) {
                const model::Part part{tensor - 1, tensor};
                std::vector<int> updates;
                for (int number = 0; number < replicas; ++number) {
                    Replica replica(description, number, replicas, part, compute);
                    const model::ParameterLayout& layout = replica.parameters->layout();
                    updates.resize(layout.size());
                    std::set<std::int64_t> boundaries = {0, layout.total()};
                    for (std::size_t i = 0; i < layout.size(); ++i) boundaries.insert(layout.offset(i));
                    std::vector<std::vector<double>> values, momenta;  // of each owned piece
                    for (std::size_t p = 0; p < replica.parameters->owned().size(); ++p) {
                        const model::Piece& piece = replica.parameters->owned()[p];
                        BOOST_TEST(boundaries.count(piece.first) == 1u);
                        BOOST_TEST(boundaries.count(piece.first + piece.count) == 1u);
                        const Tensor value = replica.parameters->owned_value(p);
                        values.emplace_back(value.fp32(), value.fp32() + piece.count);
                        momenta.emplace_back(static_cast<std::size_t>(piece.count));
                    }
                    for (int step = 0; step < steps; ++step) {
                        replica.step(step);
                        for (std::size_t p = 0; p < values.size(); ++p)
                            for (std::size_t i = 0; i < layout.size(); ++i) {
                                const model::Piece& piece = replica.parameters->owned()[p];
                                if (layout.offset(i) < piece.first || layout.offset(i) >= piece.first + piece.count)
                                    continue;
                                updates[i] += step == 0 ? 1 : 0;
                                for (std::int64_t e = 0; e < layout.count(i); ++e) {
                                    const auto at = static_cast<std::size_t>(layout.offset(i) - piece.first + e);
                                    momenta[p][at] = kept * momenta[p][at] +
                                                     static_cast<double>(gradient_of(layout.offset(i) + e, step));
                                    values[p][at] -= rate * momenta[p][at];
                                }
                            }
                    }
                    for (std::size_t p = 0; p < values.size(); ++p)
                        for (std::size_t e = 0; e < values[p].size(); ++e)
                            BOOST_REQUIRE(std::abs(static_cast<double>(replica.parameters->owned_value(p).fp32()[e]) -
                                                   values[p][e]) < 1e-6);
                }
                BOOST_TEST(std::all_of(updates.begin(), updates.end(), [](int count) { return count == 1; }));
            }
}

BOOST_AUTO_TEST_CASE(a_loss_that_is_not_finite_changes_nothing) {
    const config::RunDescription description = small();
    Replica replica(description, 0, 1, {}, Type::fp32);
    const Tensor values = replica.parameters->all_values();
    const std::vector<float> before(values.fp32(), values.fp32() + values.count());
    replica.backend->fill(replica.parameters->all_gradients(), 1);
    double loss = std::nan("");
    replica.optimizer->update(rate, Tensor(&loss, Type::fp64, {1}));
    BOOST_TEST(std::equal(before.begin(), before.end(), values.fp32()));
    for (const auto& part : replica.optimizer->state().parts())
        BOOST_TEST(
            std::all_of(part.value.fp32(), part.value.fp32() + part.value.count(), [](float m) { return m == 0; }));
}

BOOST_AUTO_TEST_CASE(planned_bytes_are_those_allocated) {
    const config::RunDescription description = small();
    kernels::CountingBackend planning(DeviceKind::cpu);
    for (const int replicas : {1, 2, 3})
        for (int number = 0; number < replicas; ++number) {
            const Replica replica(description, number, replicas, {}, Type::bf16);
            const auto owned = replicas > 1 ? replica.parameters->owned() : std::vector<model::Piece>{};
            model::ParameterSet parameters(planning.device(), replica.parameters->layout(), true, Type::bf16, {owned});
            BOOST_TEST(tests::momentum_sgd().make({planning, parameters, description.optimizer})->bytes() ==
                       replica.optimizer->bytes());
        }
}

BOOST_AUTO_TEST_CASE(a_plan_counts_its_state) {
    config::RunDescription description = small();
    BOOST_TEST(cost::job_of(description).program.owner_bytes == 8);
    description.optimizer.kind = "adamw";
    BOOST_TEST(cost::job_of(description).program.owner_bytes == 12);
}

BOOST_AUTO_TEST_CASE(what_is_known_without_building_one) {
    const optim::OptimizerType& type = tests::momentum_sgd();
    const model::ParameterDescription weight{"w", {3, 5}};
    BOOST_TEST(optim::state_count(type, {weight, weight}) == 30);
    BOOST_TEST(type.bytes_moved(weight) == 15 * 20);  // gradient read; value and momentum read and written
    model::ParameterDescription frozen = weight;
    frozen.trained = false;
    BOOST_TEST(optim::state_count(type, {weight, frozen}) == 15);
    const auto& adamw = optim::optimizer_named("adamw");
    BOOST_TEST(adamw.bytes_moved(weight) == 15 * 28);
    BOOST_CHECK_THROW(optim::optimizer_named("momentum"), Error);
}

namespace {

// A state of one number a row, of matrices only.
class RowScales final : public optim::OptimizerType {
  public:
    explicit RowScales(optim::Granularity::Unit unit, bool cut = true)
        : OptimizerType("row-scales"), unit_(unit), cut_(cut) {}
    std::vector<optim::StateDescription> states(const model::ParameterDescription& parameter) const override {
        if (!parameter.matrix) return {};
        const bool by_rows = cut_ && parameter.split == model::Split::axis0;
        return {{"scale", {parameter.shape[0]}, by_rows ? model::Split::axis0 : model::Split::none},
                {"momentum", parameter.shape, parameter.split}};
    }
    optim::Granularity granularity(const model::ParameterDescription&) const override { return {unit_}; }
    std::unique_ptr<optim::Optimizer> make(const optim::OptimizerSetup&) const override { return nullptr; }

  private:
    optim::Granularity::Unit unit_;
    bool cut_;
};

}  // namespace

BOOST_AUTO_TEST_CASE(states_of_other_shapes_are_whole_and_cut_as_their_parameters) {
    std::vector<model::ParameterDescription> parameters(3);
    parameters[0] = {"by_rows", {6, 5}};
    parameters[1] = {"vector", {7}};
    parameters[2] = {"by_columns", {4, 6}};
    parameters[0].matrix = parameters[2].matrix = true;
    parameters[0].split = model::Split::axis0;
    parameters[2].split = model::Split::axis1;
    const model::ParameterSet set({}, model::ParameterLayout(parameters, {1, 2}), true);
    const RowScales type(optim::Granularity::Unit::matrix);
    const optim::StateMemory memory({}, set, type);
    BOOST_TEST((memory.of_parameter("scale", 0).shape() == Shape{3}));
    BOOST_TEST(memory.of_parameter("scale", 1).empty());
    BOOST_TEST((memory.of_parameter("scale", 2).shape() == Shape{4}));
    BOOST_TEST((memory.of_parameter("momentum", 2).shape() == Shape{4, 3}));
    const auto parts = memory.parts();
    BOOST_TEST_REQUIRE(parts.size() == 4u);
    BOOST_TEST(parts[0].path == "scale/by_rows");
    BOOST_TEST((parts[0].shape == Shape{6} && parts[0].slice.offset == 3 && parts[0].slice.extent == 3));
    BOOST_TEST((parts[1].shape == Shape{4} && parts[1].slice.offset == 0 && parts[1].slice.extent == 4));
    BOOST_TEST((parts[3].shape == Shape{4, 6} && parts[3].slice.axis == 1 && parts[3].slice.offset == 3));
    BOOST_TEST(memory.bytes() >= static_cast<std::size_t>(3 + 4 + 15 + 12) * sizeof(float));
    // Half of a matrix has no state of its own.
    const model::ParameterDescription large{"large", {64, 64}};
    std::vector<model::ParameterDescription> one = {large};
    one[0].matrix = true;
    const model::ParameterSet half({}, model::ParameterLayout(one, {}), true, Type::fp32, {{{0, 2048}}});
    BOOST_CHECK_THROW(optim::StateMemory({}, half, type), Error);
}
