// lockstep plan as a user calls it.
#define BOOST_TEST_MODULE plan
#include "end_to_end/command.hpp"

using namespace lockstep::tests;

namespace {

const std::string examples = source_path("jobs/examples/");
const std::string table = source_path("tests/plan/a100_3d_topologies.csv");

Json planned(const Workplace& place, const std::string& arguments) {
    const Result result = run("plan " + arguments + " --format json", place.path());
    check_exit(result, 0);
    return Json::parse(result.out);
}

// Place of a layout in the list, from 0; the number of layouts where it is not there.
std::size_t place_of(const Json& layouts, int tensor, int pipeline, int micro) {
    for (std::size_t i = 0; i < layouts.size(); ++i)
        if (layouts[i]["tensor"] == tensor && layouts[i]["pipeline"] == pipeline && layouts[i]["micro"] == micro)
            return i;
    return layouts.size();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(plan)

BOOST_AUTO_TEST_CASE(finalists_of_a_study_are_in_the_measured_order) {
    const Workplace place;
    const Json plan = planned(place, examples + "plan-176b-a100.toml --top 100");
    const Json& layouts = plan["layouts"];
    BOOST_TEST(place_of(layouts, 4, 12, 2) == 0U);
    for (const int micro : {1, 2, 4, 8}) {
        BOOST_TEST(place_of(layouts, 4, 12, 2) < place_of(layouts, 8, 12, micro));
        BOOST_TEST(place_of(layouts, 4, 12, 2) < place_of(layouts, 4, 6, micro));
        BOOST_TEST(place_of(layouts, 4, 12, 2) < place_of(layouts, 8, 6, micro));
    }
    for (const int good : {2, 4})
        for (const int bad : {1, 8}) {
            BOOST_TEST(place_of(layouts, 4, 12, good) < place_of(layouts, 4, 12, bad));
            BOOST_TEST(place_of(layouts, 8, 12, good) < place_of(layouts, 8, 12, bad));
        }
    // A step is the sum of its parts.
    double sum = 0;
    for (const auto& part : layouts[0]["parts"]) sum += part.get<double>();
    BOOST_TEST(sum == layouts[0]["seconds"].get<double>(), boost::test_tools::tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(one_gpu_is_enough_for_small_adapters) {
    const Workplace place;
    const Json plan = planned(place, examples + "plan-frozen-adapters.toml");
    BOOST_TEST(plan["recommended"]["devices"] == 1);
    BOOST_TEST(plan["counts"].size() == 3U);
    const auto memory = [&](int index) { return plan["counts"][index]["memory_gib"].get<double>(); };
    BOOST_TEST(std::abs(memory(0) - 34) < 2);
    BOOST_TEST(memory(1) < 0.6 * memory(0));
    const Json tight = planned(place, examples + "plan-frozen-adapters.toml --within 50m");
    BOOST_TEST(tight["recommended"]["devices"] == 4);
}

BOOST_AUTO_TEST_CASE(a_plan_can_be_run) {
    const Workplace place;
    write_file(place.path() / "text.txt", make_text(20000));
    write_file(place.path() / "run.toml",
               "[run]\nname = \"small\"\n[model]\nwidth = 64\nlayers = 4\nheads = 4\nvocabulary = 256\ncontext = 32\n"
               "[data]\ntrain = [\"text.txt\"]\n[batch]\nglobal = 8\n[schedule]\nsteps = 2\npeak_lr = 1e-3\n"
               "[plan]\nhardware = \"h100-80-8x400g\"\ngpus = \"2\"\ntensor = \"2\"\n");
    const Result result = run("plan run.toml --write-job slurm --set precision.compute=fp32", place.path());
    check_exit(result, 0);
    BOOST_TEST(contains(result.out, "tensor = 2"), result);
    const std::string script = read_file(place.path() / "small.slurm");
    BOOST_TEST(contains(script, "\n#SBATCH --ntasks-per-node=2\n"));
    BOOST_TEST(contains(script, "\n#SBATCH --gpus-per-node=2\n"));
    BOOST_TEST(contains(script, "\nruns=(small.planned.toml)\n"));
    const Result full = run("plan run.toml > /dev/full", place.path());
    check_exit(full, 1);
    BOOST_TEST(contains(full.error, "cannot print the result"), full);
    check_exit(run("train small.planned.toml --device cpu --set run.self_test=false", place.path(), 2), 0);
    // What the CPU updates is not in the GPU's memory.
    const auto memory = [&](const std::string& offload) {
        const std::string large = "--set model.width=1024 --set model.heads=16 --set parallel.offload=" + offload;
        const Result planned = run("plan run.toml --format json --write-run large.toml " + large, place.path());
        check_exit(planned, 0);
        BOOST_TEST(contains(read_file(place.path() / "large.toml"), "offload = \"" + offload + "\""));
        return Json::parse(planned.out)["recommended"]["memory_gib"].get<double>();
    };
    BOOST_TEST(memory("moments") < memory("none") - 0.15);
}

BOOST_AUTO_TEST_CASE(what_cannot_work_names_the_number) {
    const Workplace place;
    const Result large = run("plan " + examples + "plan-176b-a100.toml --gpus 8 --nodes 0.001", place.path());
    BOOST_TEST(large.exit_code == 2, large);
    const Result none = run("plan " + examples + "plan-frozen-adapters.toml --gpus 1 --memory-limit 20", place.path());
    check_exit(none, 2);
    BOOST_TEST(contains(none.error, "GiB needed of 20.0"), none);
    BOOST_TEST(contains(none.error, "the parameters"), none);
    const Result short_time = run("plan " + examples + "plan-frozen-adapters.toml --gpus 1 --within 1m", place.path());
    check_exit(short_time, 2);
    BOOST_TEST(contains(short_time.error, "exceeds the limit of"), short_time);
    for (const auto& [arguments, sentence] :
         std::vector<std::pair<std::string, std::string>>{{"--gpus 2", "no machine given"},
                                                          {"--gpus 2 --hardware h1000", "h100-80-8x400g"},
                                                          {"--gpus two --hardware h100-80-8x400g", "whole numbers"},
                                                          {"--hardware h100-80-8x400g", "no number of devices given"},
                                                          {"--evaluate missing.csv", "missing.csv"},
                                                          {"--fit " + table, "--out"}}) {
        const Result result = run("plan " + arguments +
                                      (arguments.find("--gpus") == 0 || arguments.find("--hard") == 0
                                           ? " --set model.preset=gpt2-124m --set batch.global=8 --set "
                                             "run.name=x --set data.train=x --set schedule.peak_lr=1e-3 "
                                             "--set schedule.steps=10"
                                           : ""),
                                  place.path());
        check_exit(result, 2);
        BOOST_TEST(contains(result.error, sentence), result);
    }
}

BOOST_AUTO_TEST_CASE(the_command_line_comes_before_the_file) {
    const Workplace place;
    const Json plan = planned(place, examples + "plan-176b-a100.toml --gpus 192 --by tokens");
    BOOST_TEST(plan["recommended"]["devices"] == 192);
    BOOST_TEST(!plan.contains("counts"));
    const Result cheap = run("plan " + examples + "plan-176b-a100.toml --recompute full,cheap", place.path());
    check_exit(cheap, 2);
    BOOST_TEST(contains(cheap.error, "supports none, selective and full"), cheap);
    const Result other = run("plan " + examples + "plan-frozen-adapters.toml --program lockstep", place.path());
    check_exit(other, 2);
    BOOST_TEST(contains(other.error, "several models in one job"), other);
}

// Lean layouts are found where none of the fastest fits.
BOOST_AUTO_TEST_CASE(a_small_memory_has_a_layout) {
    const Workplace place;
    const std::string common =
        "--hardware h100-80-8x400g --nodes 4 --set run.name=x --set data.train=x --set "
        "schedule.peak_lr=1e-3 --set schedule.steps=10 --set precision.compute=bf16 --set "
        "model.preset=llama-3.1-8b --set batch.global=512 --set batch.length=4096 ";
    const Json all = planned(place, common + "--memory-limit 9");
    const Json lean = planned(place, common + "--memory-limit 9 --tensor 8 --pipeline 4 --recompute full --micro 1");
    BOOST_TEST(lean["layouts"].size() > 0U);
    BOOST_TEST(all["layouts"].size() > 0U);
    BOOST_TEST(all["recommended"]["memory_gib"].get<double>() <= 9);
}

// Its replicas must divide the matrices, and its products are what an update costs.
BOOST_AUTO_TEST_CASE(muon_is_planned_with_replicas_and_priced_by_its_products) {
    const Workplace place;
    const std::string run = examples + "gpt2-124m.toml --ranks 4 --hardware a100-80-4x100g --set optimizer.kind=muon ";
    const Json few = planned(place, run), many = planned(place, run + "--set optimizer.muon.iterations=20");
    BOOST_TEST(few["layouts"][0]["data"] == 4);
    for (const Json& layout : few["layouts"]) BOOST_TEST((layout["data"] == 1 || layout["zero"] > 0));
    BOOST_TEST(many["layouts"][0]["seconds"].get<double>() > few["layouts"][0]["seconds"].get<double>());
}

// Replicas divide the lanes, micro-batches a lane; messages of several nodes take longer than one reduction.
BOOST_AUTO_TEST_CASE(lanes_are_planned_and_priced) {
    const Workplace place;
    const std::string job = examples + "gpt2-124m.toml --ranks 4 --hardware a100-80-4x100g --set batch.global=48 ";
    const Json free = planned(place, job + "--micro 4"),
               lanes = planned(place, job + "--micro 4 --set parallel.lanes=12");
    const auto of_four = [](const Json& plan) {
        for (const Json& layout : plan["layouts"])
            if (layout["data"] == 4 && layout["zero"] == 0 && layout["recompute"] == "none") return layout;
        return Json();
    };
    BOOST_TEST_REQUIRE((!of_four(free).is_null() && !of_four(lanes).is_null()));
    BOOST_TEST(of_four(lanes)["seconds"].get<double>() > of_four(free)["seconds"].get<double>());
    const Json six = planned(place, job + "--set parallel.lanes=6");
    for (const Json& layout : six["layouts"])
        BOOST_TEST((layout["data"] != 4 && 8 % layout["micro"].get<int>() == 0), layout);
    const Result text = run("plan " + job + "--set parallel.lanes=12", place.path());
    BOOST_TEST(contains(text.out, "lanes = 12"), text);
}

BOOST_AUTO_TEST_CASE(a_table_is_fitted_and_judged) {
    const Workplace place;
    const Result fitted = run("plan --fit " + table + " --out machine.toml", place.path());
    check_exit(fitted, 0);
    const Json judged = planned(place, "--evaluate " + table + " --hardware machine.toml");
    BOOST_TEST(judged["mean_absolute_error"].get<double>() < 0.02);
    BOOST_TEST(judged["rank_correlation"].get<double>() > 0.95);
    BOOST_TEST(judged["rows"].size() == 39U);
    const Json shipped = planned(place, "--evaluate " + table);
    BOOST_TEST(shipped["mean_absolute_error"].get<double>() < 0.02);
    write_file(place.path() / "cheap.csv",
               "gpus,hidden,layers,heads,dp,tp,pp,micro_batch,global_batch,seconds_per_iteration,recompute\n"
               "8,2048,24,16,8,1,1,1,64,1.0,cheap\n");
    const Result cheap = run("plan --evaluate cheap.csv --hardware machine.toml", place.path());
    check_exit(cheap, 2);
    BOOST_TEST(contains(cheap.error, "supports none, selective and full"), cheap);
    for (const Json& row : shipped["rows"]) {
        BOOST_TEST(row["predicted_seconds"].is_number());
        BOOST_TEST(row["predicted_memory_gb"].is_number());
        BOOST_TEST(row["predicted_outcome"] == row["outcome"], row);
    }
}

BOOST_AUTO_TEST_SUITE_END()
