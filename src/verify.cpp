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
#include "checkpoint/checkpoint.hpp"
#include "command.hpp"
#include "data/token_file.hpp"
#include "hdf5/hdf5.hpp"
#include "trace/reader.hpp"

namespace lockstep::commands {
namespace {

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
    return fmt::format("a checkpoint of step {}, {} tensors, {} checked",
                       with_commas(checkpoint::read_contents(path).state.step), tensors.size(),
                       human_bytes(static_cast<double>(bytes)));
}

std::string verify_tokens(const std::string& path) {
    log::status_line(path);
    const std::uint64_t bytes = data::verify_token_file(path);
    log::status_line("");
    return fmt::format("{} tokens, {} checked", with_commas(data::read_token_file_info(path).token_count),
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
    return fmt::format("a trace of {} steps, {} ranks, {} events{}; its structure was checked", steps, file.ranks(),
                       events, file.closed() ? "" : ", not closed (killed, or still being written)");
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

void print_line(const std::string& line) {
    if (std::printf("%s\n", line.c_str()) < 0 || std::fflush(stdout) != 0)
        throw fault_error("cannot print the result: {}", system_error_text());
}

int run(const std::vector<std::string>& paths) {
    ExitCode worst = ExitCode::done;
    for (const auto& path : paths) {
        std::string line;
        try {
            line = fmt::format("{}: intact: {}", path, verify_file(path));
        } catch (const Error& error) {
            log::status_line("");
            line = error.what();
            if (gravity(error.code()) > gravity(worst)) worst = error.code();
        }
        print_line(line);
    }
    return static_cast<int>(worst);
}

}  // namespace

void add_verify(CLI::App& program, Action& action) {
    auto paths = std::make_shared<std::vector<std::string>>();
    CLI::App* command = program.add_subcommand("verify", "Check every checksum of checkpoints and token files");
    command->footer(
        "Prints one line per file: its contents, or what is wrong. Traces have no checksums; only their "
        "structure is checked.\n"
        "Exit code: 0 all intact, 3 damage, 2 a missing file or one that lockstep did not write.\n"
        "Example: lockstep verify checkpoints/demo/*.h5");
    command->add_option("files", *paths, "Checkpoints, token files and traces")->required()->type_name("FILE");
    command->callback([paths, &action] { action = [paths] { return run(*paths); }; });
}

}  // namespace lockstep::commands
