// Tables of measured times that lockstep-analyze import takes: read, written as traces, and these read again.
#include <filesystem>

#include "analysis/exchange/imported_table.hpp"
#include "analysis/exchange/imported_trace.hpp"
#include "analysis/load/load.hpp"
#include "fuzz/harness.hpp"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string path = fuzz::write_file("table.csv", fuzz::text_of(data, size));
    std::vector<analysis::ImportedRun> runs;
    // A row may stand for as many ranks as a trace can hold.
    constexpr std::uint64_t most = (std::uint64_t{1} << 17) * sizeof(analysis::ImportedRank);
    const auto read = [&] {
        std::vector<std::string> warnings;
        runs = analysis::runs_of_table(read_csv_table(path), warnings);
    };
    fuzz::judge(size, read, most);
    constexpr std::int64_t most_ranks = 64;  // a trace of more takes longer to write than it tells
    if (runs.empty() || runs.front().ranks > most_ranks) return 0;
    const std::string out = fuzz::folder() + "/imported";
    std::uint64_t bytes = 0;
    try {
        bytes = std::filesystem::file_size(analysis::write_imported_run(runs.front(), "table.csv", out));
    } catch (const std::exception& problem) {
        fuzz::finding(std::string("a run that was read cannot be written: ") + problem.what());
    }
    try {
        analysis::LoadOptions options;
        options.runs = {out};
        analysis::load_measurements(options);
    } catch (const std::exception& problem) {
        fuzz::finding(std::string("a trace of ") + std::to_string(bytes) + " bytes cannot be read: " + problem.what());
    }
    std::filesystem::remove_all(out);
    return 0;
}
