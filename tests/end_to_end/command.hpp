// Runs the programs as a user does, from a shell, and looks at what they leave behind.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hdf5/hdf5.hpp"
#include "places.hpp"

namespace lockstep::tests {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

inline const std::string lockstep_program = build_path("bin/" LOCKSTEP_PROGRAM);
inline const std::string analyze_program = build_path("bin/lockstep-analyze");

// How long one command may take. Nothing here takes more than a few seconds on an idle machine.
constexpr double patience_seconds = 90;

inline double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

inline std::string read_file(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_file(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream file(path, std::ios::binary);
    file << text;
    BOOST_REQUIRE_MESSAGE(file.good(), path << " cannot be written");
}

inline std::size_t count_of(const std::string& text, const std::string& part) {
    std::size_t count = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
    return count;
}

inline bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

// Waits until `condition` holds; false when it never does.
inline bool wait_until(const std::function<bool()>& condition, double seconds = patience_seconds) {
    const auto start = Clock::now();
    while (!condition()) {
        if (seconds_since(start) > seconds) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
}

// Without what Open MPI's launcher says of a command that failed: paragraphs between lines of dashes.
inline std::string without_launchers_paragraphs(const std::string& text) {
    const std::string dashes(60, '-');
    std::string kept;
    std::istringstream lines(text);
    bool inside = false;
    for (std::string line; std::getline(lines, line);) {
        const bool border = line.starts_with(dashes);
        if (!inside && !border) kept += line + (lines.eof() ? "" : "\n");
        if (border) inside = !inside;
    }
    return kept;
}

struct Result {
    int exit_code = -1;  // 128 + the signal that ended it, as a shell says it
    std::string out, error;
    double seconds = 0;
    bool timed_out = false;
};

inline std::ostream& operator<<(std::ostream& stream, const Result& result) {
    return stream << "exit code " << result.exit_code << (result.timed_out ? " (timed out)" : "") << " after "
                  << result.seconds << " s\nstdout: " << result.out << "\nstderr: " << result.error;
}

// A command under way, in a process group of its own. Output goes to files, so that no pipe can fill up.
class Process {
  public:
    Process(const std::string& command, const fs::path& folder)
        : output_(folder / (".output-" + std::to_string(::getpid()) + "-" + std::to_string(++count_))),
          start_(Clock::now()) {
        // Boost.Test would take a child's non-zero exit for an error of the test.
        std::signal(SIGCHLD, SIG_DFL);
        const std::string line = "exec " + command, out = output_.string() + ".out", error = output_.string() + ".err";
        id_ = ::fork();
        BOOST_REQUIRE(id_ >= 0);
        if (id_ != 0) {
            // In both processes, so that the group exists whichever comes first.
            static_cast<void>(::setpgid(id_, id_));
            return;
        }
        if (::setpgid(0, 0) != 0) ::_exit(126);
        const int in_file = ::open("/dev/null", O_RDONLY);
        const int out_file = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
        const int error_file = ::open(error.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
        if (in_file < 0 || out_file < 0 || error_file < 0 || ::dup2(in_file, 0) < 0 || ::dup2(out_file, 1) < 0 ||
            ::dup2(error_file, 2) < 0 || ::chdir(folder.c_str()) != 0)
            ::_exit(126);
        ::execl("/bin/sh", "sh", "-c", line.c_str(), static_cast<char*>(nullptr));
        ::_exit(127);
    }
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;
    ~Process() {
        if (!ended_) {
            kill_group();
            static_cast<void>(::waitpid(id_, nullptr, 0));
        }
        std::error_code ignored;
        fs::remove(output_.string() + ".out", ignored);
        fs::remove(output_.string() + ".err", ignored);
    }

    void signal(int number) const { BOOST_TEST(::kill(id_, number) == 0); }
    // The command and what it started in its own group; never another's, since the child is not yet waited for.
    void kill_group() const {
        if (id_ > 1 && !ended_ && ::getpgid(id_) == id_) ::kill(-id_, SIGKILL);
    }
    std::string error_so_far() const { return read_file(output_.string() + ".err"); }

    Result wait(double timeout = patience_seconds) {
        Result result;
        int status = 0;
        const auto begin = Clock::now();
        while (::waitpid(id_, &status, WNOHANG) == 0) {
            if (!result.timed_out && seconds_since(begin) > timeout) {
                result.timed_out = true;
                kill_group();
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
        ended_ = true;
        result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        result.seconds = seconds_since(start_);
        result.out = read_file(output_.string() + ".out");
        result.error = without_launchers_paragraphs(read_file(output_.string() + ".err"));
        return result;
    }

  private:
    static inline int count_ = 0;
    fs::path output_;
    Clock::time_point start_;
    pid_t id_ = -1;
    bool ended_ = false;
};

// In a shell that the launcher starts, the number of its rank: MPICH and its kin say it by the one variable, Open MPI
// by the other.
inline const std::string rank_in_shell = "${PMI_RANK:-$OMPI_COMM_WORLD_RANK}";

// "mpirun -np 3 lockstep train …"; without ranks the program alone. `environment`: "NAME=value …".
inline std::string command_line(const std::string& arguments, int ranks = 0, const std::string& environment = "") {
    std::string line = environment.empty() ? "" : "env " + environment + " ";
    if (ranks > 0) line += mpi_launcher() + " -np " + std::to_string(ranks) + " ";
    return line + lockstep_program + " " + arguments;
}

inline Result run(const std::string& arguments, const fs::path& folder, int ranks = 0,
                  const std::string& environment = "") {
    return Process(command_line(arguments, ranks, environment), folder).wait();
}

// The processes of lockstep that run in a folder, witnesses among them; or only those whose command line has this word.
// Ranks are in process groups of their own.
inline std::vector<pid_t> processes_in(const fs::path& folder, const std::string& word = "") {
    std::vector<pid_t> found;
    for (const auto& entry : fs::directory_iterator("/proc")) {
        std::error_code ignored;
        if (fs::read_symlink(entry.path() / "cwd", ignored) == folder &&
            contains(fs::read_symlink(entry.path() / "exe", ignored).string(), "lockstep") &&
            (word.empty() || contains(read_file(entry.path() / "cmdline"), '\0' + word + '\0')))
            found.push_back(std::atoi(entry.path().filename().c_str()));
    }
    return found;
}

// Text of a small grammar: the same for the same numbers, with words that a model learns quickly.
inline std::string make_text(std::size_t bytes, std::uint64_t seed = 1) {
    static const std::vector<std::vector<std::string>> parts = {
        {"the", "a", "every", "some"},       {"small", "red", "quiet", "old", "wet"},
        {"cat", "river", "house", "engine"}, {"sees", "follows", "holds", "paints"},
        {"a stone", "the road", "no one"},   {"at noon.", "in the rain.", "again.", "with care.\n"}};
    std::string text;
    while (text.size() < bytes)
        for (const auto& words : parts) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            text += words[(seed >> 33) % words.size()] + " ";
        }
    text.resize(bytes);
    return text;
}

// JSON Lines, a document each.
inline void write_lines(const fs::path& file, const std::vector<std::string>& documents) {
    std::string lines;
    for (const std::string& document : documents) lines += Json{{"text", document}}.dump() + "\n";
    write_file(file, lines);
}
// Of 1 to 75 bytes.
inline void write_short_documents(const fs::path& file) {
    std::vector<std::string> documents;
    for (std::size_t number = 0; number < 400; ++number)
        documents.push_back(make_text(1 + number * number % 75, number));
    write_lines(file, documents);
}

// A folder that is removed afterwards, with text/ (three files) and run.toml, a run of twelve steps of a second or so.
class Workplace {
  public:
    Workplace() {
        std::string name = (fs::temp_directory_path() / "lockstep-test-XXXXXX").string();
        BOOST_REQUIRE(::mkdtemp(name.data()) != nullptr);
        path_ = name;
        for (int i = 0; i < 3; ++i)
            write_file(path_ / "text" / (std::to_string(i) + ".txt"), make_text(7000, static_cast<std::uint64_t>(i)));
        write_file(path_ / "run.toml", R"([run]
name = "small"
self_test = false
[model]
mixer = "ttt-linear"
width = 64
layers = 2
heads = 2
mlp_width = 96
vocabulary = 256
context = 32
[data]
train = ["text"]
validation = 0.05
[batch]
global = 12
micro = 2
[schedule]
steps = 12
warmup = 4
peak_lr = 2e-3
[checkpoint]
every = 4
)");
    }
    Workplace(const Workplace&) = delete;
    Workplace& operator=(const Workplace&) = delete;
    ~Workplace() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }

    const fs::path& path() const { return path_; }
    // A folder beside with the same text and description: the same run, once more.
    fs::path twin(const std::string& name) const {
        fs::create_directories(path_ / name);
        fs::copy(path_ / "text", path_ / name / "text");
        fs::copy(path_ / "run.toml", path_ / name / "run.toml");
        return path_ / name;
    }

  private:
    fs::path path_;
};

inline fs::path run_folder(const fs::path& folder, const std::string& name = "small") {
    return folder / "runs" / name;
}
inline fs::path checkpoint_file(const fs::path& folder, int step, const std::string& name = "small") {
    std::string digits = std::to_string(step);
    digits.insert(0, 8 - digits.size(), '0');
    return folder / "checkpoints" / name / ("step-" + digits + ".h5");
}
// Names of the files of a folder, in order.
inline std::vector<std::string> names_in(const fs::path& folder) {
    std::vector<std::string> names;
    if (fs::exists(folder))
        for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
}
inline std::vector<std::string> checkpoints_in(const fs::path& folder, const std::string& name = "small") {
    std::vector<std::string> names = names_in(folder / "checkpoints" / name);
    names.erase(std::remove(names.begin(), names.end(), ".lock"), names.end());
    return names;
}

inline Json status_of(const fs::path& folder, const std::string& name = "small") {
    const std::string text = read_file(run_folder(folder, name) / "status.json");
    return text.empty() ? Json() : Json::parse(text);
}

inline std::vector<Json> metrics_of(const fs::path& folder, const std::string& name = "small") {
    std::vector<Json> lines;
    std::ifstream file(run_folder(folder, name) / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
        lines.push_back(Json::parse(line, nullptr, false));
        if (lines.back().is_discarded()) lines.pop_back();  // a line that is being written
    }
    return lines;
}
// Step to number; a key that only some lines have is taken from those. Every step may stand there once only.
inline std::map<int, double> numbers_of(const fs::path& folder, const std::string& key,
                                        const std::string& name = "small") {
    std::map<int, double> numbers;
    for (const Json& line : metrics_of(folder, name)) {
        if (!line.contains(key) || line[key].is_null()) continue;
        const bool is_new = numbers.emplace(line["step"].get<int>(), line[key].get<double>()).second;
        BOOST_TEST(is_new, "step " << line["step"] << " stands twice in metrics.jsonl");
    }
    return numbers;
}

inline std::map<std::string, std::vector<float>> tensors_of(const fs::path& checkpoint) {
    const hdf5::File file = hdf5::File::open(checkpoint.string());
    std::map<std::string, std::vector<float>> tensors;
    for (const std::string group : {"parameters", "optimizer"}) {
        if (!file.exists(group)) continue;  // a converted model has no optimizer state
        for (const auto& path : file.datasets(group)) {
            const hdf5::DatasetInfo info = file.info(path);
            auto& values = tensors[path];
            values.resize(info.bytes / info.element_bytes);
            file.read_as(path, hdf5::ElementType::fp32, values.data());
        }
    }
    BOOST_TEST(!tensors.empty());
    return tensors;
}
inline std::map<std::string, std::string> state_of(const fs::path& checkpoint) {
    const hdf5::File file = hdf5::File::open(checkpoint.string());
    std::map<std::string, std::string> state;
    for (const auto& name : file.attributes("/state")) state[name] = file.read_as_text("/state", name);
    return state;
}

// Every parameter and moment, bit for bit.
inline void check_same_tensors(const fs::path& a, const fs::path& b) {
    BOOST_TEST_REQUIRE(fs::exists(a));
    BOOST_TEST_REQUIRE(fs::exists(b));
    const auto first = tensors_of(a), second = tensors_of(b);
    BOOST_TEST_REQUIRE(first.size() == second.size());
    for (const auto& [path, values] : first) BOOST_TEST((values == second.at(path)), path << " differs");
}

// And every word of the state.
inline void check_same_checkpoint(const fs::path& a, const fs::path& b) {
    check_same_tensors(a, b);
    BOOST_TEST((state_of(a) == state_of(b)), "the states differ");
}

// Relative differences of two courses of numbers that have the same steps.
inline double largest_difference(const std::map<int, double>& a, const std::map<int, double>& b) {
    BOOST_TEST_REQUIRE(a.size() == b.size());
    double largest = 0;
    for (const auto& [step, value] : a) {
        BOOST_TEST_REQUIRE(b.count(step) == 1);
        largest = std::max(largest, std::abs(value - b.at(step)) / std::abs(value));
    }
    return largest;
}

inline void check_exit(const Result& result, int exit_code) {
    BOOST_TEST(!result.timed_out);
    BOOST_TEST((result.exit_code == exit_code), "exit code " << exit_code << " was expected: " << result);
}

// A file of which every byte is right.
inline void check_whole(const fs::path& file) {
    check_exit(run("verify " + file.string(), file.parent_path()), 0);
}

}  // namespace lockstep::tests
