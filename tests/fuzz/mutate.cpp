// Calls fuzz targets of a build without sanitizers with mutated inputs, many times as often per second as libFuzzer
// can: crashes, answers that are not allowed, slow ones and large requests for memory are findings here, too. It does
// not see what an input reaches; it starts from the seeds, from what were once findings, and from the inputs that
// libFuzzer has gathered. docs/reliability.md says more.
#include <fcntl.h>
#include <malloc.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/clock.hpp"
#include "base/hash.hpp"
#include "base/version.hpp"
#include "fuzz/harness.hpp"
#include "fuzz/mutations.hpp"
#include "fuzz/seeds.hpp"
#include "fuzz/targets.hpp"
#include "places.hpp"

using namespace lockstep;
namespace fs = std::filesystem;

namespace {

struct Options {
    std::vector<std::string> targets;
    std::string folder = tests::build_path("mutate"), corpus = tests::source_path("build/fuzz/corpus");
    double seconds = 600;
    std::uint64_t goal = 0, seed = 0;
    int jobs = 2;
};

// Of a target, over all calls.
struct Total {
    std::uint64_t executions = 0, findings = 0;
    double seconds = 0;
    std::string last;
};
using Totals = std::map<std::string, Total>;

// A process calls a target with inputs that it keeps here, so that the one that ends it is known. It is replaced after
// so many calls, since the libraries that readers use may leak.
constexpr std::size_t largest_input = std::size_t{1} << 18;
constexpr std::uint64_t calls_of_a_process = 200000;
constexpr unsigned hang_seconds = 25;
struct Worker {
    std::uint64_t executions;  // of all its processes
    std::size_t size;
    char bytes[largest_input];
};

[[noreturn]] void fail(const char* what) {
    std::perror(what);
    std::exit(2);
}

Totals read_totals(const fs::path& path) {
    Totals totals;
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
        std::istringstream words(line);
        std::string name;
        Total total;
        if (words >> name >> total.executions >> total.seconds >> total.findings >> std::ws)
            std::getline(words, total.last);
        totals[name] = total;
    }
    return totals;
}

void write_totals(const fs::path& path, const Totals& totals) {
    const fs::path next = path.string() + ".tmp";
    std::ofstream file(next);
    file << "target\texecutions\tseconds\tfindings\tlast\n";
    for (const auto& [name, total] : totals)
        file << name << '\t' << total.executions << '\t' << total.seconds << '\t' << total.findings << '\t'
             << total.last << '\n';
    file.close();
    if (!file) fail(next.c_str());
    fs::rename(next, path);
}

void add_files(std::vector<std::string>& inputs, const fs::path& folder) {
    std::vector<fs::path> paths;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(folder, none)) paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    for (const fs::path& path : paths) inputs.push_back(fuzz::read_file(path.string()));
}

[[noreturn]] void work(const fuzz::Target& target, const std::vector<std::string>& inputs, std::uint64_t seed,
                       double end, Worker& worker) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // HDF5 clears half a MiB for each file that it opens. By default that memory goes back to the system every time;
    // its page faults were half of the time of traces. Larger blocks stay apart: a use after their release crashes.
    ::mallopt(M_MMAP_THRESHOLD, 1 << 20);
    ::mallopt(M_TRIM_THRESHOLD, 256 << 20);
    fuzz::Mutations mutations(inputs, seed);
    for (std::uint64_t i = 0; i < calls_of_a_process && seconds_now() < end; ++i) {
        const std::string input = mutations.next();
        worker.size = std::min(input.size(), largest_input);
        std::memcpy(worker.bytes, input.data(), worker.size);
        const std::vector<std::uint8_t> bytes(input.begin(), input.end());
        ::alarm(hang_seconds);
        target.run(bytes.data(), bytes.size());
        ++worker.executions;
    }
    std::exit(0);
}

struct Turn {
    std::uint64_t executions = 0;
    std::vector<std::string> findings;  // files of inputs
};

class Fuzzer {
  public:
    explicit Fuzzer(const Options& options) : options_(options), seeds_(fuzz::seeds()) {
        void* memory = ::mmap(nullptr, sizeof(Worker) * static_cast<std::size_t>(options.jobs), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) fail("mmap");
        workers_ = static_cast<Worker*>(memory);
    }

    // For so many seconds; after a finding no process is replaced.
    Turn run(const fuzz::Target& target, double seconds) {
        std::vector<std::string> inputs = seeds_[target.name];
        add_files(inputs, tests::source_path(std::string("tests/fuzz/found/") + target.name));
        add_files(inputs, fs::path(options_.corpus) / target.name);
        if (inputs.empty()) inputs.emplace_back();
        const double end = seconds_now() + seconds;
        std::map<pid_t, int> running;
        const auto start = [&](int number) {
            std::fflush(nullptr);
            const std::uint64_t seed = options_.seed * 1000003 + ++processes_;
            const pid_t child = ::fork();
            if (child < 0) fail("fork");
            if (child == 0) work(target, inputs, seed, end, workers_[number]);
            running[child] = number;
        };
        for (int number = 0; number < options_.jobs; ++number) {
            workers_[number].executions = 0;
            start(number);
        }
        Turn turn;
        while (!running.empty()) {
            int status = 0;
            const pid_t child = ::waitpid(-1, &status, 0);
            if (child < 0 && errno == EINTR) continue;
            if (child < 0) fail("waitpid");
            const int number = running.at(child);
            running.erase(child);
            const bool ended_well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
            if (!ended_well) turn.findings.push_back(keep(target, workers_[number], status));
            if (turn.findings.empty() && seconds_now() < end) start(number);
        }
        for (int number = 0; number < options_.jobs; ++number) turn.executions += workers_[number].executions;
        return turn;
    }

  private:
    std::string keep(const fuzz::Target& target, const Worker& worker, int status) const {
        const fs::path folder = fs::path(options_.folder) / "findings" / target.name;
        fs::create_directories(folder);
        const fs::path path = folder / ("finding-" + hash_text(hash64(worker.bytes, worker.size)));
        std::ofstream(path, std::ios::binary).write(worker.bytes, static_cast<std::streamsize>(worker.size));
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
            std::fprintf(stderr, "%s: no answer within %u s\n", target.name, hang_seconds);
        else
            std::fprintf(stderr, "%s: the process ended (%s %d)\n", target.name,
                         WIFSIGNALED(status) ? "signal" : "exit code",
                         WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        return path.string();
    }

    const Options& options_;
    std::map<std::string, std::vector<std::string>> seeds_;
    Worker* workers_ = nullptr;
    std::uint64_t processes_ = 0;
};

std::string now_text() {
    const std::time_t now = std::time(nullptr);
    std::tm utc{};
    ::gmtime_r(&now, &utc);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%MZ", &utc);
    return text;
}

std::vector<fuzz::Target> wanted(const Options& options, const Totals& totals) {
    std::vector<fuzz::Target> targets;
    for (const std::string& name : options.targets)
        if (std::none_of(fuzz::targets.begin(), fuzz::targets.end(),
                         [&](const fuzz::Target& target) { return name == target.name; })) {
            std::fprintf(stderr, "fuzz_mutate: there is no target %s; there are:", name.c_str());
            for (const fuzz::Target& target : fuzz::targets) std::fprintf(stderr, " %s", target.name);
            std::fputs("\n", stderr);
            std::exit(2);
        }
    for (const fuzz::Target& target : fuzz::targets) {
        const auto total = totals.find(target.name);
        const bool named = options.targets.empty() || std::find(options.targets.begin(), options.targets.end(),
                                                                target.name) != options.targets.end();
        const bool complete = options.goal > 0 && total != totals.end() && total->second.executions >= options.goal;
        if (named && !complete) targets.push_back(target);
    }
    return targets;
}

int run(const Options& options) {
    fs::create_directories(options.folder);
    const fs::path totals_path = fs::path(options.folder) / "totals";
    const int lock = ::open((totals_path.string() + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock < 0) fail(totals_path.c_str());
    if (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
        std::fprintf(stderr, "fuzz_mutate: another call adds to %s; give this one another --folder\n",
                     totals_path.c_str());
        return 2;
    }
    Totals totals = read_totals(totals_path);
    const std::vector<fuzz::Target> targets = wanted(options, totals);
    if (targets.empty()) {
        std::puts("every target has reached the goal");
        return 0;
    }
    Fuzzer fuzzer(options);
    bool found_any = false;
    std::printf("%-20s %12s %10s %14s %8s\n", "target", "executions", "per s", "in all", "findings");
    for (const fuzz::Target& target : targets) {
        const double start = seconds_now();
        const Turn turn = fuzzer.run(target, options.seconds / static_cast<double>(targets.size()));
        const double spent = seconds_now() - start;
        Total& total = totals[target.name];
        total.executions += turn.executions;
        total.seconds += spent;
        total.findings += turn.findings.size();
        total.last = now_text() + "\t" + commit();
        write_totals(totals_path, totals);
        std::printf("%-20s %12llu %10.0f %14llu %8zu\n", target.name, static_cast<unsigned long long>(turn.executions),
                    static_cast<double>(turn.executions) / spent, static_cast<unsigned long long>(total.executions),
                    turn.findings.size());
        std::fflush(stdout);
        for (const std::string& finding : turn.findings)
            std::printf("  repeat it with: %s %s %s\n", tests::build_path("bin/fuzz_replay").c_str(), target.name,
                        finding.c_str());
        found_any = found_any || !turn.findings.empty();
    }
    return found_any ? 1 : 0;
}

}  // namespace

int main(int count, char** arguments) {
    Options options;
    CLI::App app("Calls readers of files with mutated inputs, without sanitizers. Exit code 1: a finding.");
    app.add_option("targets", options.targets, "only these targets");
    app.add_option("--seconds", options.seconds, "in all, divided among the targets")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--goal", options.goal, "leave out targets that have had so many executions in all calls");
    app.add_option("--seed", options.seed, "of the random numbers; 0: the time");
    app.add_option("--jobs", options.jobs, "processes at a time")->check(CLI::Range(1, 1024))->capture_default_str();
    app.add_option("--folder", options.folder, "for findings and totals of all calls")->capture_default_str();
    app.add_option("--corpus", options.corpus, "of libFuzzer, a folder for each target; may be missing")
        ->capture_default_str();
    CLI11_PARSE(app, count, arguments);
    if (options.seed == 0) options.seed = static_cast<std::uint64_t>(std::time(nullptr));
    std::printf("seed %llu\n", static_cast<unsigned long long>(options.seed));
    return run(options);
}
