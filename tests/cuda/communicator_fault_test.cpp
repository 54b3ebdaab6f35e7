// A fault of one NCCL communicator is found by who waits for another, and ends all.
#define BOOST_TEST_MODULE communicator_fault
#define BOOST_TEST_NO_MAIN
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <numeric>

#include "cluster/gpu_communicator.hpp"
#include "cluster/session.hpp"
#include "device/cuda/context.hpp"
#include "device/gpu.hpp"

using namespace lockstep;

namespace {

cluster::Session* session = nullptr;

bool says(const Error& error, const std::string& words) {
    BOOST_TEST_MESSAGE(error.what());
    return std::string(error.what()).find(words) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_CASE(fault_of_one_ends_all) {
    const auto context = open_gpu(session->rank());
    const auto source = cluster::make_gpu_communicator_source(context, "GPU " + std::to_string(session->rank()));
    std::vector<int> all(static_cast<std::size_t>(session->size()));
    std::iota(all.begin(), all.end(), 0);
    const auto faulty = source->make(all), other = source->make(all, cluster::Use::transfers);
    Arena memory(context->device(), 1024, "values of a test");
    const Tensor values = memory.allocate(Type::fp32, {64});
    // Ranks that differ in what they reduce.
    faulty->begin_all_reduce(values.slice(0, 32 + session->rank()), cluster::Reduce::sum);
    faulty->finish_collectives();
    BOOST_CHECK_THROW(context->synchronize(), Error);
    BOOST_CHECK_EXCEPTION(other->all_reduce(values, cluster::Reduce::sum), Error,
                          [](const Error& error) { return says(error, "NCCL failed on rank"); });
    const int next = (session->rank() + 1) % session->size();
    BOOST_CHECK_EXCEPTION(other->all_reduce(values, cluster::Reduce::sum), Error,
                          [](const Error& error) { return says(error, "after an earlier error"); });
    BOOST_CHECK_EXCEPTION(other->begin_send(values, next, 0), Error,
                          [](const Error& error) { return says(error, "after an earlier error"); });
}

int main(int argc, char** argv) {
    setenv("LOCKSTEP_EMULATED_GPUS", "4", 1);
    cluster::Session started(&argc, &argv);
    session = &started;
    return started.run([&] { return boost::unit_test::unit_test_main(init_unit_test, argc, argv); });
}
