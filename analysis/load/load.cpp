#include "analysis/load/load.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

#include "analysis/load/guard.hpp"
#include "base/error.hpp"

namespace lockstep::analysis {
namespace {

namespace fs = std::filesystem;

// The run folders in a folder, by name; none where it is a run's folder itself or a file.
std::vector<std::string> runs_in(const std::string& path) {
    std::error_code problem;
    std::vector<std::string> runs;
    if (!fs::is_directory(path, problem) || !trace::trace_files(path).empty()) return runs;
    for (fs::directory_iterator entry(path, problem), end; !problem && entry != end; entry.increment(problem))
        if (entry->is_directory(problem) && !trace::trace_files(entry->path().string()).empty())
            runs.push_back(entry->path().string());
    std::sort(runs.begin(), runs.end());
    return runs;
}

}  // namespace

void add_load_options(CLI::App& command, LoadOptions& options) {
    command.add_option("RUN", options.runs, "run folders, trace files, or folders of run folders")->required();
    command
        .add_option("--warm-up", options.measure.warm_up,
                    "steps left out at the beginning of each launch [9, at most a fifth of them]")
        ->check(CLI::NonNegativeNumber);
}

std::vector<std::string> expand_runs(const std::vector<std::string>& paths) {
    std::vector<std::string> all;
    std::set<std::string> seen;
    const auto add = [&](const std::string& path) {
        std::error_code problem;
        const fs::path whole = fs::weakly_canonical(path, problem);
        if (seen.insert(problem ? path : whole.string()).second) all.push_back(path);
    };
    for (const std::string& path : paths) {
        const std::vector<std::string> inside = runs_in(path);
        if (inside.empty())
            add(path);
        else
            for (const std::string& run : inside) add(run);
    }
    // A run's folder holds its files: each counts once.
    for (const std::string& path : all) {
        std::error_code problem;
        const fs::path whole = fs::weakly_canonical(path, problem);
        if (!problem && !fs::is_directory(whole, problem) && seen.count(whole.parent_path().string()) != 0)
            throw usage_error("{} is part of a run that is given, too: {}", path, whole.parent_path().string());
    }
    return all;
}

std::vector<Measurement> load_measurements(const LoadOptions& options) {
    std::vector<Measurement> all;
    for (const std::string& path : expand_runs(options.runs)) {
        const trace::Run run = reading(path, Reading::structure, [&] { return trace::open_run(path); });
        all.push_back(reading(path, Reading::rows, [&] { return measure(run, options.measure); }));
    }
    // Names tell runs apart; folders do where names are the same.
    std::map<std::string, int> times;
    for (const Measurement& one : all) ++times[one.name];
    for (Measurement& one : all)
        if (times[one.name] > 1 || one.name.empty()) {
            const fs::path path = fs::path(one.path) / "";
            one.name = path.parent_path().filename().string();
            if (one.name.empty() || times.count(one.name) != 0) one.name = one.path;
        }
    return all;
}

}  // namespace lockstep::analysis
