// The choice among cuBLASLt's proposals, on its stand-in.
#define BOOST_TEST_MODULE products
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <map>
#include <set>

#include "cuda_emulation/emulation.hpp"
#include "device/gpu.hpp"
#include "kernels/counting_backend.hpp"
#include "kernels/cuda.hpp"

using namespace lockstep;
using kernels::Accumulate;
using kernels::CountingBackend;
using kernels::Transpose;

namespace {

kernels::Backend& backend() {
    static const auto made = kernels::make_cuda_backend(open_gpu(0));
    return *made;
}

// The tensors of a small layer, on a device that may be imaginary.
struct Layer {
    explicit Layer(Device device, Type type = Type::bf16, std::int64_t out = 32)
        : memory(device, std::size_t{1} << 20, "a layer"),
          x(memory.allocate(type, {64, 48})),
          weight(memory.allocate(type, {out, 48})),
          bias(memory.allocate(type, {out})),
          y(memory.allocate(type, {64, out})),
          before(memory.allocate(type, {64, out})),
          dweight(memory.allocate(Type::fp32, {out, 48})),
          dbias(memory.allocate(Type::fp32, {out})) {}
    void run(kernels::Backend& on) const {
        on.linear_forward(y, x, weight, bias, {});
        on.linear_gelu_forward(y, before, x, weight, bias);
        on.linear_backward_parameters(dweight, dbias, y, x, Accumulate::yes);
        on.product(x, y, Transpose::no, weight, Transpose::no, Accumulate::yes);
    }
    Arena memory;
    Tensor x, weight, bias, y, before, dweight, dbias;
};

std::unique_ptr<kernels::ProductTuner> tuner_of_layers() {
    return kernels::make_product_tuner(backend(), [](CountingBackend& imaginary) {
        const Layer one(imaginary.device()), other(imaginary.device());
        one.run(imaginary);
        other.run(imaginary);
    });
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

std::vector<char> bytes_of(const Tensor& tensor) {
    std::vector<char> bytes(tensor.bytes());
    backend().download(bytes.data(), tensor);
    return bytes;
}

}  // namespace

BOOST_AUTO_TEST_CASE(equal_products_are_one_kind) {
    const auto tuner = tuner_of_layers();
    const std::vector<std::string>& kinds = tuner->kinds();
    BOOST_TEST_REQUIRE(kinds.size() == 4u);
    BOOST_TEST(contains(kinds[0], "bf16 to bf16, m 64 n 32 k 48, rows of 48 48 32, b transposed with a bias, "));
    BOOST_TEST(contains(kinds[1], "with a bias and GELU"));
    BOOST_TEST(contains(kinds[2], "bf16 to fp32, m 32 n 48 k 64"));
    BOOST_TEST(contains(kinds[2], ", a transposed, added with the gradient of a bias, aligned to 256"));
    BOOST_TEST(contains(kinds[3], "m 64 n 48 k 32"));
    BOOST_TEST(tuner->left_out() == 0);
    BOOST_TEST(contains(tuner->library(), "cuBLASLt 13.0.0 on "));
}

// Neighbours of a row that is not aligned, and rows further apart than they are long.
BOOST_AUTO_TEST_CASE(alignment_and_row_lengths_make_kinds) {
    const auto run = [](kernels::Backend& on) {
        Arena memory(on.device(), std::size_t{1} << 20, "matrices");
        const Tensor wide = memory.allocate(Type::bf16, {16, 96}), weight = memory.allocate(Type::bf16, {8, 32});
        const Tensor y = memory.allocate(Type::bf16, {16, 8}), rows = memory.allocate(Type::bf16, {17, 33});
        const auto multiply = [&](const Tensor& x) {
            on.product(y, x, Transpose::no, weight, Transpose::yes, Accumulate::no);
        };
        multiply(wide.columns(0, 32));
        multiply(wide.columns(32, 32));
        multiply(wide.columns(64, 32));
        multiply(rows.slice(1, 16).columns(0, 32));
        on.synchronize();
    };
    const auto tuner = kernels::make_product_tuner(backend(), run);
    BOOST_TEST_REQUIRE(tuner->kinds().size() == 4u);
    BOOST_TEST(contains(tuner->kinds()[0], "rows of 96 32 8, b transposed, aligned to 256 "));
    BOOST_TEST(contains(tuner->kinds()[1], "rows of 96 32 8, b transposed, aligned to 64 "));
    BOOST_TEST(contains(tuner->kinds()[2], "rows of 96 32 8, b transposed, aligned to 128 "));
    BOOST_TEST(contains(tuner->kinds()[3], "rows of 33 32 8, b transposed, aligned to 2 "));
    // The same texts are found when it runs.
    std::set<std::string> given(tuner->kinds().begin(), tuner->kinds().end());
    for (const std::string& kind : given) BOOST_TEST(tuner->time(kind).size() == 8u);
    run(backend());
}

// Every part is chosen for by itself.
BOOST_AUTO_TEST_CASE(a_large_product_of_odd_sizes_runs_in_parts) {
    const auto tuner = kernels::make_product_tuner(backend(), [](CountingBackend& on) {
        Arena memory(on.device(), std::size_t{16} << 20, "a head");
        const Tensor logits = memory.allocate(Type::bf16, {512, 1032}).columns(0, 1025);
        const Tensor x = memory.allocate(Type::bf16, {512, 520}).columns(0, 513),
                     weight = memory.allocate(Type::bf16, {1025, 520}).columns(0, 513);
        on.product(logits, x, Transpose::no, weight, Transpose::yes, Accumulate::no);
    });
    BOOST_TEST_REQUIRE(tuner->kinds().size() == 3u);
    BOOST_TEST(contains(tuner->kinds()[0], "m 512 n 1 k 513, rows of 520 520 1032, "));
    BOOST_TEST(contains(tuner->kinds()[1], "m 512 n 1024 k 1, rows of 520 520 1032, "));
    BOOST_TEST(contains(tuner->kinds()[2], "m 512 n 1024 k 512, rows of 520 520 1032, b transposed, added, "));
}

BOOST_AUTO_TEST_CASE(proposals_take_different_times) {
    const auto tuner = tuner_of_layers();
    std::set<std::size_t> fastest;
    for (const std::string& kind : tuner->kinds()) {
        const auto timed = tuner->time(kind), again = tuner->time(kind);
        BOOST_TEST_REQUIRE(timed.size() == 8u);
        std::set<std::string> algorithms;
        for (const auto& one : timed) {
            algorithms.insert(one.algorithm);
            BOOST_TEST(tuner->accepts(kind, one.algorithm));
        }
        BOOST_TEST(algorithms.size() == 8u);
        const auto order = [](const auto& a, const auto& b) { return a.seconds < b.seconds; };
        const auto best = std::min_element(timed.begin(), timed.end(), order);
        BOOST_TEST(std::min_element(again.begin(), again.end(), order)->algorithm == best->algorithm);
        BOOST_TEST(best->seconds > 9);
        BOOST_TEST(best->seconds < 12);  // the stand-in's fastest takes 10 s, the next 14 s
        fastest.insert(static_cast<std::size_t>(best - timed.begin()));
    }
    BOOST_TEST(fastest.size() > 1u);
}

BOOST_AUTO_TEST_CASE(what_is_no_algorithm_of_this_kind_is_not_accepted) {
    const auto tuner = tuner_of_layers();
    const std::string kind = tuner->kinds()[0], other = tuner->kinds()[2];
    const std::string algorithm = tuner->time(kind)[1].algorithm;
    BOOST_TEST(algorithm.size() == 128u);
    BOOST_TEST(!tuner->accepts(other, algorithm));
    BOOST_TEST(!tuner->accepts(kind, ""));
    BOOST_TEST(!tuner->accepts(kind, algorithm.substr(1)));
    BOOST_TEST(!tuner->accepts(kind, "x" + algorithm.substr(1)));
    BOOST_TEST(!tuner->accepts(kind, std::string(128, '0')));
}

// Another algorithm gives other last bits; the same gives the same, also in a backend that never timed it.
BOOST_AUTO_TEST_CASE(a_chosen_algorithm_is_used) {
    const Layer layer(backend().device());
    std::vector<float> values(64 * 48);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.37f + 0.11f * static_cast<float>(i * 7919 % 101);
    const auto put = [&](kernels::Backend& on, const Tensor& to) {
        Arena memory(on.device(), std::size_t{1} << 16, "values");
        const Tensor from = memory.allocate(Type::fp32, to.shape());
        on.upload(from, values.data());
        on.copy(to, from);
        on.synchronize();
    };
    const auto dweight_with = [&](kernels::Backend& on) {
        put(on, layer.x);
        put(on, layer.y);
        on.fill(layer.dweight, 0);
        on.fill(layer.dbias, 0);
        on.linear_backward_parameters(layer.dweight, layer.dbias, layer.y, layer.x, Accumulate::yes);
        on.synchronize();
        return bytes_of(layer.dweight);
    };
    const auto tuner = tuner_of_layers();
    const std::string kind = tuner->kinds()[2];
    const auto timed = tuner->time(kind);
    const auto first = dweight_with(backend());
    std::set<std::vector<char>> results;
    for (const auto& one : timed) {
        tuner->use(kind, one.algorithm);
        const auto result = dweight_with(backend());
        results.insert(result);
        if (&one == &timed.front()) BOOST_TEST((result == first));
    }
    BOOST_TEST(results.size() > 1u);
    tuner->use(kind, timed[2].algorithm);
    const auto here = dweight_with(backend());

    const auto fresh = kernels::make_cuda_backend(open_gpu(0));
    const auto of_fresh = kernels::make_product_tuner(*fresh, [](CountingBackend&) {});
    BOOST_TEST(of_fresh->kinds().empty());
    of_fresh->use(kind, timed[2].algorithm);
    BOOST_TEST((dweight_with(*fresh) == here));
}

BOOST_AUTO_TEST_CASE(timing_leaves_no_memory_behind) {
    static_cast<void>(tuner_of_layers());  // what the backend keeps is there now
    const std::size_t before = emulation::live_allocations();
    {
        const auto tuner = tuner_of_layers();
        tuner->time(tuner->kinds()[0]);
        BOOST_TEST(emulation::live_allocations() > before);
    }
    BOOST_TEST(emulation::live_allocations() == before);
}

BOOST_AUTO_TEST_CASE(the_gradient_of_a_bias_is_part_of_the_product) {
    const Layer layer(backend().device());
    for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
        emulation::take_executed();
        backend().linear_backward_parameters(layer.dweight, layer.dbias, layer.y, layer.x, accumulate);
        backend().synchronize();
        // Sums that are written need no other kernel; those to be added do.
        const auto executed = emulation::take_executed();
        BOOST_TEST(executed.front() == "matrix product");
        BOOST_TEST(executed.size() == (accumulate == Accumulate::no ? 1u : 2u));
    }
}

BOOST_AUTO_TEST_CASE(backends_of_cpus_have_no_choice) {
    const auto cpu = kernels::make_cpu_backend();
    BOOST_TEST(kernels::make_product_tuner(*cpu, [](CountingBackend&) {}) == nullptr);
}
