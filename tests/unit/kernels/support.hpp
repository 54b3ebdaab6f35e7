// What the tests of the operations share: random inputs that exist both as fp32 tensors and as the same numbers in
// double, comparison with the reference, and a loop over the instruction sets of this machine.
#pragma once

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "device/parallel.hpp"
#include "kernels/backend.hpp"
#include "reference/tolerance.hpp"
#include "reference/values.hpp"

namespace lockstep::kernel_tests {

using reference::Values;
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

// fp32 numbers that own their memory.
struct Floats {
    std::vector<float> data;
    Shape shape;

    explicit Floats(Shape sizes, float value = 0)
        : data(static_cast<std::size_t>(element_count(sizes)), value), shape(std::move(sizes)) {}
    Tensor tensor() { return {data.data(), Type::fp32, shape}; }
    Values values() const { return {data.begin(), data.end()}; }
    float& operator[](std::size_t i) { return data[i]; }
};

inline Floats floats_of(const Shape& shape, const Values& values) {
    Floats x(shape);
    std::transform(values.begin(), values.end(), x.data.begin(),
                   [](double value) { return static_cast<float>(value); });
    return x;
}

inline Floats random_floats(const Shape& shape, const std::string& purpose, double scale = 1) {
    Floats x(shape);
    const RandomStream stream(11, purpose);
    for (std::size_t i = 0; i < x.data.size(); ++i) x.data[i] = static_cast<float>(scale * stream.normal(i));
    return x;
}

inline Values random_values(std::size_t count, const std::string& purpose, double scale = 1) {
    Values x(count);
    const RandomStream stream(12, purpose);
    for (std::size_t i = 0; i < count; ++i) x[i] = scale * stream.normal(i);
    return x;
}

inline std::vector<int> random_ids(std::size_t count, int below, const std::string& purpose) {
    std::vector<int> ids(count);
    const RandomStream stream(13, purpose);
    for (std::size_t i = 0; i < count; ++i)
        ids[i] = static_cast<int>(stream.bits(i) % static_cast<std::uint64_t>(below));
    return ids;
}

inline Tensor id_tensor(std::vector<int>& ids) {
    return {ids.data(), Type::int32, {static_cast<std::int64_t>(ids.size())}};
}

// `terms`: the longest sum behind one value.
inline void check_close(const Floats& actual, const Values& expected, std::size_t terms, const std::string& what) {
    BOOST_REQUIRE_EQUAL(actual.data.size(), expected.size());
    double size = 1e-30, worst = 0;
    std::size_t place = 0;
    for (const double value : expected) size = std::max(size, std::abs(value));
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const double error = std::abs(static_cast<double>(actual.data[i]) - expected[i]) / size;
        if (!(error <= worst)) {  // NaN counts
            worst = error;
            place = i;
        }
    }
    const double allowed = reference::tolerance(reference::fp32_roundoff, terms);
    BOOST_CHECK_MESSAGE(worst <= allowed, what << ": element " << place << " of " << expected.size() << " is off by "
                                               << worst << " of the largest value, " << allowed << " is allowed");
}

// For outputs that are +=: what was there before is part of the expectation.
inline Values plus(Values a, const Values& b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
}

inline bool same_bits(const Floats& a, const Floats& b) {
    return a.data.size() == b.data.size() &&
           std::memcmp(a.data.data(), b.data.data(), a.data.size() * sizeof(float)) == 0;
}

// body(backend, name) with every instruction set that this processor has, the widest last.
template <class Body>
void for_each_instruction_set(Body&& body) {
    std::vector<std::string> tried;
    for (const char* name : {"baseline", "avx2", "avx512", "avx512_bf16", "amx"}) {
        setenv("LOCKSTEP_INSTRUCTION_SET", name, 1);
        std::unique_ptr<kernels::Backend> backend;
        try {
            backend = kernels::make_cpu_backend();
        } catch (const Error& error) {
            BOOST_TEST(static_cast<int>(error.code()) == static_cast<int>(ExitCode::usage));
            continue;
        }
        BOOST_TEST(std::string(kernels::cpu_instruction_set()) == name);
        tried.emplace_back(name);
        body(*backend, std::string(name));
    }
    unsetenv("LOCKSTEP_INSTRUCTION_SET");
    BOOST_REQUIRE(!tried.empty());
    BOOST_TEST(kernels::cpu_instruction_set() == tried.back());
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        BOOST_TEST((std::find(tried.begin(), tried.end(), "avx512_bf16") != tried.end()));
#endif
}

// run(backend) returns outputs; they must be the same bits for 1, 2, 3 and 5 threads.
template <class Run>
void check_same_for_any_threads(Run&& run) {
    const int before = threads();
    for_each_instruction_set([&](kernels::Backend& backend, const std::string& name) {
        set_threads(1);
        const std::vector<Floats> expected = run(backend);
        for (const int count : {2, 3, 5}) {
            set_threads(count);
            const std::vector<Floats> actual = run(backend);
            BOOST_REQUIRE_EQUAL(actual.size(), expected.size());
            for (std::size_t i = 0; i < expected.size(); ++i)
                BOOST_TEST(same_bits(actual[i], expected[i]), name << ", " << count << " threads, output " << i);
        }
        set_threads(before);
    });
}

}  // namespace lockstep::kernel_tests
