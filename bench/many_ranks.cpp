// What one rank pays for being one of many: the parts of a run whose cost may grow with the number of ranks, run for
// one rank of a job of any size without the others. Prints seconds, bytes received and peak memory of rank 0, or of
// another rank where that one does more. With --check it fails where memory or messages grow faster than
// docs/reliability.md promises. usage: bench_many_ranks [--ranks N,N,…] [--check]
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <unordered_set>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/table.hpp"
#include "checkpoint/holdings.hpp"
#include "checkpoint/snapshot.hpp"
#include "checkpoint/transfer.hpp"
#include "command_run.hpp"
#include "device/memory.hpp"
#include "doctor/schedule.hpp"
#include "kernels/counting_backend.hpp"
#include "layout/memory_plan.hpp"
#include "layout/rank_share.hpp"
#include "optim/registry.hpp"
#include "simulated_group.hpp"
#include "trace/tracer.hpp"
#include "train/checkpoint_contents.hpp"
#include "watch/slow_ranks.hpp"

namespace {

using namespace lockstep;
using bench::SimulatedGroup;

constexpr int tensor_ranks = 4, stages = 2, ranks_per_node = 8;

config::RunDescription description_of(int ranks) {
    config::RunDescription run = config::parse_run_description(
        "[model]\nwidth = 256\nlayers = 24\nheads = 4\nvocabulary = 8192\ncontext = 128\n[batch]\nlength = 128\n"
        "micro = 1\n[parallel]\nzero = 1\n[data]\ntrain = \"none.h5\"\n[schedule]\nsteps = 10\n",
        "the description", {});
    run.parallel.tensor = tensor_ranks;
    run.parallel.pipeline = stages;
    run.batch.global = ranks / (tensor_ranks * stages);
    return run;
}

config::Grid grid_of(int ranks) {
    config::Grid grid;
    grid.tensor = tensor_ranks;
    grid.pipeline = stages;
    grid.data = ranks / (tensor_ranks * stages);
    return grid;
}

// A rank's tensors as training makes them.
struct RankState {
    layout::Devices devices;
    train::TrainingState state;
};

// Gradient plans are the same for all replicas of a place in the model.
class RankStates {
  public:
    explicit RankStates(int ranks) : run_(description_of(ranks)), grid_(grid_of(ranks)) {}

    RankState make(int rank, std::unique_ptr<kernels::Backend> backend) {
        const cluster::GridPlace place = cluster::grid_place(rank, grid_);
        const model::Part part{place.tensor, grid_.tensor};
        Known& known = known_[{place.tensor, place.pipeline}];
        if (!known.layout) {
            const auto chunks = layout::share_of_model(run_, grid_, place.pipeline);
            known.layout =
                std::make_unique<model::ParameterLayout>(model::describe_parameters(run_.model, chunks), part);
            known.plan = layout::plan_gradients(run_, grid_, place, *known.layout, chunks);
        }
        RankState made;
        made.devices.backend = std::move(backend);
        made.state.parameters =
            std::make_unique<model::ParameterSet>(made.devices.backend->device(), *known.layout, true, Type::bf16,
                                                  layout::division_of(run_, grid_, known.plan, place.replica(grid_)));
        made.state.optimizer =
            optim::optimizer_of(run_.optimizer)
                .make({*made.devices.backend, *made.state.parameters, run_.optimizer, {}, {}, nullptr, nullptr});
        return made;
    }

  private:
    struct Known {
        std::unique_ptr<model::ParameterLayout> layout;
        layout::GradientPlan plan;
    };
    config::RunDescription run_;
    config::Grid grid_;
    std::map<std::pair<std::int64_t, std::int64_t>, Known> known_;
};

struct Cost {
    double seconds = 0, received = 0, calls = 0;
    std::optional<double> mebibytes = std::nullopt;  // where not of the whole part
};

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

// What all ranks say of the tensors they hold: their messages in gather_distinct_texts().
struct Said {
    checkpoint::Layout layout;
    std::string hashes, texts;
};

Said ask_all(RankStates& states, int ranks) {
    Said said;
    std::map<std::string, Shape> tensors;
    for (int rank = 0; rank < tensor_ranks * stages; ++rank) {  // one replica names them all
        const int of_replica = cluster::grid_rank({rank % tensor_ranks, 0, 0, rank / tensor_ranks}, grid_of(ranks));
        const RankState made = states.make(of_replica, std::make_unique<kernels::CountingBackend>(DeviceKind::cpu));
        const auto& layout = made.state.parameters->layout();
        for (std::size_t i = 0; i < layout.size(); ++i) {
            const auto& parameter = layout.descriptions()[i];
            tensors[checkpoint::parameters_prefix + parameter.name] = parameter.shape;
        }
        for (const optim::StatePart& part : made.state.optimizer->state().parts())
            tensors["optimizer/" + part.path] = part.shape;
    }
    std::vector<checkpoint::TensorInfo> infos;
    for (const auto& [path, shape] : tensors) infos.push_back({path, shape});
    said.layout = checkpoint::make_part_header({}, infos, {ranks, "0000000000000000"}).layout;

    std::unordered_set<std::string> known;
    double last_line = seconds_now();
    for (int rank = 0; rank < ranks; ++rank) {
        const RankState made = states.make(rank, std::make_unique<kernels::CountingBackend>(DeviceKind::cpu));
        const auto own =
            checkpoint::holdings_to_texts(said.layout.places, train::checkpoint_entries(made.state, made.devices));
        said.hashes += cluster::hashes_of(own);
        for (const std::string& text : own)
            if (known.insert(text).second) cluster::add_text(said.texts, text);
        if (seconds_now() - last_line < 10) continue;
        last_line = seconds_now();
        std::fprintf(stderr, "asked %d of %d ranks\n", rank + 1, ranks);
    }
    return said;
}

Cost exchange_plan(const Said& said, RankStates& states, int rank, int ranks) {
    SimulatedGroup group(rank, ranks, {said.hashes, said.texts});
    const RankState made = states.make(rank, kernels::make_cpu_backend());
    const auto entries = train::checkpoint_entries(made.state, made.devices);
    const std::uint64_t before = process_memory().peak;
    const double start = seconds_now();
    const checkpoint::Holdings holdings = checkpoint::gather_holdings(said.layout.places, entries, group);
    const auto received = static_cast<double>(group.bytes_received());
    checkpoint::Collector collector(said.layout, holdings.spreads, entries, group, checkpoint::elements_a_round(ranks));
    collector.check_cover();
    checkpoint::Snapshot blocks;
    if (collector.collect(blocks)) throw fault_error("the blocks were not collected");
    return {seconds_now() - start, received, static_cast<double>(group.calls()),
            static_cast<double>(process_memory().peak - before) / (1 << 20)};
}

// Ten steps, of which the first and the last are sampled.
Cost trace_of_steps(int ranks) {
    constexpr int steps = 10, calls_a_step = 10;
    const bench::TemporaryFolder folder(std::filesystem::temp_directory_path().string());
    auto group = std::make_unique<SimulatedGroup>(0, ranks);
    const SimulatedGroup& counted = *group;
    trace::TracerOptions options;
    options.folder = folder.path();
    options.steps_left = steps;
    options.event_every = steps;
    options.rank.host = "node00001";
    trace::Tracer tracer(options, std::move(group));
    std::vector<trace::RegionId> regions;
    for (const char* path :
         {"initialization", "epoch/step/data_loading", "epoch/step/data_movement", "epoch/step/forward",
          "epoch/step/loss", "epoch/step/backward", "epoch/step/communication/tensor",
          "epoch/step/communication/pipeline", "epoch/step/communication/context", "epoch/step/communication/data",
          "epoch/step/communication/control", "epoch/step/optimizer", "validation", "checkpoint"})
        regions.push_back(tracer.region(path));
    Cost cost;
    const std::uint64_t before = counted.bytes_received();
    const std::int64_t calls = counted.calls();
    for (int step = 1; step <= steps; ++step) {
        for (int call = 0; call < calls_a_step; ++call)
            for (const trace::RegionId region : regions) const trace::Scope timed(tracer, region);
        trace::StepNumbers numbers;
        numbers.step = step;
        tracer.finish_step(numbers);
        const double start = seconds_now();
        if (tracer.wants_flush() || step == steps) tracer.flush();
        cost.seconds += seconds_now() - start;
    }
    cost.seconds /= steps;
    cost.received = static_cast<double>(counted.bytes_received() - before) / steps;
    cost.calls = static_cast<double>(counted.calls() - calls) / steps;
    return cost;
}

Cost straggler_start(int ranks) {
    SimulatedGroup group(0, ranks);
    const double start = seconds_now();
    const watch::SlowRanks slow(group, 0, "node00001", true, 1);
    return {seconds_now() - start, static_cast<double>(group.bytes_received()), static_cast<double>(group.calls())};
}

Cost straggler_windows(int ranks) {
    SimulatedGroup group(0, ranks);
    watch::SlowRanks slow(group, 0, "node00001", true, 1);
    const std::uint64_t before = group.bytes_received();
    const std::int64_t calls = group.calls();
    const double start = seconds_now();
    constexpr int windows = 5;
    for (int window = 1; window <= windows; ++window) slow.add(window, 1);
    return {(seconds_now() - start) / windows, static_cast<double>(group.bytes_received() - before) / windows,
            static_cast<double>(group.calls() - calls) / windows};
}

Cost memory_plan(int ranks) {
    const config::RunDescription run = description_of(ranks);
    const double start = seconds_now();
    layout::plan_memory(run, grid_of(ranks), cluster::grid_place(ranks / 2, grid_of(ranks)), DeviceKind::cuda);
    return {seconds_now() - start};
}

Cost link_schedule(int ranks) {
    const double start = seconds_now();
    const auto rounds = doctor::enough_pairs(ranks / ranks_per_node);
    return {seconds_now() - start, 0, static_cast<double>(rounds.size())};
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

    // Promised on the rank that needs most: operations, bytes received and bytes of memory for each rank of the job,
    // and bytes received of however many ranks.
    struct Part {
        const char *name, *unit;
        double most_calls, most_received, most_memory, most_of_all;
    };
    constexpr double room_for_events = 3 << 20;  // a step's share of what two writes take
    constexpr Part parts[] = {{"checkpoint: who holds what", "write", 50, 500, 1024, 0},
                              {"trace", "step", 5, 300, 8192, room_for_events},
                              {"slow ranks: start", "start", 1, 68, 512, 0},
                              {"slow ranks", "window", 1, 8, 512, 0},
                              {"memory plan", "start", 0, 0, 64, 0},
                              {"doctor: pairs of nodes", "run", 17, 0, 64, 0}};
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
        RankStates states(ranks);
        const Said said = ask_all(states, ranks);
        const std::vector<Cost> costs = {measured([&] { return exchange_plan(said, states, ranks / 2, ranks); }),
                                         measured([&] { return trace_of_steps(ranks); }),
                                         measured([&] { return straggler_start(ranks); }),
                                         measured([&] { return straggler_windows(ranks); }),
                                         measured([&] { return memory_plan(ranks); }),
                                         measured([&] { return link_schedule(ranks); })};
        for (std::size_t i = 0; i < costs.size(); ++i) {
            const Part& part = parts[i];
            table.add_row({part.name, ranks, part.unit, costs[i].seconds, costs[i].calls, costs[i].received / ranks,
                           *costs[i].mebibytes});
            // Of memory only what grows: from the number of ranks before to this one.
            const double more = earlier == 0 ? 0 : *costs[i].mebibytes - *before[i].mebibytes;
            const double grown = more * (1 << 20) / (ranks - earlier);
            const double received = std::max(costs[i].received - part.most_of_all, 0.0) / ranks;
            if (costs[i].calls <= part.most_calls && received <= part.most_received && grown <= part.most_memory)
                continue;
            kept = false;
            std::fprintf(stderr,
                         "%s: of %d ranks, it takes %.1f operations, and each costs %.0f bytes received and %.0f of "
                         "memory; promised are %.0f, %.0f and %.0f\n",
                         part.name, ranks, costs[i].calls, received, grown, part.most_calls, part.most_received,
                         part.most_memory);
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
