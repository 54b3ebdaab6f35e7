// Small PTX programs for the machine's tests.
#pragma once

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "ptx/machine.hpp"

namespace lockstep::ptx {

// A kernel of two pointers, `in` (%rd0) and `out` (%rd1), with the thread's number in %r0, that of its warp's lane in
// %r1, and %rd2 = out + 4 · thread, %rd3 = in + 4 · thread. Dynamic shared memory is `dynamic`.
inline std::string program(const std::string& body, const std::string& bounds = "") {
    return R"(
.version 9.0
.target sm_90a
.address_size 64
.extern .shared .align 128 .b8 dynamic[];
.visible .entry kernel(.param .u64 in, .param .u64 out)
)" + bounds +
           R"(
{
    .reg .pred %p<16>;
    .reg .b16 %h<32>;
    .reg .b32 %r<64>;
    .reg .f32 %f<64>;
    .reg .b64 %rd<32>;
    .reg .f64 %d<32>;
    .shared .align 16 .b8 fixed[1024];
    ld.param.u64 %rd0, [in];
    ld.param.u64 %rd1, [out];
    mov.u32 %r0, %tid.x;
    and.b32 %r1, %r0, 31;
    mul.wide.u32 %rd4, %r0, 4;
    add.s64 %rd2, %rd1, %rd4;
    add.s64 %rd3, %rd0, %rd4;
)" + body + R"(
    ret;
}
)";
}

struct Outcome {
    std::vector<Finding> findings;
    Counts counts;

    bool has(FindingKind kind) const {
        return std::any_of(findings.begin(), findings.end(), [&](const Finding& one) { return one.kind == kind; });
    }
    std::string text() const {
        std::string result;
        for (const Finding& one : findings) result += describe(one) + "\n";
        return result;
    }
};

// `in` is written before the launch, `out` is not.
struct Buffers {
    alignas(128) std::array<std::uint64_t, 4096> in{};
    alignas(128) std::array<std::uint64_t, 4096> out{};
};

inline Outcome run_program(const std::string& text, Buffers& buffers, Extent grid = {}, Extent block = {32},
                           std::uint32_t shared = 0, Options options = {}) {
    const Module module(text);
    GlobalMemory memory;
    const std::size_t bytes = buffers.in.size() * sizeof buffers.in[0];
    memory.add(buffers.in.data(), bytes);
    memory.mark_written(buffers.in.data(), bytes);
    memory.add(buffers.out.data(), bytes);
    const void* const pointers[] = {buffers.in.data(), buffers.out.data()};
    Outcome result;
    result.findings = run(*module.kernels().at(0), grid, block, shared, std::as_bytes(std::span(pointers)), memory,
                          options, &result.counts);
    return result;
}

inline Outcome run_program(const std::string& text, Extent grid = {}, Extent block = {32}, std::uint32_t shared = 0,
                           Options options = {}) {
    Buffers buffers;
    return run_program(text, buffers, grid, block, shared, options);
}

inline std::vector<Options> schedules() {
    std::vector<Options> result;
    for (const auto schedule : {Options::Schedule::lockstep, Options::Schedule::split})
        for (std::uint64_t seed = 0; seed < 5; ++seed) {
            result.emplace_back();
            result.back().schedule = schedule;
            result.back().seed = seed;
        }
    return result;
}

inline std::uint32_t word(const Buffers& buffers, std::size_t i) {
    std::uint32_t result = 0;
    std::memcpy(&result, reinterpret_cast<const char*>(buffers.out.data()) + 4 * i, 4);
    return result;
}
inline void put_word(Buffers& buffers, std::size_t i, std::uint32_t value) {
    std::memcpy(reinterpret_cast<char*>(buffers.in.data()) + 4 * i, &value, 4);
}

// Runs under all schedules, expects no finding and these words.
template <class F>
void expect(const std::string& body, F expected, Extent grid = {}, Extent block = {32}, std::uint32_t shared = 0) {
    for (const Options& options : schedules()) {
        Buffers buffers;
        for (std::size_t i = 0; i < 2048; ++i) put_word(buffers, i, static_cast<std::uint32_t>(i * 2654435761u));
        const Outcome outcome = run_program(program(body), buffers, grid, block, shared, options);
        BOOST_REQUIRE_MESSAGE(outcome.findings.empty(), outcome.text());
        for (std::uint32_t thread = 0; thread < block.x; ++thread)
            BOOST_REQUIRE_MESSAGE(word(buffers, thread) == expected(thread), "thread " << thread << " has "
                                                                                       << word(buffers, thread)
                                                                                       << ", not " << expected(thread));
    }
}

}  // namespace lockstep::ptx
