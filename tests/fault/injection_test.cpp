// Every call by which a short run changes a file is made to fail once, in every way: the process is killed before, in
// or after it, or the call returns an error. What has a final name is then whole, the exit code and the words are
// right, and the run resumes bit for bit and leaves nothing behind.
#define BOOST_TEST_MODULE injection
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

#include "end_to_end/command.hpp"

using namespace lockstep::tests;

namespace {

struct Call {
    long number;
    std::string name, path;
};

// Numbers in names do not matter: trace-001.h5.1234.tmp.
std::string without_numbers(const std::string& path) {
    std::string kept;
    for (const char letter : path)
        if (letter < '0' || letter > '9') kept += letter;
    return kept;
}

std::string environment(const fs::path& folder, int rank, const std::string& more) {
    return "LD_PRELOAD=" + build_path("tests/fault/libfaulty_calls.so") + " LOCKSTEP_CALLS_FOLDER=" + folder.string() +
           " LOCKSTEP_CALLS_RANK=" + std::to_string(rank) + " " + more;
}

constexpr const char* short_run =
    "train run.toml --set schedule.steps=4 --set schedule.warmup=1 --set checkpoint.every=2 "
    "--set log.tensorboard=true";

const std::string resumed_run = std::string(short_run) + " --resume auto";

// What is launched while `rank` suffers: the short run, or what is left of it after step 2.
enum class Begin { anew, resumed };
struct Launch {
    int ranks, rank;
    Begin begin = Begin::anew;

    std::string arguments() const { return begin == Begin::anew ? short_run : resumed_run; }
    std::string name() const {
        return fmt::format("rank {} of {}{}", rank, ranks, begin == Begin::anew ? "" : ", resumed");
    }
    fs::path folder(const Workplace& place, const std::string& folder_name) const {
        if (begin == Begin::anew) return place.twin(folder_name);
        const fs::path stopped = place.path() / "stopped";
        if (!fs::exists(stopped)) {
            place.twin("stopped");
            check_exit(run(std::string(short_run) + " --stop-at 2", stopped, ranks), 4);
        }
        fs::copy(stopped, place.path() / folder_name, fs::copy_options::recursive);
        return place.path() / folder_name;
    }
};

std::vector<Call> calls_of(const fs::path& folder, const Launch& launch) {
    const fs::path list = folder / "calls.txt";
    check_exit(run(launch.arguments(), folder, launch.ranks,
                   environment(folder, launch.rank, "LOCKSTEP_CALLS_LOG=" + list.string())),
               0);
    std::vector<Call> calls;
    std::ifstream file(list);
    for (Call call; file >> call.number >> call.name >> call.path;)
        if (call.path.starts_with("runs/") || call.path.starts_with("checkpoints/")) calls.push_back(call);
    BOOST_TEST_REQUIRE(calls.size() > 50u);
    return calls;
}

const std::set<std::string> of_a_run = {"lock",       "log.txt",  "metrics.jsonl", "metrics.jsonl.broken",
                                        "rates.json", "run.toml", "status.json",   "tensorboard"};

void check_after(const fs::path& folder, const fs::path& whole, int ranks, const Result& result, bool killed) {
    BOOST_TEST(!result.timed_out, result);
    if (!killed) {
        const std::set<int> allowed = {0, 1, 2};
        BOOST_TEST(allowed.contains(result.exit_code), result);
        BOOST_TEST(count_of(result.error, "error: ") == (result.exit_code == 0 ? 0u : 1u), result);
    }
    std::string files;
    for (const fs::path& among : {checkpoint_file(folder, 0).parent_path(), run_folder(folder)})
        for (const std::string& name : names_in(among))
            if (name.ends_with(".h5")) files += " " + (among / name).string();
    if (!files.empty()) check_exit(run("verify" + files, folder), 0);
    if (fs::exists(run_folder(folder) / "status.json")) BOOST_TEST(status_of(folder).contains("state"));

    const Result resumed = run(resumed_run, folder, ranks);
    check_exit(resumed, 0);
    check_same_checkpoint(checkpoint_file(whole, 4), checkpoint_file(folder, 4));
    for (const std::string& name : checkpoints_in(folder))  // that of step 2 may be the one that failed
        BOOST_TEST((name == "step-00000002.h5" || name == "step-00000004.h5"), name << " is left behind");
    for (const std::string& name : names_in(run_folder(folder)))
        BOOST_TEST((of_a_run.contains(name) || (name.starts_with("trace-") && name.ends_with(".h5"))),
                   name << " is left behind");
    BOOST_TEST(status_of(folder)["state"] == "finished");
}

struct Fault {
    std::string word;
    bool kills;
};
const std::vector<Fault> faults = {{"kill-before", true},
                                   {"kill-half", true},
                                   {"kill-after", true},
                                   {"short", false},
                                   {std::to_string(ENOSPC), false},
                                   {std::to_string(ENOSPC) + "+", false},
                                   {std::to_string(EIO), false},
                                   {std::to_string(EDQUOT) + "+", false},
                                   {std::to_string(EROFS), false},
                                   {std::to_string(EMFILE), false},
                                   {std::to_string(EACCES), false},
                                   {std::to_string(EINTR), false}};

bool can_be(const Call& call, const Fault& fault) {
    const bool writes = call.name == "write" || call.name == "pwrite" || call.name == "writev";
    if (fault.word == "short" || fault.word == "kill-half") return writes;
    return true;
}

bool inject(const Workplace& place, const fs::path& whole, const Launch& launch, const Call& call, const Fault& fault) {
    const std::string what =
        fmt::format("{} {} (call {} of {}): {}", call.name, call.path, call.number, launch.name(), fault.word);
    bool fired = false;
    BOOST_TEST_CONTEXT(what) {
        const fs::path folder = launch.folder(place, "run");
        const fs::path list = place.path() / "calls.txt";
        const Result result = run(launch.arguments(), folder, launch.ranks,
                                  environment(folder, launch.rank,
                                              "LOCKSTEP_CALLS_LOG=" + list.string() + " LOCKSTEP_CALLS_FAULT=" +
                                                  std::to_string(call.number) + ":" + fault.word));
        // Threads share the count, so that a call near the end may not come.
        fired = contains(read_file(list), "fired");
        if (fired && fault.kills) BOOST_TEST(result.exit_code != 0, result);
        check_after(folder, whole, launch.ranks, result, fault.kills);
        fs::remove_all(folder);
        fs::remove(list);
    }
    return fired;
}

// Which calls fail, and how: of each kind of call the first, with the next fault in turn or with every fault; or every
// call, killed in every way and with the next error in turn, and of each kind the first with every error.
enum class Extent { one_fault_a_kind, every_fault_a_kind, every_call };

std::vector<Fault> faults_for(const Call& call, Extent extent, bool first, std::size_t& turn) {
    std::vector<Fault> kills, errors;
    for (const Fault& fault : faults)
        if (can_be(call, fault)) (fault.kills ? kills : errors).push_back(fault);
    std::vector<Fault> all = kills;
    all.insert(all.end(), errors.begin(), errors.end());
    if (extent == Extent::one_fault_a_kind) return first ? std::vector{all[turn++ % all.size()]} : std::vector<Fault>{};
    if (first) return all;
    if (extent == Extent::every_fault_a_kind) return {};
    kills.push_back(errors[turn++ % errors.size()]);
    return kills;
}

// LOCKSTEP_FAULTS_PART=2/4: the second, sixth … call.
struct Part {
    long number = 1, of = 1;
    bool has(const Call& call) const { return call.number % of == number % of; }
};
Part part_to_run() {
    Part part;
    if (const char* text = std::getenv("LOCKSTEP_FAULTS_PART"))
        BOOST_TEST_REQUIRE((std::sscanf(text, "%ld/%ld", &part.number, &part.of) == 2 && part.of > 0));
    return part;
}

// Kinds of call that are in `seen` are not the first of their kind. Returns how many faults came about.
long enumerate(const Launch& launch, Extent extent, std::set<std::string>& seen, const Part& part = {}) {
    const Workplace place;
    const fs::path whole = launch.folder(place, "whole");
    const auto calls = calls_of(whole, launch);
    std::size_t turn = static_cast<std::size_t>(launch.rank + launch.ranks);
    long tried = 0, done = 0;
    for (const Call& call : calls) {
        const bool first = seen.insert(call.name + without_numbers(call.path)).second;
        for (const Fault& fault : faults_for(call, extent, first, turn)) {
            if (!part.has(call)) continue;
            ++tried;
            if (inject(place, whole, launch, call, fault)) ++done;
        }
    }
    BOOST_TEST_MESSAGE(done << " faults in " << calls.size() << " calls of " << launch.name());
    BOOST_TEST(done > tried * 9 / 10, done << " of " << tried << " faults came about");
    return done;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(file_faults)

BOOST_AUTO_TEST_CASE(each_kind_of_call) {
    std::set<std::string> seen;
    BOOST_TEST(enumerate({.ranks = 2, .rank = 1}, Extent::one_fault_a_kind, seen) > 2);
    BOOST_TEST(enumerate({.ranks = 1, .rank = 0}, Extent::one_fault_a_kind, seen) > 30);
    BOOST_TEST(enumerate({.ranks = 2, .rank = 0}, Extent::one_fault_a_kind, seen) > 0);
    BOOST_TEST(enumerate({.ranks = 1, .rank = 0, .begin = Begin::resumed}, Extent::one_fault_a_kind, seen) > 0);
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(all_file_faults)

BOOST_AUTO_TEST_CASE(every_call_in_every_way) {
    std::set<std::string> of_one, of_two, of_resumed;
    const Part part = part_to_run();
    BOOST_TEST(enumerate({.ranks = 1, .rank = 0}, Extent::every_call, of_one, part) > 1000 / part.of);
    BOOST_TEST(enumerate({.ranks = 2, .rank = 1}, Extent::every_call, of_two, part) > 100 / part.of);
    BOOST_TEST(enumerate({.ranks = 1, .rank = 0, .begin = Begin::resumed}, Extent::every_fault_a_kind, of_resumed,
                         part) > 200 / part.of);
}

BOOST_AUTO_TEST_SUITE_END()
