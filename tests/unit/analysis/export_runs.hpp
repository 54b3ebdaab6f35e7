// Runs with known events, for the tests of export.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "unit/analysis/text.hpp"
#include "unit/trace/synthetic_trace.hpp"

namespace lockstep::analysis::test {

inline const std::vector<std::string> usual_regions = {"epoch", "epoch/step", "epoch/step/forward",
                                                       "epoch/step/backward"};

// One launch of a run: its steps first … first + count - 1 with the numbers of make_block, each step's number added
// to its calls, these events, and in every step what is `counted`.
inline void write_launch(const std::string& folder, const trace::Header& header, std::int64_t first, std::size_t count,
                         const std::vector<trace::EventRow>& events, trace::WriterLimits limits = {},
                         const trace::StepRecord& counted = {}) {
    trace::RowBatch block = trace::test::make_block(header, first, count);
    for (trace::StepRow& row : block.steps) {
        row.wall_time += header.start_time - 1e9;
        row.joules = counted.joules;
        row.instructions = counted.instructions;
        row.cycles = counted.cycles;
        row.processor_seconds = counted.processor_seconds;
    }
    const std::size_t cells = header.ranks.size() * header.regions.size();
    for (std::size_t i = 0; i < block.calls.size(); ++i)
        block.calls[i] += static_cast<std::uint32_t>(block.steps[i / cells].step);
    block.events = events;
    trace::TraceWriter writer(folder, header, count, limits);
    writer.append(block);
    writer.finish();
}

// In nanoseconds since the launch's start.
inline trace::EventRow event(std::int64_t step, std::int32_t rank, std::int32_t region, std::int64_t start,
                             std::int64_t end) {
    return {step, rank, region, static_cast<double>(start) * 1e-9, static_cast<double>(end) * 1e-9};
}

// What a rank did in a step, innermost first, as a tracer hands it over.
inline void add_step(std::vector<trace::EventRow>& events, std::int64_t step, std::int32_t rank) {
    const std::int64_t start = step * 1'000'000'000 + rank * 1001;
    events.push_back(event(step, rank, 2, start, start + 20'000'003));
    events.push_back(event(step, rank, 3, start + 20'000'003, start + 60'000'007));
    events.push_back(event(step, rank, 1, start, start + 70'000'000));
    events.push_back(event(step, rank, 0, start, start + 80'000'000));
}

// Two ranks, eight steps, four in each file; all events, of steps 1, 3 and 7, are in the second.
inline void write_launch_in_two_files(const std::string& folder) {
    std::vector<trace::EventRow> events;
    for (const std::int64_t step : {1, 3, 7})
        for (const std::int32_t rank : {0, 1}) add_step(events, step, rank);
    trace::WriterLimits limits;
    limits.file_bytes = 1;
    limits.fewest_rows = 4;
    write_launch(folder, trace::test::make_header(2, usual_regions), 1, 8, events, limits);
}

}  // namespace lockstep::analysis::test
