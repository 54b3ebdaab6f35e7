// The gradients that ranks sum over their shares of a batch are those of one rank with the whole batch.
#define BOOST_TEST_MODULE rank_invariance
#define BOOST_TEST_NO_MAIN
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "cluster/session.hpp"
#include "device/parallel.hpp"
#include "unit/model/small_models.hpp"

using namespace lockstep;

namespace {

cluster::Session* session = nullptr;

constexpr std::int64_t sequences = 12, length = 37;  // a short last mini-batch of TTT
constexpr double tolerance = 1e-5;                   // relative L2, per tensor, in fp32

// The bias of the keys moves all scores of a query alike: its true gradient is zero, and what is computed is rounding.
bool has_no_gradient(const std::string& name) {
    return name.find("mixer/key/bias") != std::string::npos;
}

// The gradients and loss sum of `pass`, each loss weighted as in the whole batch.
double add_gradients(test::Fixture& pass) {
    const Tensor losses(pass.losses.data(), Type::fp32, {pass.shape.rows()});
    pass.stage.forward(0, pass.id_tensor());
    pass.stage.loss(0, Tensor(pass.targets.data(), Type::int32, {pass.shape.rows()}),
                    1.0f / static_cast<float>(sequences * length), losses);
    pass.stage.backward(0, pass.id_tensor());
    double sum = 0;
    pass.backend->sum(Tensor(&sum, Type::fp64, {1}), losses, kernels::Accumulate::no);
    return sum;
}

double norm_of(Tensor tensor) {
    double sum = 0;
    for (std::int64_t i = 0; i < tensor.count(); ++i) {
        const double value = tensor.fp32()[i];
        sum += value * value;
    }
    return std::sqrt(sum);
}

double distance(Tensor a, Tensor b) {
    double sum = 0;
    for (std::int64_t i = 0; i < a.count(); ++i) {
        const double difference = static_cast<double>(a.fp32()[i]) - static_cast<double>(b.fp32()[i]);
        sum += difference * difference;
    }
    return std::sqrt(sum);
}

}  // namespace

BOOST_AUTO_TEST_CASE(summed_gradients_are_those_of_one_rank) {
    set_threads(1);
    std::vector<int> ranks(static_cast<std::size_t>(session->size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    const auto host = session->make_world_group();
    const auto world = cluster::make_mpi_communicator_source()->make(ranks);
    const std::int64_t share = sequences / world->size(), first = share * world->rank() * length;
    for (const auto& [name, model] : test::all_kinds()) {
        test::Fixture whole(model, {sequences, length}), part(model, {share, length});
        std::copy_n(whole.ids.begin() + first, share * length, part.ids.begin());
        std::copy_n(whole.targets.begin() + first, share * length, part.targets.begin());
        const double whole_loss = add_gradients(whole);
        const double summed_loss = host->all_sum(add_gradients(part));
        world->all_reduce(part.parameters.all_gradients(), cluster::Reduce::sum);
        BOOST_TEST(std::abs(summed_loss - whole_loss) < 1e-6 * whole_loss, name);
        for (const auto& parameter : whole.parameters.descriptions()) {
            const Tensor expected = whole.parameters.gradient(parameter.name);
            const double error = distance(part.parameters.gradient(parameter.name), expected);
            const double size = has_no_gradient(parameter.name) ? 1 : norm_of(expected);
            BOOST_TEST(error <= tolerance * size, name << ": " << parameter.name << ": " << error / size);
            BOOST_TEST(size > 0, name << ": " << parameter.name << " has no gradient");
        }
    }
}

int main(int argc, char** argv) {
    cluster::Session started(&argc, &argv);
    session = &started;
    return started.run([&] { return boost::unit_test::unit_test_main(init_unit_test, argc, argv); });
}
