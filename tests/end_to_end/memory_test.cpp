// What the trainer says of its memory, what it takes, and what it refuses to begin.
#define BOOST_TEST_MODULE memory
#include "config/run_description.hpp"
#include "end_to_end/command.hpp"
#include "layout/memory_plan.hpp"

using namespace lockstep::tests;
namespace config = lockstep::config;
namespace cluster = lockstep::cluster;

namespace {

const std::string environment = "OMP_NUM_THREADS=1";

Result train(const fs::path& folder, const std::string& name, int ranks, const std::string& more,
             const std::string& fault = "") {
    return run(
        "train run.toml --device cpu --set run.self_test=false --set schedule.steps=4 --set schedule.warmup=1 "
        "--set checkpoint.every=2 --set run.name=" +
            name + more,
        folder, ranks, environment + fault);
}

// Of a rank, bytes, as `lockstep plan` says for the run: the program itself, since what its libraries take differs
// between builds.
double planned_bytes(const fs::path& folder, const std::string& name, int ranks, int zero) {
    write_file(folder / "cores.toml",
               "name = \"cores\"\n[device]\nkind = \"cpu\"\nmemory_gib = 24\npeak_tflops = 0.4\npeak_tflops_fp32 = "
               "0.2\nmemory_gb_per_second = 20\nper_node = " +
                   std::to_string(ranks) + "\n");
    const Result result =
        run("plan " + (run_folder(folder, name) / "run.toml").string() +
                " --hardware cores.toml --tensor 1 --pipeline 1 --micro 2 --context 1 --recompute none "
                "--sequence false --format json --ranks " +
                std::to_string(ranks) + " --zero " + std::to_string(zero),
            folder);
    check_exit(result, 0);
    const Json layouts = Json::parse(result.out)["layouts"];
    BOOST_TEST_REQUIRE(layouts.size() == 1U);
    return layouts[0]["memory_gib"].get<double>() * (1 << 30);
}

config::RunDescription resolved(const fs::path& folder, const std::string& name) {
    return config::read_run_description((run_folder(folder, name) / "run.toml").string(), {});
}

}  // namespace

BOOST_AUTO_TEST_SUITE(planned_memory)

// Of the rank of each stage that needs most: with ZeRO and lanes, replicas differ.
BOOST_AUTO_TEST_CASE(the_log_says_what_the_plan_says) {
    const Workplace place;
    struct Case {
        std::string name, settings;
        config::Grid grid;
    };
    const std::string pipeline =
        " --set model.layers=5 --set parallel.pipeline=2 --set parallel.zero=1 --set parallel.recompute=selective";
    const std::string tensor = " --set parallel.tensor=2 --set parallel.sequence=true --set precision.compute=bf16";
    for (const Case& one :
         {Case{"alone", "", {1, 1, 1, 1}}, Case{"pipeline", pipeline, {1, 1, 2, 2}},
          Case{"tensor", tensor, {2, 1, 1, 1}},
          Case{"zero", " --set parallel.zero=3 --set precision.compute=bf16 --set model.tied_head=true", {1, 1, 4, 1}},
          Case{"zero-stages", pipeline + " --set parallel.zero=2 --set batch.micro=1", {1, 1, 2, 2}},
          Case{"lanes", " --set parallel.lanes=8 --set batch.micro=1 --set parallel.zero=1", {1, 1, 4, 1}}}) {
        const Result result =
            train(place.path(), one.name, static_cast<int>(one.grid.ranks()), one.settings + " --set batch.global=8");
        check_exit(result, 0);
        const config::RunDescription description = resolved(place.path(), one.name);
        for (std::int64_t stage = 0; stage < one.grid.pipeline; ++stage) {
            lockstep::layout::MemoryPlan plan;
            for (std::int64_t data = 0; data < one.grid.data; ++data) {
                cluster::GridPlace where;
                where.pipeline = stage;
                where.data = data;
                const auto of_rank =
                    lockstep::layout::plan_memory(description, one.grid, where, lockstep::DeviceKind::cpu);
                if (of_rank.planned() > plan.planned()) plan = of_rank;
            }
            BOOST_TEST(contains(result.error, ": " + lockstep::layout::memory_text(plan) + "\n"),
                       lockstep::layout::memory_text(plan) << " is not in\n"
                                                           << result.error);
        }
    }
}

// With a checkpoint in the middle of a run, of which as little as can be is written when the next update comes: what is
// copied then is planned.
BOOST_AUTO_TEST_CASE(processes_take_what_is_estimated) {
    const Workplace place;
    const std::string sizes =
        " --set model.width=512 --set model.layers=4 --set model.heads=8 --set model.mlp_width=2048 --set "
        "model.vocabulary=12000 --set batch.micro=2 --set batch.global=4 --set data.order=sequential";
    for (const auto& [ranks, zero] : {std::pair{1, 0}, {2, 0}, {2, 1}, {2, 2}, {2, 3}}) {
        const std::string name = "ranks-" + std::to_string(ranks) + "-" + std::to_string(zero);
        check_exit(train(place.path(), name, ranks, sizes + " --set parallel.zero=" + std::to_string(zero),
                         " LOCKSTEP_FAULT=checkpoint_gather:*:*:late"),
                   0);
        const lockstep::hdf5::File trace =
            lockstep::hdf5::File::open((run_folder(place.path(), name) / "trace-001.h5").string());
        std::vector<std::uint64_t> memory(trace.info("memory").bytes / sizeof(std::uint64_t));
        trace.read_as("memory", lockstep::hdf5::ElementType::uint64, memory.data());
        double peak = 0;  // of any rank, step x rank x (planned, resident, peak)
        for (std::size_t at = 2; at < memory.size(); at += 3) peak = std::max(peak, static_cast<double>(memory[at]));
        const double estimate = planned_bytes(place.path(), name, ranks, zero);
        // Of the buffers that MPI allocates while gradients are reduced, a run may touch all or nearly nothing: whether
        // a message takes one depends on which rank comes first.
        const double untouched = static_cast<double>(
            lockstep::layout::plan_memory(resolved(place.path(), name), {1, 1, ranks, 1}, {}, lockstep::DeviceKind::cpu)
                .communication);
        BOOST_TEST_MESSAGE(ranks << " ranks, zero " << zero << ": estimated " << estimate << ", measured " << peak
                                 << ", " << 100 * (estimate / peak - 1) << " %; at most " << untouched
                                 << " of it untouched by MPI");
#ifndef __SANITIZE_ADDRESS__  // which keeps freed memory for a while
        BOOST_TEST(estimate > 0.9 * peak);
#endif
        BOOST_TEST(estimate - untouched < 1.1 * peak);
    }
}

BOOST_AUTO_TEST_CASE(what_cannot_fit_is_refused_before_it_is_allocated) {
    const Workplace place;
    const std::string model = " --set model.heads=64 --set model.width=16384 --set model.mlp_width=65536";
    const Result states = train(place.path(), "states", 1, model + " --set model.layers=900");
    check_exit(states, 2);
    BOOST_TEST(contains(states.error, "not enough memory: 1 rank would use"));
    BOOST_TEST(contains(states.error, "optimizer state is the largest part"));
    BOOST_TEST(contains(states.error, "a larger parallel.pipeline"));
    BOOST_TEST(states.seconds < 60);
    const Result passes =
        train(place.path(), "passes", 1,
              " --set model.context=4096 --set batch.length=4096 --set batch.micro=8192 --set batch.global=8192");
    check_exit(passes, 2);
    BOOST_TEST(contains(passes.error, "; try: batch.micro below 8192"));
    BOOST_TEST(!fs::exists(run_folder(place.path(), "passes")));
}

BOOST_AUTO_TEST_SUITE_END()
