// Traces. An input chooses a whole one and edits it; every reader of the library reads it, and the analysis measures
// it.
#include <filesystem>
#include <optional>

#include "analysis/exchange/imported_trace.hpp"
#include "analysis/load/configuration.hpp"
#include "analysis/load/measurement.hpp"
#include "fuzz/harness.hpp"
#include "fuzz/hdf5_edits.hpp"
#include "trace/reader.hpp"
#include "unit/trace/synthetic_trace.hpp"

using namespace lockstep;

namespace {

const std::vector<std::string> phases = {"initialization",
                                         "epoch",
                                         "epoch/step",
                                         "epoch/step/data_loading",
                                         "epoch/step/forward",
                                         "epoch/step/backward",
                                         "epoch/step/communication",
                                         "epoch/step/communication/data",
                                         "epoch/step/optimizer",
                                         "validation",
                                         "checkpoint"};

std::string written(std::size_t ranks, const std::vector<std::string>& regions, std::size_t steps, bool finished) {
    const std::string folder = fuzz::folder() + "/base";
    std::filesystem::remove_all(folder);
    trace::WriterLimits limits;
    limits.fewest_rows = 8;
    limits.event_bytes = 64 * sizeof(trace::EventRow);
    const trace::Header header = trace::test::make_header(ranks, regions);
    trace::TraceWriter writer(folder, header, 16, limits);
    trace::RowBatch block = trace::test::make_block(header, 1, steps);
    for (trace::StepRow& row : block.steps)
        if (row.step % 2 == 0) row.validation = {2, 3, 1000};
    for (std::int32_t i = 0; i < 12 && !regions.empty(); ++i)
        block.events.push_back({1, i % static_cast<std::int32_t>(ranks), i % static_cast<std::int32_t>(regions.size()),
                                0.25 * i, 0.25 * i + 0.5});
    writer.append(block);
    if (finished) writer.finish();
    return fuzz::read_file(writer.path());
}

std::string imported() {
    const std::string table =
        fuzz::write_file("t.csv", "run,ranks,rank,total,compute,communication\na,2,0,10,7,2\na,2,1,9,6,2\n");
    std::vector<std::string> warnings;
    const auto runs = analysis::runs_of_table(read_csv_table(table), warnings);
    return fuzz::read_file(analysis::write_imported_run(runs.front(), "t.csv", fuzz::folder() + "/imported"));
}

const std::vector<std::string>& bases() {
    static const std::vector<std::string> all = {written(3, phases, 12, true), written(2, phases, 5, false),
                                                 written(1, {"epoch", "epoch/step"}, 3, true), written(2, {}, 4, true),
                                                 imported()};
    return all;
}

void read_all_rows(const trace::TraceFile& file) {
    const std::size_t rows = file.steps().size();
    std::vector<double> numbers;
    std::vector<std::uint32_t> calls;
    std::vector<std::uint64_t> memory;
    file.read_times(0, rows, numbers);
    file.read_calls(0, rows, calls);
    file.read_rank_loss(0, rows, numbers);
    file.read_memory(0, rows, memory);
    file.visit_memory(rows, [](std::size_t, const std::uint64_t*) {});
    file.read_overhead(0, rows, numbers);
    file.read_events();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Choices choices(fuzz::text_of(data, size));
    const std::string& base = bases()[choices.below(bases().size())];
    const std::string path = fuzz::write_file("run/trace-001.h5", base);
    fuzz::edit_hdf5(path, choices);
    // Opened once: that takes HDF5 most of the time.
    std::optional<trace::Run> run;
    fuzz::judge(base.size(), [&] { run = trace::open_run(fuzz::folder() + "/run"); });
    if (!run) return 0;
    fuzz::judge(base.size(), [&] { read_all_rows(run->parts.front().file); });
    fuzz::judge(base.size(), [&] {
        analysis::configuration_of(*run);
        analysis::launches_of(*run);
    });
    fuzz::judge(base.size(), [&] {
        analysis::MeasureOptions options;
        options.figures.emplace();
        analysis::measure(*run, options);
    });
    return 0;
}
