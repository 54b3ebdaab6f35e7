// How long lockstep-analyze takes for a trace of many steps and ranks, and how much memory: writes a synthetic trace,
// runs every command that reads it, prints a table. usage: bench_analysis [--steps N] [--ranks N] [--folder DIR]
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "base/error.hpp"
#include "base/table.hpp"
#include "trace/writer.hpp"

namespace {

using namespace lockstep;
namespace fs = std::filesystem;

trace::Header make_header(std::size_t ranks) {
    trace::Header header;
    header.run_name = "synthetic";
    header.program_version = "0.1.0";
    header.description = "[run]\nname = 'synthetic'\n[batch]\nglobal = 4096\nlength = 2048\n";
    header.event_every = 100;
    header.start_time = 1e9;
    for (std::size_t r = 0; r < ranks; ++r) {
        trace::RankRow rank;
        rank.host = "node" + std::to_string(r / 8);
        rank.cores = std::to_string(r % 8);
        rank.data = static_cast<std::int64_t>(r);
        header.ranks.push_back(rank);
    }
    const auto add = [&](std::int64_t parent, const std::string& name) {
        trace::RegionRow region;
        region.id = static_cast<std::int64_t>(header.regions.size());
        region.parent = parent;
        region.name = name;
        region.path = parent < 0 ? name : header.regions[static_cast<std::size_t>(parent)].path + "/" + name;
        header.regions.push_back(region);
        return region.id;
    };
    add(-1, "initialization");
    const std::int64_t step = add(add(-1, "epoch"), "step");
    for (const char* name : {"data_loading", "data_movement", "forward", "loss", "backward"}) add(step, name);
    const std::int64_t communication = add(step, "communication");
    for (const char* name : {"tensor", "pipeline", "context", "data", "control"}) add(communication, name);
    add(step, "optimizer");
    add(-1, "validation");
    add(-1, "checkpoint");
    return header;
}

// Ranks differ by a few percent, steps too; the slowest rank waits for nobody.
trace::RowBatch make_block(const trace::Header& header, std::int64_t first, std::int64_t count) {
    trace::RowBatch block;
    for (std::int64_t step = first; step < first + count; ++step) {
        trace::StepRow row;
        row.step = step;
        row.tokens = 4096 * 2048;
        row.loss = 2 + 8 / std::sqrt(static_cast<double>(step));
        row.seconds = 1 + 0.05 * std::sin(static_cast<double>(step));
        row.wall_time = 1e9 + 1.01 * static_cast<double>(step);
        block.steps.push_back(row);
        for (std::size_t r = 0; r < header.ranks.size(); ++r) {
            const double wait = 0.1 * (1 - std::cos(static_cast<double>(r) + 0.1 * static_cast<double>(step)));
            const double work = row.seconds - wait;
            for (const auto& region : header.regions) {
                double seconds = 0;
                if (region.name == "epoch" || region.name == "step") seconds = row.seconds;
                if (region.name == "forward") seconds = 0.3 * work;
                if (region.name == "backward") seconds = 0.6 * work;
                if (region.name == "optimizer") seconds = 0.1 * work;
                if (region.name == "communication" || region.name == "data") seconds = wait;
                block.times.push_back(seconds);
                block.calls.push_back(seconds > 0 ? 1 : 0);
            }
            block.rank_loss.push_back(row.loss);
            block.overhead.push_back(1e-5);
            for (const std::uint64_t bytes : {30ull << 30, 40ull << 30, 45ull << 30}) block.memory.push_back(bytes);
        }
    }
    return block;
}

struct Cost {
    double seconds = 0, mebibytes = 0;
};

// Runs a program with its output thrown away.
Cost run(const std::vector<std::string>& words) {
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    const auto start = std::chrono::steady_clock::now();
    const pid_t child = ::fork();
    if (child < 0) throw fault_error("cannot start a process: {}", system_error_text());
    if (child == 0) {
        const int nowhere = ::open("/dev/null", O_WRONLY);
        if (nowhere >= 0) ::dup2(nowhere, STDOUT_FILENO);
        ::setenv("LOCKSTEP_NO_GUARD", "1", 1);  // so that the process measured is the one that does the work
        ::execv(arguments[0], arguments.data());
        ::_exit(127);
    }
    int status = 0;
    rusage usage{};
    if (::wait4(child, &status, 0, &usage) < 0)
        throw fault_error("waiting for {} failed: {}", words[0], system_error_text());
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        throw fault_error("{} {} failed", words[0], words.size() > 1 ? words[1] : "");
    return {std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
            static_cast<double>(usage.ru_maxrss) / 1024};
}

void measure(std::int64_t steps, std::int64_t ranks, const std::string& folder) {
    const std::string program = (fs::read_symlink("/proc/self/exe").parent_path() / "lockstep-analyze").string();
    const std::string path = (fs::path(folder) / fmt::format("synthetic-{}-{}", steps, ranks)).string();
    fs::remove_all(path);
    const trace::Header header = make_header(static_cast<std::size_t>(ranks));
    {
        trace::TraceWriter writer(path, header, static_cast<std::uint64_t>(steps));
        constexpr std::int64_t block = 50;
        for (std::int64_t step = 1; step <= steps; step += block)
            writer.append(make_block(header, step, std::min(block, steps - step + 1)));
        writer.finish();
    }
    double bytes = 0;
    for (const auto& file : fs::directory_iterator(path)) bytes += static_cast<double>(file.file_size());
    std::printf("%lld steps, %lld ranks, %zu regions: %.0f MiB\n", static_cast<long long>(steps),
                static_cast<long long>(ranks), header.regions.size(), bytes / (1 << 20));
    Table table({{"command", "command"}, {"seconds", "seconds", 2}, {"memory", "peak memory, MiB", 0}});
    const std::string page = path + ".html";
    std::vector<std::vector<std::string>> commands = {
        {"summary", path}, {"summary", path, "--format", "json"}, {"sweep", path}, {"report", path, "--out", page}};
    // Two files of one run may be compared; a short run has one only.
    const std::string first = path + "/trace-001.h5", second = path + "/trace-002.h5";
    if (fs::exists(second)) commands.push_back({"compare", first, second});
    for (const std::vector<std::string>& words : commands) {
        std::vector<std::string> command = {program};
        command.insert(command.end(), words.begin(), words.end());
        const Cost cost = run(command);
        std::string name = words[0];
        if (words.size() > 3) name += " " + words[2] + " " + words[3];
        if (words[0] == "report") name = "report";
        table.add_row({name, cost.seconds, cost.mebibytes});
    }
    std::fputs(table.print(TableFormat::text).c_str(), stdout);
    fs::remove_all(path);
    fs::remove(page);
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App program("Times lockstep-analyze on a synthetic trace.", "bench_analysis");
    std::int64_t steps = 10000, ranks = 512;
    std::string folder = fs::temp_directory_path().string();
    program.add_option("--steps", steps)->check(CLI::Range(1, 10000000))->capture_default_str();
    program.add_option("--ranks", ranks)->check(CLI::Range(1, 100000))->capture_default_str();
    program.add_option("--folder", folder, "where the trace is written; 1 GB for 10,000 steps of 512 ranks")
        ->capture_default_str();
    CLI11_PARSE(program, argc, argv);
    try {
        measure(steps, ranks, folder);
    } catch (const Error& problem) {
        std::fprintf(stderr, "bench_analysis: %s\n", problem.what());
        return static_cast<int>(problem.code());
    }
    return 0;
}
