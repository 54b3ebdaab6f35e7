// What is updated in host memory gets the bits that an update in place gives.
#include <boost/test/unit_test.hpp>
#include <limits>
#include <map>

#include "kernels/backend.hpp"
#include "optim/registry.hpp"

using namespace lockstep;

namespace {

std::vector<model::ParameterDescription> few_parameters() {
    model::ParameterDescription table{"embedding/weight", {50, 8}}, norm{"blocks/0/mlp_norm/weight", {8}},
        matrix{"blocks/0/mlp/up/weight", {31, 8}}, frozen{"head/weight", {4, 8}};
    table.matrix = matrix.matrix = true;
    norm.exact = true;
    norm.initial = model::Initial::one;
    frozen.trained = false;
    return {table, norm, matrix, frozen};
}

// The bytes of everything that is computed with.
std::vector<char> computed_with(const model::ParameterSet& parameters) {
    std::vector<char> bytes;
    for (const auto& parameter : parameters.descriptions()) {
        const Tensor value = parameter.exact ? parameters.value(parameter.name) : parameters.working(parameter.name);
        const auto* data = static_cast<const char*>(value.data());
        bytes.insert(bytes.end(), data, data + value.bytes());
    }
    return bytes;
}

struct Trained {
    Trained(const config::OptimizerSection& settings, Type compute, model::Division division)
        : parameters({}, {few_parameters(), {}}, true, compute, std::move(division)),
          optimizer(optim::make_optimizer(
              {*backend, parameters, settings, {parameters.owned()}, {}, nullptr, backend.get()})) {
        parameters.initialize(*backend, 7);
        optimizer->begin_averages([](const auto&) { return true; });
    }
    void step(std::int64_t number, double loss) {
        const Tensor gradients = parameters.all_gradients();
        for (std::int64_t i = 0; i < gradients.count(); ++i)
            gradients.fp32()[i] = static_cast<float>((i * 37 + number * 11) % 101 - 50) / 64;
        optimizer->update(0.02, Tensor(&loss, Type::fp64, {1}));
    }
    std::unique_ptr<kernels::Backend> backend = kernels::make_cpu_backend();
    model::ParameterSet parameters;
    std::unique_ptr<optim::Optimizer> optimizer;
};

}  // namespace

BOOST_AUTO_TEST_CASE(an_update_in_host_memory_has_the_same_bits) {
    const model::ParameterLayout layout(few_parameters(), {});
    const std::int64_t cut = layout.offset(2), end = layout.trained_total();
    for (const std::string kind : {"adamw", "sgd"})
        for (const Type compute : {Type::fp32, Type::bf16}) BOOST_TEST_CONTEXT(kind << ", " << type_name(compute)) {
                config::OptimizerSection settings;
                settings.kind = kind;
                settings.clip = 0.5;
                settings.ema = 0.75;
                settings.groups = {{"*norm*", 0.01, 0, 0.5}};
                model::Division division;
                division.owned = {{0, cut}, {cut, end - cut}};
                division.offloaded = Device{};
                Trained there(settings, compute, {}), here(settings, compute, division);
                BOOST_TEST((computed_with(there.parameters) == computed_with(here.parameters)));
                BOOST_TEST(here.parameters.host_bytes() > 0u);
                BOOST_TEST(here.optimizer->host_bytes() > 0u);
                BOOST_TEST(there.optimizer->host_bytes() == 0u);
                BOOST_TEST(here.optimizer->bytes() < there.optimizer->bytes());
                std::vector<char> before;
                for (std::int64_t number = 0; number < 4; ++number) {
                    const bool skipped = number == 2;
                    before = computed_with(here.parameters);
                    there.step(number, skipped ? std::numeric_limits<double>::infinity() : 1);
                    here.step(number, skipped ? std::numeric_limits<double>::infinity() : 1);
                    BOOST_TEST((computed_with(there.parameters) == computed_with(here.parameters)), "step " << number);
                    BOOST_TEST((computed_with(here.parameters) == before) == skipped);
                }
                const auto parts_of = [](const Trained& trained) {
                    std::map<std::string, std::vector<float>> values;
                    for (const optim::StatePart& part : trained.optimizer->state().parts())
                        values[part.path].insert(values[part.path].end(), part.value.fp32(),
                                                 part.value.fp32() + part.value.count());
                    return values;
                };
                BOOST_TEST((parts_of(there) == parts_of(here)));
            }
}
