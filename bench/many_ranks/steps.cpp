// What every step, or every window of steps, costs a rank for being one of many.
#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "command_run.hpp"
#include "many_ranks/parts.hpp"
#include "simulated_group.hpp"
#include "trace/tracer.hpp"
#include "watch/slow_ranks.hpp"

namespace lockstep::bench {

Cost start_of_trace(int ranks) {
    const TemporaryFolder folder(std::filesystem::temp_directory_path().string());
    auto group = std::make_unique<SimulatedGroup>(0, ranks);
    const SimulatedGroup& counted = *group;
    trace::TracerOptions options;
    options.folder = folder.path();
    options.rank.host = host_of(0);
    const double start = seconds_now();
    const trace::Tracer tracer(options, std::move(group));
    return {seconds_now() - start, static_cast<double>(counted.bytes_received()), static_cast<double>(counted.calls())};
}

// A hundred steps, of which the first and the last are sampled, as by default. Steps of 0.4 s flush every 2 s; in place
// of them it sleeps, so that the writing thread has time to end.
Cost trace_steps(int ranks) {
    constexpr int steps = 100, calls_a_step = 10, steps_a_flush = 5;
    const TemporaryFolder folder(std::filesystem::temp_directory_path().string());
    auto group = std::make_unique<SimulatedGroup>(0, ranks);
    const SimulatedGroup& counted = *group;
    trace::TracerOptions options;
    options.folder = folder.path();
    options.steps_left = steps;
    options.event_every = steps;
    options.rank.host = host_of(0);
    trace::Tracer tracer(options, std::move(group));
    std::vector<trace::RegionId> regions;
    for (const char* path :
         {"initialization", "epoch/step/data_loading", "epoch/step/data_movement", "epoch/step/forward",
          "epoch/step/loss", "epoch/step/backward", "epoch/step/communication/tensor",
          "epoch/step/communication/pipeline", "epoch/step/communication/context", "epoch/step/communication/data",
          "epoch/step/communication/control", "epoch/step/optimizer", "validation", "checkpoint"})
        regions.push_back(tracer.region(path));
    Cost cost;
    const std::uint64_t before = counted.bytes_received();
    const std::int64_t calls = counted.calls();
    for (int step = 1; step <= steps; ++step) {
        for (int call = 0; call < calls_a_step; ++call)
            for (const trace::RegionId region : regions) const trace::Scope timed(tracer, region);
        trace::StepNumbers numbers;
        numbers.step = step;
        tracer.finish_step(numbers);
        const double start = seconds_now();
        const bool flushes = tracer.wants_flush() || step % steps_a_flush == 0;
        if (flushes) tracer.flush();
        cost.seconds += seconds_now() - start;
        if (flushes && step < steps) std::this_thread::sleep_for(std::chrono::microseconds(5) * ranks);
    }
    cost.seconds /= steps;
    cost.received = static_cast<double>(counted.bytes_received() - before) / steps;
    cost.operations = static_cast<double>(counted.calls() - calls) / steps;
    return cost;
}

Cost start_of_slow_ranks(int ranks) {
    SimulatedGroup group(0, ranks);
    const double start = seconds_now();
    const watch::SlowRanks slow(group, 0, host_of(0), true, 1);
    return {seconds_now() - start, static_cast<double>(group.bytes_received()), static_cast<double>(group.calls())};
}

Cost windows_of_slow_ranks(int ranks) {
    SimulatedGroup group(0, ranks);
    watch::SlowRanks slow(group, 0, host_of(0), true, 1);
    const std::uint64_t before = group.bytes_received();
    const std::int64_t calls = group.calls();
    const double start = seconds_now();
    constexpr int windows = 5;
    for (int window = 1; window <= windows; ++window) slow.add(window, 1);
    return {(seconds_now() - start) / windows, static_cast<double>(group.bytes_received() - before) / windows,
            static_cast<double>(group.calls() - calls) / windows};
}

}  // namespace lockstep::bench
