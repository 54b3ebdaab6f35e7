#include "tensorboard/event.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "analysis/exchange/formats.hpp"
#include "base/error.hpp"
#include "trace/scalars.hpp"

namespace lockstep::analysis {
namespace {

namespace fs = std::filesystem;

void write_part(const trace::RunPart& part, Output& output) {
    part.file.visit_memory(part.rows, [&](std::size_t number, const std::uint64_t* memory) {
        const trace::StepRow& row = part.file.steps()[number];
        std::vector<tensorboard::Scalar> scalars = trace::step_scalars(row);
        const auto add = [&](const std::vector<tensorboard::Scalar>& more) {
            scalars.insert(scalars.end(), more.begin(), more.end());
        };
        if (row.validation.tokens > 0) add(trace::validation_scalars(row.validation));
        const std::uint64_t peak = memory[2];  // of rank 0
        if (peak > 0) add(trace::memory_scalars(peak));
        output.write(tensorboard::scalars_record(row.wall_time, row.step, scalars));
    });
}

}  // namespace

std::string tensorboard_path(const trace::Run& run, const std::string& folder) {
    const trace::Header& header = run.header();
    const std::string& name = header.run_name;
    if (header.is_imported())
        throw usage_error("{} was imported from a table: it has no steps for TensorBoard", run.path);
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos)
        throw damaged_error("{}: \"{}\" is not a valid run name", run.path, name);
    const double started = run.parts.front().file.header().start_time;
    // As TensorBoard's own writers call theirs, in ten digits; the same run has the same name at every export.
    const auto seconds = started > 0 && started < 1e10 ? static_cast<std::int64_t>(started) : 0;
    return (fs::path(folder) / name / fmt::format("events.out.tfevents.{:010}.lockstep", seconds)).string();
}

void write_tensorboard(const trace::Run& run, Output& output) {
    output.write(tensorboard::version_record(run.parts.front().file.header().start_time));
    std::int64_t launch = 0;
    for (const trace::RunPart& part : run.parts) {
        if (part.rows == 0) continue;
        if (part.launch != launch) {
            const trace::StepRow& first = part.file.steps().front();
            output.write(tensorboard::text_record(first.wall_time, first.step, trace::description_tag,
                                                  tensorboard::as_code(part.file.header().description)));
            launch = part.launch;
        }
        write_part(part, output);
    }
}

}  // namespace lockstep::analysis
