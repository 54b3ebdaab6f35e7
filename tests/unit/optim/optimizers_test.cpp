// Three steps of each optimizer as PyTorch 2.15 takes them (torch.optim.AdamW, SGD, Muon), and what each says of
// itself.
#define BOOST_TEST_MODULE optim
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <memory>

#include "kernels/backend.hpp"
#include "kernels/counting_backend.hpp"
#include "optim/registry.hpp"

using namespace lockstep;

namespace {

using Values = std::vector<double>;

double value_of(std::int64_t element) {
    return static_cast<double>((element * 29) % 53 - 26) / 40;
}
double gradient_of(std::int64_t element, std::int64_t step) {
    return static_cast<double>((element * 37 + step * 11) % 101 - 50) / 64;
}

const Values few = {0.5, -1.25, 2.0, 0.01};
const std::vector<Values> few_gradients = {{0.3, -0.2, 0.05, 1.0}, {-0.1, 0.4, 0.15, -2.0}, {0.25, 0.1, -0.35, 0.5}};

// The parameter after a step for each of the gradients.
Values trained(const config::OptimizerSection& settings, const std::string& name, const Shape& shape,
               const Values& begin, const std::vector<Values>& gradients, double learning_rate) {
    const std::unique_ptr<kernels::Backend> backend = kernels::make_cpu_backend();
    model::ParameterDescription description{name, shape};
    description.matrix = shape.size() == 2;
    model::ParameterSet parameters(backend->device(), {description}, true);
    float* value = parameters.all_values().fp32();
    std::copy(begin.begin(), begin.end(), value);
    const auto optimizer = optim::make_optimizer({*backend, parameters, settings, {parameters.owned()}});
    double loss = 1;
    for (const Values& gradient : gradients) {
        std::copy(gradient.begin(), gradient.end(), parameters.all_gradients().fp32());
        optimizer->update(learning_rate, Tensor(&loss, Type::fp64, {1}));
    }
    return {value, value + begin.size()};
}

config::OptimizerSection settings_of(const std::string& kind, double weight_decay) {
    config::OptimizerSection settings;
    settings.kind = kind;
    settings.weight_decay = weight_decay;
    settings.clip = 0;
    return settings;
}

void check_values(const Values& found, const Values& expected) {
    BOOST_TEST_REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
        BOOST_TEST(std::abs(found[i] - expected[i]) < 1e-6,
                   "element " << i << ": " << found[i] << ", not " << expected[i]);
}

}  // namespace

BOOST_AUTO_TEST_CASE(adamw_is_pytorchs) {
    check_values(trained(settings_of("adamw", 0.1), "w", {4}, few, few_gradients, 0.02),
                 {0.456183382, -1.238193262, 1.955656220, 0.000017447});
}

// PyTorch's weight decay goes into the gradient; it was left out there, and the parameter multiplied beforehand.
BOOST_AUTO_TEST_CASE(sgd_is_pytorchs) {
    config::OptimizerSection settings = settings_of("sgd", 0.05);
    check_values(trained(settings, "w", {4}, few, few_gradients, 0.1),
                 {0.405621687, -1.263233094, 1.963247125, 0.069298249});
    settings.weight_decay = 0;
    settings.options.change("sgd").set("nesterov", true);
    check_values(trained(settings, "w", {4}, few, few_gradients, 0.1), {0.37643, -1.30862, 2.008655, 0.1131});
}

// With its products in double precision instead of bf16.
BOOST_AUTO_TEST_CASE(muon_is_pytorchs) {
    Values begin;
    std::vector<Values> gradients(3);
    for (std::int64_t element = 0; element < 15; ++element) {
        begin.push_back(value_of(element));
        for (std::int64_t step = 0; step < 3; ++step)
            gradients[static_cast<std::size_t>(step)].push_back(gradient_of(element, step));
    }
    config::OptimizerSection settings = settings_of("muon", 0.1);
    check_values(
        trained(settings, "blocks/0/w", {3, 5}, begin, gradients, 0.02),
        {-0.628903687, 0.078070581, -0.536994219, 0.205165461, -0.399127752, 0.311008692, -0.264718086, 0.437878728,
         -0.144000635, 0.575310469, -0.029023053, -0.606047809, 0.101999670, -0.509798706, 0.235454038});
    check_values(
        trained(settings, "blocks/0/w", {5, 3}, begin, gradients, 0.02),
        {-0.631585062, 0.080394581, -0.531928718, 0.208772019, -0.400760323, 0.314557284, -0.265040457, 0.442429483,
         -0.148035198, 0.576306283, -0.030694610, -0.605965197, 0.095877655, -0.516053617, 0.229320809});
    settings.options.change("muon").set("match_adamw", false);
    check_values(
        trained(settings, "blocks/0/w", {3, 5}, begin, gradients, 0.02),
        {-0.607638359, 0.082421146, -0.555705607, 0.213030562, -0.401010156, 0.296120018, -0.254044354, 0.426226705,
         -0.137695223, 0.579950273, -0.034180857, -0.587247372, 0.105211541, -0.525611281, 0.250041306});
    check_values(
        trained(settings, "blocks/0/w", {5, 3}, begin, gradients, 0.02),
        {-0.604184270, 0.091420144, -0.550933003, 0.227582186, -0.406713843, 0.298526198, -0.249356195, 0.433229893,
         -0.146022722, 0.585267246, -0.041721374, -0.577112377, 0.089229561, -0.551991522, 0.240015090});
    // Anything but a matrix of a block: as with AdamW.
    for (const auto& [name, shape] : {std::pair{"embedding/weight", Shape{3, 5}}, std::pair{"blocks/0/w", Shape{15}}})
        check_values(trained(settings, name, shape, begin, gradients, 0.02),
                     trained(settings_of("adamw", 0.1), name, shape, begin, gradients, 0.02));
}

BOOST_AUTO_TEST_CASE(states_and_cuts_are_declared) {
    model::ParameterDescription matrix{"blocks/0/w", {6, 4}};
    matrix.matrix = true;
    model::ParameterDescription inner{"blocks/0/mixer/inner/weight1", {2, 6, 4}}, table{"embedding/weight", {6, 4}};
    inner.matrix = table.matrix = true;
    const auto& muon = optim::optimizer_named("muon");
    BOOST_TEST(muon.states(matrix).size() == 1u);
    BOOST_TEST(muon.states(inner).size() == 2u);
    BOOST_TEST((muon.granularity(matrix).unit == optim::Granularity::Unit::matrix));
    BOOST_TEST((muon.granularity(table).unit == optim::Granularity::Unit::element));
    BOOST_TEST(optim::state_count(muon, {matrix, table}) == 24 + 48);
    BOOST_TEST(optim::state_count(optim::optimizer_named("sgd"), {matrix, table}) == 48);
    // 5 iterations of 2 (2 s² l + s³).
    kernels::CountingBackend counting(DeviceKind::cpu);
    muon.issue_products(counting, settings_of("muon", 0), matrix, Type::fp32);
    double flop = 0;
    for (const kernels::Operation& operation : counting.operations()) flop += operation.flop;
    BOOST_TEST(flop == 5 * 2 * (2 * 16 * 6 + 64));
    counting.take();
    muon.issue_products(counting, settings_of("muon", 0), table, Type::fp32);
    BOOST_TEST(counting.operations().empty());
}

// A slice that is shorter than others of its tensor group has padding that a whole piece may lie in.
BOOST_AUTO_TEST_CASE(a_piece_of_nothing_but_padding_has_no_elements) {
    model::ParameterDescription table{"embedding/weight", {3, 1024}};
    table.split = model::Split::axis0;
    const model::ParameterLayout layout({table}, {0, 2});  // one row of the two that the other rank has
    BOOST_TEST_REQUIRE(layout.total() == 2048);
    const auto ranges = optim::ranges_of(layout, {{0, 512}, {512, 1024}, {1536, 512}});
    std::int64_t count = 0, padding = 0;
    for (const optim::ParameterRange& range : ranges) {
        BOOST_TEST(range.count >= 0);
        count += range.count;
        padding += range.padding;
    }
    BOOST_TEST(count == 1024);
    BOOST_TEST(padding == 1024);
}

BOOST_AUTO_TEST_CASE(planned_bytes_are_those_allocated) {
    model::ParameterDescription matrix{"blocks/0/w", {60, 40}}, vector{"blocks/0/v", {60}};
    matrix.matrix = true;
    const auto backend = kernels::make_cpu_backend();
    kernels::CountingBackend planning(DeviceKind::cpu);
    for (const std::string kind : {"adamw", "muon", "sgd"}) {
        const config::OptimizerSection settings = settings_of(kind, 0);
        model::ParameterSet real(backend->device(), {matrix, vector}, true, Type::bf16),
            planned(planning.device(), {matrix, vector}, true, Type::bf16);
        BOOST_TEST(optim::optimizer_named(kind).make({planning, planned, settings})->bytes() ==
                       optim::make_optimizer({*backend, real, settings})->bytes(),
                   kind);
    }
}
