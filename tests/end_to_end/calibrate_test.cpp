// lockstep bench as a user calls it, with tiny sizes.
#define BOOST_TEST_MODULE calibrate
#include "config/machine.hpp"
#include "end_to_end/command.hpp"

using namespace lockstep::tests;

BOOST_AUTO_TEST_SUITE(calibrate)

BOOST_AUTO_TEST_CASE(two_ranks_write_a_file_that_reads_back) {
    const Workplace place;
    const Result result = run("bench --calibrate machine.toml --quick --device cpu", place.path(), 2);
    check_exit(result, 0);
    BOOST_TEST(result.out == "");
    BOOST_TEST(contains(result.error, "wrote machine.toml"), result);
    const lockstep::config::Machine machine = lockstep::config::read_machine((place.path() / "machine.toml").string());
    BOOST_TEST((machine.device.kind == lockstep::config::MachineKind::cpu));
    BOOST_TEST(contains(machine.origin, "2 ranks x "));
    const lockstep::config::Rates& rates = machine.rates;
    BOOST_TEST(rates.ranks == 2);
    BOOST_TEST(rates.fp32.measured());
    // A fit to tiny sizes may find any one cost to be nothing.
    BOOST_TEST(rates.fp32.head.weight_gradient.seconds(1e9, 1e6) > 0);
    BOOST_TEST(rates.fp32.attention_backward.seconds(1e9, 1e6) > 0);
    BOOST_TEST(rates.fp32.ttt_mlp_backward.tflops > 0);
    BOOST_TEST(rates.fp32.memory.adamw > 0);
    BOOST_TEST(rates.fp32.memory.cross_entropy > 0);
    BOOST_TEST(rates.messages.bucket_gb_per_second > 0);
    BOOST_TEST(rates.messages.latency_us > 0);
    BOOST_TEST(rates.loading_mtokens_per_second > 0);
    BOOST_TEST(rates.checkpoint_gb_per_second > 0);
    BOOST_TEST(rates.team_efficiency > 0);
    BOOST_TEST(rates.team_efficiency <= 1);
    // What was written to measure the disk is gone, and what was written beside the file.
    for (const std::string& name : names_in(place.path()))
        BOOST_TEST((!contains(name, "lockstep-bench") && !contains(name, ".tmp")), name);
}

BOOST_AUTO_TEST_CASE(one_rank_prints_a_table) {
    const Workplace place;
    const Result result = run("bench --quick --device cpu --precision fp32 --format json", place.path());
    check_exit(result, 0);
    const Json rows = Json::parse(result.out);
    std::map<std::string, double> values;
    for (const Json& row : rows) values[row.at("rate")] = row.at("value");
    BOOST_TEST(values.at("fp32.memory.copy") > 0);
    BOOST_TEST(values.at("norm_gb_per_second") > 0);
    BOOST_TEST(values.count("bf16.layer.forward.tflops") == 0u);
    BOOST_TEST(values.count("messages.latency_us") == 0u);
}

BOOST_AUTO_TEST_CASE(a_busy_machine_is_refused_or_marked) {
    const Workplace place;
    const std::string busy = "LOCKSTEP_FAULT=bench_busy:*:*:busy";
    const Result refused = run("bench --calibrate machine.toml --device cpu", place.path(), 2, busy);
    check_exit(refused, 2);
    BOOST_TEST(count_of(refused.error, "other programs use 100 % of this node's cores") == 1u, refused);
    BOOST_TEST(!fs::exists(place.path() / "machine.toml"));
    const Result marked =
        run("bench --calibrate machine.toml --device cpu --quick --busy --precision fp32", place.path(), 2, busy);
    check_exit(marked, 0);
    BOOST_TEST(contains(marked.error, "other programs used 100 % of the cores"), marked);
    BOOST_TEST(lockstep::config::read_machine((place.path() / "machine.toml").string()).rates.busy_share == 1);
    BOOST_TEST(!fs::exists(place.path() / "machine.toml.rounds"));
}

// Rates of a busy machine make one rank look hopeless; the plan says that its table cannot be.
BOOST_AUTO_TEST_CASE(a_plan_by_doubtful_rates_says_so) {
    const Workplace place;
    check_exit(run("bench --calibrate machine.toml --quick --device cpu --precision fp32", place.path(), 2), 0);
    std::string text = read_file(place.path() / "machine.toml");
    const auto set = [&](const std::string& key, const std::string& value) {
        const std::size_t at = text.find("\n" + key + " = ");
        BOOST_TEST_REQUIRE(at != std::string::npos, key);
        text.replace(at + 1, text.find('\n', at + 1) - at - 1, key + " = " + value);
    };
    set("busy_share", "0.95");
    set("repeat_spread", "0.34");
    set("team_efficiency", "0.01");
    set("cores", "2.0");
    write_file(place.path() / "busy.toml", text);
    const Result result = run("plan run.toml --hardware busy.toml --ranks 1,2", place.path());
    check_exit(result, 0);
    BOOST_TEST(
        contains(
            result.out,
            "rates are unreliable (other programs used 95 % of the cores, and repeats of a measurement differ by 34 "
            "%)"),
        result);
    BOOST_TEST(contains(result.out, " times as fast as 1 but only 2.0 times as many"), result);
}

BOOST_AUTO_TEST_CASE(bad_input_is_refused) {
    const Workplace place;
    for (const auto& [arguments, part] :
         {std::pair{"--precision fp8", "fp8"}, std::pair{"--format html", "markdown"}, std::pair{"--device tpu", "tpu"},
          std::pair{"--quick --calibrate /nowhere/machine.toml", "/nowhere"},
          std::pair{"--quick --device cpu --calibrate .", "it is a folder"},
          std::pair{"--quick --device cpu --calibrate machine.toml --folder /nowhere", "/nowhere"},
          std::pair{"--quick --device cpu --folder /nowhere", "/nowhere"}, std::pair{"--what", "--what"}}) {
        const Result result = run(std::string("bench ") + arguments, place.path());
        check_exit(result, 2);
        BOOST_TEST(contains(result.error, part), arguments << ": " << result);
    }
    // A calibration that fails leaves no file.
    BOOST_TEST(!fs::exists(place.path() / "machine.toml"));
    const Result help = run("bench --help", place.path());
    check_exit(help, 0);
    for (const char* part :
         {"--calibrate", "--folder", "--quick", "--busy", "FILE.rounds", "mpirun -np 2 lockstep bench"})
        BOOST_TEST(contains(help.out, part));
}

BOOST_AUTO_TEST_SUITE_END()
