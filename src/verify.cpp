// lockstep verify: checks all checksums of lockstep's files.
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/plural.hpp"
#include "base/whole_file.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/part_files.hpp"
#include "command.hpp"
#include "config/run_description.hpp"
#include "data/token_file.hpp"
#include "hdf5/hdf5.hpp"
#include "trace/reader.hpp"
#include "train/initial_model.hpp"

namespace lockstep::commands {
namespace {

namespace fs = std::filesystem;

// Each checks one whole file and describes it; throws on damage.
std::string verify_checkpoint(const std::string& path) {
    std::uint64_t shown = 0;
    const std::uint64_t bytes = checkpoint::verify(path, [&](std::uint64_t checked, std::uint64_t total) {
        const std::uint64_t percent = total == 0 ? 100 : checked * 100 / total;
        if (percent == shown) return;
        shown = percent;
        log::status_line(fmt::format("{}: {} % of {}", path, percent, human_bytes(static_cast<double>(total))));
    });
    log::status_line("");
    const auto tensors = checkpoint::list_tensors(path);
    if (const auto part = checkpoint::part_of(path))
        return fmt::format("{}, of {} tensor{}, {} checked", checkpoint::part_text(*part), tensors.size(),
                           plural(tensors.size()), human_bytes(static_cast<double>(bytes)));
    return fmt::format("a checkpoint of step {}, {} tensor{}, {} checked",
                       with_commas(checkpoint::read_contents(path).state.step), tensors.size(), plural(tensors.size()),
                       human_bytes(static_cast<double>(bytes)));
}

std::string verify_tokens(const std::string& path) {
    log::status_line(path);
    const std::uint64_t bytes = data::verify_token_file(path);
    log::status_line("");
    const std::int64_t tokens = data::read_token_file_info(path).token_count;
    return fmt::format("{} token{}, {} checked", with_commas(tokens), plural(tokens),
                       human_bytes(static_cast<double>(bytes)));
}

// Traces carry no checksums: HDF5 checks the structure, and all rows must be readable.
std::string verify_trace(const std::string& path) {
    const trace::TraceFile file(path);
    const std::size_t steps = file.steps().size();
    std::vector<double> numbers;
    std::vector<std::uint32_t> calls;
    std::vector<std::uint64_t> memory;
    constexpr std::size_t rows = 1024;
    for (std::size_t first = 0; first < steps; first += rows) {
        const std::size_t count = std::min(rows, steps - first);
        file.read_times(first, count, numbers);
        file.read_calls(first, count, calls);
        file.read_rank_loss(first, count, numbers);
        file.read_memory(first, count, memory);
        file.read_overhead(first, count, numbers);
    }
    const std::size_t events = file.read_events().size();
    return fmt::format("a trace of {} step{}, {} rank{}, {} event{}{}; its structure was checked", steps, plural(steps),
                       file.ranks(), plural(file.ranks()), events, plural(events),
                       file.closed() ? "" : ", not closed (killed, or still being written)");
}

struct Format {
    const char* name;  // the root attribute `format`
    std::string (*verify)(const std::string& path);
};
constexpr std::array<Format, 3> formats = {
    {{"lockstep-checkpoint", verify_checkpoint}, {"lockstep-tokens", verify_tokens}, {"lockstep-trace", verify_trace}}};

std::string verify_file(const std::string& path) {
    std::string name;
    check_written_by_lockstep(path);
    {
        const hdf5::File file = hdf5::File::open(path);
        if (file.has_attribute("/", "format")) name = file.read_string("/", "format");
    }
    for (const auto& format : formats)
        if (name == format.name) return format.verify(path);
    throw usage_error("{} is an HDF5 file that lockstep did not write: its format is {}", path,
                      name.empty() ? "not given" : "'" + name + "'");
}

// The exit code is that of the gravest failure: damage, then faults, then wrong input.
int gravity(ExitCode code) {
    switch (code) {
        case ExitCode::done:
            return 0;
        case ExitCode::usage:
            return 1;
        case ExitCode::damaged:
            return 3;
        default:
            return 2;
    }
}

// The files that a path stands for: itself, or those of lockstep in a folder. Of a run's folder also its checkpoints.
std::vector<std::string> files_of(const std::string& path) {
    std::error_code problem;
    if (!fs::is_directory(path, problem)) return {path};
    std::vector<std::string> folders = {path}, files;
    if (const std::string checkpoints = train::checkpoint_folder_of(path);
        checkpoints != path && fs::is_directory(checkpoints, problem))
        folders.push_back(checkpoints);
    for (const std::string& folder : folders) {
        const std::size_t before = files.size();
        for (fs::directory_iterator entry(folder, problem), end; !problem && entry != end; entry.increment(problem))
            if (entry->path().extension() == ".h5" || checkpoint::part_of(entry->path().string())) {
                std::error_code none;
                const fs::file_type kind = entry->status(none).type();
                if (kind == fs::file_type::regular || kind == fs::file_type::none) files.push_back(entry->path());
            }
        if (problem) throw usage_error("the folder {} cannot be read: {}", folder, problem.message());
        std::sort(files.begin() + static_cast<std::ptrdiff_t>(before), files.end());
    }
    if (files.empty())
        throw usage_error("{} has no Lockstep files (.h5); name a run's folder, a folder of checkpoints or a file",
                          path);
    return files;
}

// Of a run's folder, why its checkpoints cannot be found; they are not among files_of() then.
void check_description(const std::string& path) {
    std::error_code none;
    if (!fs::exists(path + "/status.json", none)) return;
    const std::string description = path + "/run.toml";
    if (!fs::exists(description, none))
        throw usage_error("{} is missing: it names the checkpoints, which are not checked", description);
    if (config::parse_foreign_description(read_text_file(description), description).run.name.empty())
        throw damaged_error("{} is damaged: it has no run.name, so checkpoints are not checked", description);
}

int run(const std::vector<std::string>& paths) {
    ExitCode worst = ExitCode::done;
    // One line of output, or of what is wrong.
    const auto print = [&](const auto& check) {
        std::string line;
        try {
            line = check();
        } catch (const Error& error) {
            log::status_line("");
            line = fmt::format("error: {}", error.what());
            if (gravity(error.code()) > gravity(worst)) worst = error.code();
        }
        if (!line.empty()) print_result("{}\n", line);
    };
    for (const auto& path : paths) {
        std::vector<std::string> files;
        print([&] {
            check_description(path);
            return std::string();
        });
        print([&] {
            files = files_of(path);
            return std::string();
        });
        for (const std::string& file : files)
            print([&] { return fmt::format("{}: intact: {}", file, verify_file(file)); });
    }
    return static_cast<int>(worst);
}

}  // namespace

void add_verify(CLI::App& program, Action& action) {
    auto paths = std::make_shared<std::vector<std::string>>();
    CLI::App* command = program.add_subcommand("verify", "Check every checksum of checkpoints and token files");
    command->footer(
        "Prints one line per file: its contents, or what is wrong. In a run's folder its traces and checkpoints are "
        "checked,\n"
        "in any other folder the .h5 files and the parts of local checkpoints.\n"
        "Traces have no checksums; only their structure is checked.\n"
        "Checkpoints of a run with checkpoint.verify = \"written\" were not read back when they were written: check "
        "them here.\n"
        "Exit code: 0 all intact, 3 damage, 2 a missing file or one that lockstep did not write.\n"
        "Example: lockstep verify runs/demo");
    command->add_option("FILES", *paths, "Checkpoints, token files, traces, or folders of them")
        ->required()
        ->type_name("PATH");
    command->callback([paths, &action] { action = [paths] { return run(*paths); }; });
}

}  // namespace lockstep::commands
