// What one rank pays for being one of many: the parts of a run whose cost may grow with the number of ranks, run for
// one rank of a job of any size without the others. Prints seconds, bytes received and peak memory of rank 0, or of
// another rank where that one does more. With --check it fails where memory or messages grow faster than
// docs/reliability.md promises. usage: bench_many_ranks [--ranks N,N,…] [--check]
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <new>
#include <vector>

#include "base/error.hpp"
#include "base/table.hpp"
#include "device/memory.hpp"
#include "many_ranks/parts.hpp"

namespace {

using namespace lockstep;
using bench::Cost;

// What is promised of the rank that needs most: operations, bytes received and bytes of memory for each rank of the
// job, and bytes received of however many ranks.
struct Part {
    const char *name, *unit;
    Cost (*run)(int ranks);
    std::function<Cost()> (*prepare)(int ranks);  // in place of it, where a part needs what is not to be measured
    double most_operations, most_received, most_memory, most_of_all;
};
constexpr double room_for_events = 3 << 20;  // a step's share of what two writes take
constexpr Part parts[] = {
    {"nodes", "start", bench::find_nodes, nullptr, 1, 256, 512, 0},
    {"grid", "start", bench::make_grid, nullptr, 8, 0, 64, 0},
    {"rank map in the log", "start", bench::log_rank_map, nullptr, 2, 1024, 8192, 0},
    {"memory plan", "start", bench::plan_memory, nullptr, 0, 0, 64, 0},
    {"slow ranks: hosts", "start", bench::start_of_slow_ranks, nullptr, 1, 68, 512, 0},
    {"trace: ranks and clocks", "start", bench::start_of_trace, nullptr, 40, 2048, 8192, 0},
    {"agreement on a failure", "failure", bench::agree_on_a_failure, nullptr, 5, 0, 64, 4096},
    {"trace", "step", bench::trace_steps, nullptr, 5, 300, 8192, room_for_events},
    {"slow ranks", "window", bench::windows_of_slow_ranks, nullptr, 1, 8, 512, 0},
    {"checkpoint: who holds what", "write", nullptr, bench::ask_for_exchange_plan, 50, 500, 1024, 0},
    {"checkpoint: resume", "start", nullptr, bench::ask_for_resume, 64, 500, 1024, 16 << 20},
    {"watchdog: one rank behind", "report", bench::report_one_behind, nullptr, 0, 8192, 8192, 0},
    {"watchdog: half behind", "report", bench::report_half_behind, nullptr, 0, 8192, 8192, 0},
    {"doctor: pairs of nodes", "run", bench::pair_nodes, nullptr, 17, 0, 64, 0}};

// Runs a part in a process of its own, whose peak memory is then the part's.
Cost measured(const std::function<Cost()>& part) {
    void* const shared = ::mmap(nullptr, sizeof(Cost), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) throw fault_error("no memory can be shared: {}", system_error_text());
    const pid_t child = ::fork();
    if (child < 0) throw fault_error("cannot start a process: {}", system_error_text());
    if (child == 0) {
        const std::uint64_t before = process_memory().peak;
        try {
            Cost cost = part();
            if (!cost.mebibytes) cost.mebibytes = static_cast<double>(process_memory().peak - before) / (1 << 20);
            new (shared) Cost(cost);
        } catch (const std::exception& problem) {
            std::fprintf(stderr, "%s\n", problem.what());
            ::_exit(1);
        }
        ::_exit(0);
    }
    int status = 0;
    if (::waitpid(child, &status, 0) != child || status != 0) throw fault_error("a part of the measurement failed");
    const Cost cost = *static_cast<const Cost*>(shared);
    if (::munmap(shared, sizeof(Cost)) != 0) throw fault_error("shared memory stays: {}", system_error_text());
    return cost;
}

}  // namespace

int main(int argc, char** argv) try {
    CLI::App program("What one rank pays for being one of many");
    std::vector<int> counts = {1000, 10000, 100000};
    bool check = false;
    program.add_option("--ranks", counts, "Numbers of ranks, multiples of 8, ascending")->delimiter(',');
    program.add_flag("--check", check, "Fail where memory or messages grow faster than promised");
    CLI11_PARSE(program, argc, argv);

    if (check && counts.size() < 2) throw usage_error("--check compares numbers of ranks; name at least two");

    Table table({{"part", "part"},
                 {"ranks", "ranks"},
                 {"per", "per"},
                 {"seconds", "seconds", 4},
                 {"operations", "operations", 1},
                 {"received", "bytes received per rank", 1},
                 {"memory", "peak memory, MiB", 1}});
    bool kept = true;
    int earlier = 0;
    std::vector<Cost> before(std::size(parts));
    for (const int ranks : counts) {
        // What a part needs is made before any is measured: memory that it gives back would hide what others take.
        std::vector<std::function<Cost()>> prepared;
        for (const Part& part : parts)
            prepared.push_back(part.prepare ? part.prepare(ranks) : [&part, ranks] { return part.run(ranks); });
        std::vector<Cost> costs;
        for (const auto& part : prepared) costs.push_back(measured(part));
        for (std::size_t i = 0; i < costs.size(); ++i) {
            const Part& part = parts[i];
            table.add_row({part.name, ranks, part.unit, costs[i].seconds, costs[i].operations,
                           costs[i].received / ranks, *costs[i].mebibytes});
            // Of memory only what grows: from the number of ranks before to this one.
            const double more = earlier == 0 ? 0 : *costs[i].mebibytes - *before[i].mebibytes;
            const double grown = more * (1 << 20) / (ranks - earlier);
            const double received = std::max(costs[i].received - part.most_of_all, 0.0) / ranks;
            if (costs[i].operations <= part.most_operations && received <= part.most_received &&
                grown <= part.most_memory)
                continue;
            kept = false;
            std::fprintf(stderr,
                         "%s: of %d ranks, it takes %.1f operations, and each costs %.0f bytes received and %.0f of "
                         "memory; promised are %.0f, %.0f and %.0f\n",
                         part.name, ranks, costs[i].operations, received, grown, part.most_operations,
                         part.most_received, part.most_memory);
        }
        earlier = ranks;
        before = costs;
    }
    std::fputs(table.print(TableFormat::text).c_str(), stdout);
    return check && !kept ? 1 : 0;
} catch (const std::exception& problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    return 1;
}
