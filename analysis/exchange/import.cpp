// lockstep-analyze import: a table of measured times into run folders, so that other commands can read them.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <map>

#include "analysis/command.hpp"
#include "analysis/exchange/imported_table.hpp"
#include "analysis/exchange/imported_trace.hpp"
#include "analysis/output/values.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/table.hpp"

namespace lockstep::analysis {
namespace {

struct Options {
    std::string table, folder, format = "text";
    bool replace = false;
};

// Each sentence once, with the runs that it is true of.
void warn(const std::string& table, const std::vector<ImportedRun>& runs, const std::vector<std::string>& warnings) {
    for (const std::string& warning : warnings) log::warning("{}: {}", table, warning);
    std::vector<std::string> sentences;
    std::map<std::string, std::vector<std::string>> concerned;
    for (const ImportedRun& run : runs)
        for (const std::string& remark : run.remarks) {
            auto& names = concerned[remark];
            if (names.empty()) sentences.push_back(remark);
            names.push_back(run.name);
        }
    constexpr std::size_t named = 4;
    for (const std::string& sentence : sentences) {
        const auto& names = concerned[sentence];
        std::string list;
        for (std::size_t i = 0; i < names.size() && i < named; ++i) list += (i > 0 ? ", " : "") + names[i];
        if (names.size() > named) list += fmt::format(" and {} more", names.size() - named);
        log::warning("{}, run {}: {}", table, list, sentence);
    }
}

int run_import(const Options& options) {
    const TableFormat format = table_format(options.format);
    std::error_code ignored;
    if (std::filesystem::exists(options.folder, ignored) && !std::filesystem::is_directory(options.folder, ignored))
        throw usage_error("{} is not a folder; give another --out", options.folder);
    const CsvTable table = read_csv_table(options.table);
    std::vector<std::string> warnings;
    const std::vector<ImportedRun> runs = runs_of_table(table, warnings);
    const std::string name = std::filesystem::path(options.table).filename().string();
    // All of them before the first is written: a table is imported as a whole or not at all.
    for (const ImportedRun& run : runs) check_folder(options.folder + "/" + run.name, options.replace);
    warn(name, runs, warnings);
    Table written({{"run", "run"},
                   {"ranks", "ranks"},
                   {"rows", "rows of the table"},
                   {"total_seconds", "slowest rank's total, s"},
                   {"tokens_per_second", "total tokens/s", 0},
                   {"remarks", "remarks"},
                   {"trace", "trace"}});
    for (const ImportedRun& run : runs)
        written.add_row({run.name, run.ranks, static_cast<std::int64_t>(run.lines.size()), known(run.slowest_total()),
                         known(run.tokens_per_second()), static_cast<std::int64_t>(run.remarks.size()),
                         write_imported_run(run, name, options.folder + "/" + run.name)});
    print(written.print(format));
    return 0;
}

}  // namespace

void add_import(CLI::App& program, Action& action) {
    auto options = std::make_shared<Options>();
    CLI::App* command =
        program.add_subcommand("import", "Turn a CSV table of measured times into run folders with traces");
    command->add_option("TABLE", options->table, "The table: comma-separated values with a header")->required();
    command->add_option("--out", options->folder, "The folder in which each run gets a folder")->required();
    command->add_flag("--replace", options->replace, "Replace imported runs that have the same names");
    add_format_option(*command, options->format, "of the printed table: ");
    command->footer(
        "Columns: run, ranks, rank, batch, accumulation, length, data, tensor, pipeline, context, tokens,\n"
        "tokens_per_second, peak_memory_bytes, and in seconds total, data_loading, data_movement, compute,\n"
        "communication, forward, loss, backward, optimizer, validation, checkpoint, initialization. Required are\n"
        "ranks (or run and rank) and a time or a rate. A row without rank stands for all ranks of its run. Without a\n"
        "column run, each row is a run, or with a column rank, all rows with the same ranks. Common other names are\n"
        "understood, such as np, gpus, time and walltime.");
    command->callback([options, &action] { action = [options] { return run_import(*options); }; });
}

}  // namespace lockstep::analysis
