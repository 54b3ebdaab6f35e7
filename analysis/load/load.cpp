#include "analysis/load/load.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <set>

#include "analysis/load/guard.hpp"
#include "base/command_line.hpp"
#include "base/error.hpp"

namespace lockstep::analysis {
namespace {

namespace fs = std::filesystem;

// By name, numbers in it by their size: g2 before g16.
bool before(const std::string& a, const std::string& b) {
    const auto digit = [](char letter) { return letter >= '0' && letter <= '9'; };
    std::size_t i = 0, j = 0;
    while (i < a.size() && j < b.size()) {
        if (digit(a[i]) && digit(b[j])) {
            while (i < a.size() && a[i] == '0') ++i;
            while (j < b.size() && b[j] == '0') ++j;
            std::size_t end_i = i, end_j = j;
            while (end_i < a.size() && digit(a[end_i])) ++end_i;
            while (end_j < b.size() && digit(b[end_j])) ++end_j;
            if (end_i - i != end_j - j) return end_i - i < end_j - j;
            if (const int order = a.compare(i, end_i - i, b, j, end_j - j); order != 0) return order < 0;
            i = end_i;
            j = end_j;
        } else {
            if (a[i] != b[j]) return a[i] < b[j];
            ++i, ++j;
        }
    }
    return a.size() - i != b.size() - j ? a.size() - i < b.size() - j : a < b;
}

// The run folders in a folder, by name; none where it is a run's folder itself or a file.
std::vector<std::string> runs_in(const std::string& path) {
    std::error_code problem;
    std::vector<std::string> runs;
    if (!fs::is_directory(path, problem) || !trace::trace_files(path).empty()) return runs;
    for (fs::directory_iterator entry(path, problem), end; !problem && entry != end; entry.increment(problem))
        if (entry->is_directory(problem) && !trace::trace_files(entry->path().string()).empty())
            runs.push_back(entry->path().string());
    std::sort(runs.begin(), runs.end(), before);
    return runs;
}

}  // namespace

void add_load_options(CLI::App& command, LoadOptions& options) {
    command.add_option("RUN", options.runs, "Run folders, trace files, or folders of run folders")->required();
    command
        .add_option("--warm-up", options.measure.warm_up,
                    "Warm-up steps to skip at the start of each launch [9, at most a fifth of its steps]")
        ->check(zero_or_more());
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
            throw usage_error("{} is already part of another given run: {}", path, whole.parent_path().string());
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
