// Random runs under random trouble: each is killed, stopped, starved of disk space, damaged and resumed, mostly on
// other layouts, and has to end as the same run left alone. A round is all in its seed, so that a failure can be
// repeated: LOCKSTEP_SOAK_SEED. For hours: `make soak`, which sets LOCKSTEP_SOAK_SECONDS and LOCKSTEP_SOAK_RECORD.
#define BOOST_TEST_MODULE soak
#include <boost/test/results_collector.hpp>
#include <cmath>
#include <map>
#include <optional>
#include <random>

#include "end_to_end/grid_training.hpp"

using namespace lockstep::tests;

namespace {

constexpr int steps = 20;

class Dice {
  public:
    // part: of the round. Each has its own, so that what it draws does not depend on what happened before.
    Dice(std::uint64_t seed, int part) {
        std::seed_seq both{seed, static_cast<std::uint64_t>(part)};
        engine_.seed(both);
    }
    int below(int count) { return static_cast<int>(engine_() % static_cast<std::uint64_t>(count)); }
    bool one_in(int count) { return below(count) == 0; }
    double seconds(double least, double most) { return least + (most - least) * below(1000) / 1000; }
    template <class Value>
    const Value& of(const std::vector<Value>& values) {
        return values[static_cast<std::size_t>(below(static_cast<int>(values.size())))];
    }

  private:
    std::mt19937_64 engine_;
};

// A run: what stays the same through all its launches, and the layouts it may have.
struct Run {
    std::string settings, what;
    int every = 0;  // steps from checkpoint to checkpoint
    bool local = false;
    std::vector<GridCase> layouts;
    // Launches of one layout give the same bits; others the same losses to rounding.
    bool same_bits = true;
    double tolerance = 0;
};

Run draw_run(Dice& dice) {
    Run run;
    const std::string mixer = dice.of<std::string>({"attention", "ttt-linear", "ttt-mlp", "gated-deltanet", "hybrid"});
    const std::string optimizer = dice.of<std::string>({"adamw", "adamw", "adamw", "sgd", "muon"});
    const bool bf16 = dice.one_in(4), averages = dice.one_in(4);
    run.same_bits = bf16 || dice.one_in(2);
    run.tolerance = optimizer == "muon" ? 1e-3 : 2e-5;
    run.every = 2 + dice.below(4);
    run.settings = " --set optimizer.kind=" + optimizer + " --set schedule.steps=" + std::to_string(steps) +
                   " --set checkpoint.every=" + std::to_string(run.every) +
                   " --set checkpoint.keep=" + std::to_string(2 + dice.below(2)) +
                   " --set run.seed=" + std::to_string(dice.below(1000));
    // AdamW's first update divides a gradient by its own size: by default a gradient of rounding noise, which layouts
    // do not share, moves as far as any other.
    if (optimizer == "adamw" && !run.same_bits) run.settings += " --set optimizer.epsilon=1e-6";
    if (bf16) run.settings += " --set precision.compute=bf16";
    if (averages) run.settings += " --set optimizer.ema=0.9";
    run.local = dice.one_in(3);
    if (run.local)
        run.settings +=
            " --set checkpoint.local=local --set checkpoint.local_every=" + std::to_string(1 + dice.below(3));

    std::vector<GridCase> possible;
    for (const GridCase& one : all_grid_cases()) {
        const int replicas = one.data * one.context;
        if (one.mixer != mixer || one.ranks() > 4) continue;
        if (optimizer == "muon" && replicas > 1 && one.zero == 0) continue;
        possible.push_back(one);
    }
    const int count = run.same_bits ? 1 : 4;
    for (int i = 0; i < count; ++i) {
        // Every number of ranks as often, whatever layouts it has.
        const int ranks = 1 + dice.below(4);
        std::vector<GridCase> of_ranks;
        std::copy_if(possible.begin(), possible.end(), std::back_inserter(of_ranks),
                     [&](const GridCase& one) { return one.ranks() == ranks; });
        run.layouts.push_back(dice.of(of_ranks.empty() ? possible : of_ranks));
    }
    run.what = mixer + ", " + optimizer + (bf16 ? ", bf16" : "") + (averages ? ", averages" : "") +
               (run.local ? ", local checkpoints" : "");
    return run;
}

// One launch and what befalls it.
struct Trouble {
    std::string name;
    std::string fault, options;   // LOCKSTEP_FAULT; of the command
    std::optional<double> after;  // seconds, until a signal:
    int signal = 0;
    std::optional<int> victim;  // the signal goes to one rank, not to the launcher
    // Exit codes of a launch that it ends. MPICH's launcher hands on the number of the signal that ended a rank, and
    // ends the others with SIGTERM.
    std::vector<int> exit_codes;
};

const std::vector<int> of_killed_rank = {1, SIGKILL, SIGTERM}, of_terminated = {0, 4, SIGTERM, 128 + SIGTERM};

// Either a checkpoint does not fit, or none of the launch; it is noticed before or while data is written.
std::string full_disk(Dice& dice, const Run& run, const std::string& rank) {
    const std::string step = dice.one_in(2) ? "*" : std::to_string(run.every * (1 + dice.below(steps / run.every)));
    switch (dice.below(run.local ? 3 : 2)) {
        case 0:
            return "checkpoint_write:" + rank + ":" + step + ":enospc";
        case 1:
            return "checkpoint_reserve:*:" + step + ":enospc";
        default:
            return "local_reserve:" + rank + ":*:enospc";
    }
}

Trouble draw_trouble(Dice& dice, const Run& run, int ranks) {
    const std::string rank = std::to_string(dice.below(ranks)), step = std::to_string(1 + dice.below(steps));
    const std::string any = dice.one_in(2) ? "*" : rank;
    switch (dice.below(9)) {
        case 0:
            return {"killed after a step", "step_end:" + rank + ":" + step + ":kill", "", {}, 0, {}, of_killed_rank};
        case 1:
            return {"failed after a step", "step_end:" + rank + ":" + step + ":throw", "", {}, 0, {}, {1}};
        case 2:
            return {"killed while it writes", "checkpoint_data:" + rank + ":*:kill", "", {}, 0, {}, of_killed_rank};
        case 3:
            return {"killed while it gathers", "checkpoint_gather:" + rank + ":*:kill", "", {}, 0, {}, of_killed_rank};
        case 4:
            return {"disk full", full_disk(dice, run, any), "", {}, 0, {}, {1}};
        case 5:
            return {"rank killed at any time", "", "", dice.seconds(0, 2.5), SIGKILL, dice.below(12), of_killed_rank};
        case 6:
            return {"SIGTERM at any time", "", "", dice.seconds(0, 2.5), SIGTERM, {}, of_terminated};
        case 7:
            return {"launcher killed at any time", "", "", dice.seconds(0, 2.5), SIGKILL, {}, {128 + SIGKILL}};
        default:
            return {"stopped after a step", "", " --stop-at " + step, {}, 0, {}, {4}};
    }
}

Result launch(const fs::path& folder, const std::string& name, const Run& run, const GridCase& layout,
              const Trouble& trouble, const std::string& resume) {
    const std::string faults = trouble.fault.empty() ? "" : " LOCKSTEP_FAULT=" + trouble.fault;
    Process process(command_line("train run.toml --set run.name=" + name + model + layout.settings() + run.settings +
                                     trouble.options + resume,
                                 layout.ranks(), environment + faults),
                    folder);
    if (trouble.after) {
        std::this_thread::sleep_for(std::chrono::duration<double>(*trouble.after));
        const std::vector<pid_t> ranks = processes_in(folder, "train");
        if (!trouble.victim)
            process.signal(trouble.signal);
        else if (!ranks.empty())
            ::kill(ranks[static_cast<std::size_t>(*trouble.victim) % ranks.size()], trouble.signal);
    }
    Result result = process.wait(240);
    // Whatever a killed launcher left behind would write into the next launch's files.
    BOOST_TEST(wait_until([&] { return processes_in(folder).empty(); }, 60), "processes live on: " << trouble.name);
    for (const pid_t left : processes_in(folder)) ::kill(left, SIGKILL);
    return result;
}

// The step from which a launch says that it goes on; nothing if it came to no resuming.
std::optional<int> resumed_step(const Result& result) {
    if (contains(result.error, "starting fresh")) return 0;
    const std::size_t said = result.error.find("resumed from ");
    if (said == std::string::npos) return {};
    // "resumed from local parts of step 7 (...)", "resumed from FILE at step 7"
    const std::size_t end = result.error.find('\n', said);
    if (end == std::string::npos) return {};  // cut short by a signal
    const std::string line = result.error.substr(said, end - said), word = " step ";
    const std::size_t at = line.find(word);
    return at == std::string::npos ? -1 : std::stoi(line.substr(at + word.size()));
}

// Damaged checkpoints: file name, bytes.
using Damaged = std::map<std::string, std::string>;

// The step of the newest checkpoint that is not as somebody has damaged it; 0: there is none.
int newest_whole(const fs::path& folder, const std::string& name, const Damaged& damaged) {
    int newest = 0;
    for (const std::string& file : checkpoints_in(folder, name)) {
        if (!file.ends_with(".h5")) continue;
        const auto found = damaged.find(file);
        if (found != damaged.end() && found->second == read_file(folder / "checkpoints" / name / file)) continue;
        newest = std::max(newest, std::stoi(file.substr(std::string_view("step-").size())));
    }
    return newest;
}

struct Damage {
    int at, kind, bit;  // kind: a bit flipped, the end cut off, or zeros
};

// Damages the newest checkpoint where an older one is left to go on from.
bool damage_newest(const fs::path& folder, const std::string& name, const Damage& damage, Damaged& damaged) {
    std::vector<std::string> files = checkpoints_in(folder, name);
    std::erase_if(files, [&](const std::string& file) { return !file.ends_with(".h5") || damaged.contains(file); });
    if (files.size() < 2) return false;
    const fs::path newest = folder / "checkpoints" / name / files.back();
    std::string bytes = read_file(newest);
    if (bytes.empty()) return false;
    const std::string before = bytes;
    const auto at = static_cast<std::size_t>(damage.at) % bytes.size();
    switch (damage.kind) {
        case 0:
            bytes[at] = static_cast<char>(bytes[at] ^ (1 << damage.bit));
            break;
        case 1:
            bytes.resize(at);
            break;
        default:
            std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), std::min<std::size_t>(512, bytes.size() - at),
                        '\0');
    }
    if (bytes == before) return false;
    write_file(newest, bytes);
    damaged[files.back()] = std::move(bytes);
    return true;
}

struct Outcome {
    int launches = 0;  // that met with trouble
    bool passed = false;
    std::string what, why;
};

Outcome play(std::uint64_t seed, const fs::path& folder) {
    Dice of_round(seed, 0);
    const Run run = draw_run(of_round);
    const std::string alone = "alone-" + std::to_string(seed), name = "troubled-" + std::to_string(seed);
    Outcome outcome;
    outcome.what = run.what;
    const auto fails = [&](const std::string& why, const Result& result) {
        outcome.why = why;
        BOOST_ERROR("seed " << seed << " (" << outcome.what << "): " << why << "\n" << result);
        return outcome;
    };
    const Result whole = launch(folder, alone, run, run.layouts[0], {}, "");
    if (whole.exit_code != 0) return fails("the run alone fails", whole);

    const int troubles = 1 + of_round.below(5);
    Result last;
    Damaged damaged;
    for (int number = 0; number <= troubles; ++number) {
        Dice dice(seed, 1 + number);
        const GridCase& layout = dice.of(run.layouts);
        const Trouble trouble = number < troubles ? draw_trouble(dice, run, layout.ranks()) : Trouble{};
        const bool damages = dice.one_in(3);
        const Damage damage = {dice.below(1 << 30), dice.below(3), dice.below(8)};
        const int newest = newest_whole(folder, name, damaged);
        last = launch(folder, name, run, layout, trouble, " --resume auto");
        outcome.what += "; " + layout.name() + (trouble.name.empty() ? "" : ": " + trouble.name);
        if (last.timed_out) return fails("a launch does not end", last);
        if (last.exit_code == 2 || last.exit_code == 3) return fails("a launch is refused", last);
        const std::optional<int> from = resumed_step(last);
        if (from && *from < newest)
            return fails("a launch goes on from step " + std::to_string(*from) + ", not " + std::to_string(newest),
                         last);
        const bool finished =
            last.exit_code == 0 && (contains(last.error, "finished: step ") || contains(last.error, " is finished: "));
        if (finished && status_of(folder, name)["state"] != "finished")
            return fails("a launch that finishes leaves another state", last);
        if (finished && newest > 0 && !from && !contains(last.error, " is finished: "))
            return fails("a launch does not say from where it goes on", last);
        if (number < troubles) {
            // A full disk may cost nothing but a checkpoint; all other troubles end a launch that they meet.
            const bool met = !finished || contains(last.error, "No space left");
            outcome.launches += met ? 1 : 0;
            if (!met) outcome.what += " (missed)";
        }
        if (finished) break;
        if (number == troubles) return fails("the last launch does not finish", last);
        if (std::count(trouble.exit_codes.begin(), trouble.exit_codes.end(), last.exit_code) == 0)
            return fails("a launch that was " + trouble.name + " ends with " + std::to_string(last.exit_code), last);
        if (trouble.fault.ends_with(":throw") && !contains(last.error, "injected fault"))
            return fails("a launch ends by itself", last);
        if (damages && damage_newest(folder, name, damage, damaged)) outcome.what += ", newest checkpoint damaged";
    }
    const auto expected = numbers_of(folder, "loss", alone), found = numbers_of(folder, "loss", name);
    if (found.size() != expected.size() || found.size() != static_cast<std::size_t>(steps))
        return fails("metrics.jsonl has " + std::to_string(found.size()) + " steps", last);
    for (const auto& [step, loss] : expected) {
        const double difference = std::abs(found.at(step) - loss);
        if (run.same_bits ? difference != 0 : !(difference <= run.tolerance))
            return fails("step " + std::to_string(step) + " has loss " + std::to_string(found.at(step)) +
                             " instead of " + std::to_string(loss),
                         last);
    }
    if (run.same_bits &&
        tensors_of(checkpoint_file(folder, steps, alone)) != tensors_of(checkpoint_file(folder, steps, name)))
        return fails("the last checkpoints differ", last);
    return outcome;
}

// Past rounds, and those of now added: seed, seconds, launches that met with trouble, passed, what.
class Record {
  public:
    explicit Record(std::string path) : path_(std::move(path)) {
        std::ifstream file(path_);
        for (std::string line; std::getline(file, line);) {
            std::istringstream words(line);
            std::uint64_t seed = 0;
            double seconds = 0;
            int launches = 0;
            std::string passed;
            if (words >> seed >> seconds >> launches >> passed) count(seed, seconds, launches, passed == "passed");
        }
    }
    std::uint64_t next_seed() const { return last_seed_ + 1; }
    void add(std::uint64_t seed, double seconds, const Outcome& outcome) {
        count(seed, seconds, outcome.launches, outcome.passed);
        if (path_.empty()) return;
        std::ofstream(path_, std::ios::app)
            << seed << '\t' << seconds << '\t' << outcome.launches << '\t' << (outcome.passed ? "passed" : "failed")
            << '\t' << outcome.what << '\t' << outcome.why << '\n';
    }
    std::string total() const {
        std::ostringstream text;
        text << rounds_ << " rounds, " << launches_ << " launches that met with trouble, " << failed_ << " failed, "
             << std::lround(seconds_ / 60) << " minutes";
        return text.str();
    }

  private:
    void count(std::uint64_t seed, double seconds, int launches, bool passed) {
        last_seed_ = std::max(last_seed_, seed);
        ++rounds_;
        launches_ += launches;
        seconds_ += seconds;
        failed_ += passed ? 0 : 1;
    }
    std::string path_;
    std::uint64_t last_seed_ = 0;
    int rounds_ = 0, launches_ = 0, failed_ = 0;
    double seconds_ = 0;
};

std::size_t failed_checks() {
    using namespace boost::unit_test;
    return results_collector.results(framework::current_test_case_id()).p_assertions_failed;
}

std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value ? value : "";
}

}  // namespace

BOOST_AUTO_TEST_CASE(troubled_runs_end_as_those_left_alone) {
    const std::string of_seconds = variable("LOCKSTEP_SOAK_SECONDS"), of_seed = variable("LOCKSTEP_SOAK_SEED");
    const double seconds = of_seconds.empty() ? 0 : std::stod(of_seconds);
    Record record(variable("LOCKSTEP_SOAK_RECORD"));
    const auto start = Clock::now();
    const std::uint64_t first = of_seed.empty() ? record.next_seed() : std::stoull(of_seed);
    const int fewest = of_seed.empty() ? 3 : 1;
    for (int round = 0; round < fewest || (of_seed.empty() && seconds_since(start) < seconds); ++round) {
        const std::uint64_t seed = first + static_cast<std::uint64_t>(round);
        const auto begun = Clock::now();
        const Workplace place;
        const std::size_t failed = failed_checks();
        Outcome outcome = play(seed, place.path());
        outcome.passed = failed_checks() == failed;
        record.add(seed, seconds_since(begun), outcome);
        BOOST_TEST_MESSAGE("seed " << seed << ", " << std::lround(seconds_since(begun)) << " s, "
                                   << (outcome.passed ? "passed" : "FAILED") << ": " << outcome.what);
    }
    BOOST_TEST_MESSAGE("in all: " << record.total());
}
