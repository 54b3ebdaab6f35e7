#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "analysis/exchange/formats.hpp"
#include "base/table.hpp"

namespace lockstep::analysis {
namespace {

void write_part(const trace::RunPart& part, Output& output) {
    const trace::TraceFile& file = part.file;
    const std::size_t ranks = file.ranks(), regions = file.regions();
    std::vector<std::string> names;
    for (const auto& region : file.header().regions) names.push_back(csv_field(region.path));
    constexpr std::size_t block_bytes = std::size_t{4} << 20;
    const std::size_t block = std::max<std::size_t>(block_bytes / (ranks * (regions * 12 + 1)), 1);
    std::vector<double> seconds;
    std::vector<std::uint32_t> calls;
    for (std::size_t first = 0; first < part.rows; first += block) {
        const std::size_t count = std::min(block, part.rows - first);
        file.read_times(first, count, seconds);
        file.read_calls(first, count, calls);
        for (std::size_t i = 0; i < count; ++i) {
            std::string lines;
            for (std::size_t cell = i * ranks * regions; cell < (i + 1) * ranks * regions; ++cell) {
                fmt::format_to(std::back_inserter(lines), "{},{},{},", file.steps()[first + i].step,
                               cell / regions % ranks, names[cell % regions]);
                // Nothing was measured: an empty cell.
                if (std::isfinite(seconds[cell])) fmt::format_to(std::back_inserter(lines), "{}", seconds[cell]);
                fmt::format_to(std::back_inserter(lines), ",{}\n", calls[cell]);
            }
            output.write(lines);
        }
    }
}

}  // namespace

void write_csv(const trace::Run& run, Output& output) {
    output.write("step,rank,region,seconds,calls\n");
    for (const auto& part : run.parts) write_part(part, output);
}

}  // namespace lockstep::analysis
