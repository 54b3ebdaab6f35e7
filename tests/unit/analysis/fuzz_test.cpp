// lockstep-analyze on damaged traces: a sentence and exit code 2 or 3, or figures; never a crash. On damaged tables: a
// sentence and exit code 2, or runs. Without further ado this makes a few hundred files, always the same.
// FUZZ_SECONDS=600 goes on for that long from a seed that it prints, FUZZ_SEED=n repeats one file; both are for traces.
#define BOOST_TEST_MODULE fuzz
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "analysis/exchange/imported_table.hpp"
#include "analysis/exchange/imported_trace.hpp"
#include "analysis/load/guard.hpp"
#include "analysis/program.hpp"
#include "base/clock.hpp"
#include "places.hpp"
#include "unit/analysis/damage.hpp"
#include "unit/trace/synthetic_trace.hpp"

// Where the sanitizers are built in: what they find ends the process that read the file, as a crash does without them.
// HDF5 gives up a request for too much memory, as it does where malloc says no. A report is written on the stack of the
// crash: an alternate one is too small for names to be looked up.
extern "C" const char* __asan_default_options() {
    return "abort_on_error=1:detect_leaks=0:allocator_may_return_null=1:handle_segv=2:handle_sigbus=2:handle_sigfpe=2:"
           "use_sigaltstack=0";
}
extern "C" const char* __ubsan_default_options() {
    return "abort_on_error=1:print_stacktrace=1";
}

using namespace lockstep;
using trace::test::make_block;
using trace::test::make_header;
using trace::test::TemporaryFolder;

namespace {

constexpr unsigned longest_seconds = 150;  // of a command, with the sanitizers and on a busy machine

std::string read(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

void write(const std::string& path, const std::string& bytes) {
    std::ofstream stream(path, std::ios::binary);
    stream << bytes;
    stream.close();
    BOOST_REQUIRE(stream);
}

trace::WriterLimits small_files() {
    trace::WriterLimits limits;
    limits.fewest_rows = 8;
    limits.event_bytes = 64 * sizeof(trace::EventRow);
    return limits;
}

std::string trace_of(const std::string& folder, std::size_t ranks, const std::vector<std::string>& regions,
                     std::size_t steps, bool finished) {
    const trace::Header header = make_header(ranks, regions);
    trace::TraceWriter writer(folder, header, 16, small_files());
    trace::RowBatch block = make_block(header, 1, steps);
    for (trace::StepRow& row : block.steps)
        if (row.step % 2 == 0) row.validation = {2, 3, 1000};
    for (std::int32_t i = 0; i < 12 && !regions.empty(); ++i)
        block.events.push_back({1, i % static_cast<std::int32_t>(ranks), i % static_cast<std::int32_t>(regions.size()),
                                0.25 * i, 0.25 * i + 0.5});
    writer.append(block);
    if (finished) writer.finish();
    return read(writer.path());
}

// Valid files of several shapes.
std::vector<std::string> valid_traces(const TemporaryFolder& folder) {
    const std::vector<std::string> phases = {"initialization",
                                             "epoch",
                                             "epoch/step",
                                             "epoch/step/data_loading",
                                             "epoch/step/forward",
                                             "epoch/step/loss",
                                             "epoch/step/backward",
                                             "epoch/step/communication",
                                             "epoch/step/communication/data",
                                             "epoch/step/optimizer",
                                             "validation",
                                             "checkpoint"};
    std::vector<std::string> files;
    files.push_back(trace_of(folder / "one", 1, {"epoch", "epoch/step"}, 3, true));
    files.push_back(trace_of(folder / "many", 5, phases, 14, true));
    files.push_back(trace_of(folder / "open", 2, phases, 6, false));
    files.push_back(trace_of(folder / "bare", 2, {}, 4, true));
    write(folder / "t.csv", "run,ranks,rank,total,compute,communication\na,2,0,10,7,2\na,2,1,9,6,2\n");
    std::vector<std::string> warnings;
    const auto runs = analysis::runs_of_table(read_csv_table(folder / "t.csv"), warnings);
    files.push_back(read(analysis::write_imported_run(runs.front(), "t.csv", folder / "imported")));
    return files;
}

struct Outcome {
    int status = 0;
    std::string out, errors;
    bool crashed() const { return !WIFEXITED(status); }
    int code() const { return WEXITSTATUS(status); }
};

// A process like the program's own, with its streams in files.
Outcome run(const TemporaryFolder& folder, const std::vector<std::string>& words) {
    const std::string out = folder / "out", errors = folder / "errors";
    BOOST_REQUIRE(std::fflush(stdout) == 0);  // else the child prints it once more
    const pid_t child = ::fork();
    BOOST_REQUIRE(child >= 0);
    if (child == 0) {
        constexpr int flags = O_WRONLY | O_CREAT | O_TRUNC;
        if (::dup2(::open(out.c_str(), flags, 0600), 1) < 0 || ::dup2(::open(errors.c_str(), flags, 0600), 2) < 0)
            ::_exit(100);
        ::alarm(longest_seconds);
        ::setenv("PATH", "/nowhere", 1);  // a report without plots: what draws them has not read the file
        std::vector<const char*> arguments = {"lockstep-analyze"};
        for (const std::string& word : words) arguments.push_back(word.c_str());
        const int code = analysis::guarded(
            [&] { return analysis::run_program(static_cast<int>(arguments.size()), arguments.data()); });
        ::_exit(code);
    }
    Outcome outcome;
    while (::waitpid(child, &outcome.status, 0) < 0) BOOST_REQUIRE(errno == EINTR);
    outcome.out = read(out);
    outcome.errors = read(errors);
    return outcome;
}

// What a sanitizer says, from its first line on, is cut off; whether the stack that it shows first goes through HDF5.
bool fault_of_hdf5(std::string& errors) {
    const std::size_t report = std::min(errors.find("ERROR: AddressSanitizer"), errors.find("runtime error:"));
    if (report == std::string::npos) return true;
    const std::size_t stack = errors.find("    #0 ", report), end = errors.find("\n\n", stack);
    const bool in_hdf5 =
        stack != std::string::npos && errors.substr(stack, end - stack).find("libhdf5") != std::string::npos;
    if (in_hdf5) {
        std::istringstream lines(errors);
        std::string sentences;
        for (std::string line; std::getline(lines, line);)
            if (line.find(" error: ") == 8 && line[2] == ':' && line[5] == ':') sentences += line + "\n";  // 12:34:56
        errors = sentences;
    }
    return in_hdf5;
}

// "" where all is well.
std::string complaint(const std::vector<std::string>& words, Outcome outcome) {
    if (outcome.crashed())
        return fmt::format("it ended with signal {} (14: not within {} s)", WTERMSIG(outcome.status), longest_seconds);
    if (outcome.code() != 0 && outcome.code() != 2 && outcome.code() != 3)
        return fmt::format("exit code {}", outcome.code());
    if (!fault_of_hdf5(outcome.errors)) return "a sanitizer complains of the program itself";
    std::istringstream lines(outcome.errors);
    int sentences = 0;
    for (std::string line; std::getline(lines, line);) {
        if (line.find(" warning: ") != std::string::npos) continue;
        // HDF5 asked for what a damaged size says, and takes no for an answer.
        if (line.find("AddressSanitizer failed to allocate") != std::string::npos) continue;
        if (line.find(" error: ") == std::string::npos) return "stderr holds '" + line + "'";
        ++sentences;
    }
    if (sentences != (outcome.code() == 0 ? 0 : 1)) return fmt::format("{} sentences on stderr", sentences);
    const bool is_json = std::find(words.begin(), words.end(), "chrome") != words.end() ||
                         std::find(words.begin(), words.end(), "json") != words.end();
    if (is_json && outcome.code() == 0 && !nlohmann::json::accept(outcome.out)) return "what it prints is no JSON";
    return "";
}

struct Command {
    std::vector<std::string> words;
    bool with_another_run = false;  // behind the damaged one
};
const std::vector<Command>& commands() {
    static const std::vector<Command> all = {
        {{"summary"}},
        {{"summary", "--per", "step", "--format", "json"}},
        {{"scaling", "--format", "json"}, true},
        {{"sweep", "--format", "json"}, true},
        {{"compare", "--format", "json"}, true},
        {{"report", "--out", "/dev/null"}, true},
        {{"predict", "--format", "json", "--hardware", tests::source_path("tests/unit/analysis/small_cluster.toml")},
         true},
        {{"export", "--to", "chrome"}},
        {{"export", "--to", "otf2"}},
        {{"export", "--to", "csv"}},
        {{"export", "--to", "extra-p"}, true},
    };
    return all;
}

class Fuzzer {
  public:
    Fuzzer() : files_(valid_traces(folder_)) { std::filesystem::create_directories(folder_ / "run"); }

    // A file and what all commands make of it; false where it is not as it should be.
    bool take(std::uint64_t seed) {
        std::mt19937_64 random(seed ^ 0x5eed);
        const std::string& file = files_[random() % files_.size()];
        const std::string& other = files_[random() % files_.size()];
        const std::string path = folder_ / "run/trace-001.h5";
        const std::string bytes = test::damaged(file, other, seed);
        write(path, bytes);
        bool well = true;
        for (const std::size_t which : {random() % commands().size(), seed % commands().size()}) {
            std::vector<std::string> words = commands()[which].words;
            words.push_back(random() % 2 == 0 ? path : folder_ / "run");
            if (commands()[which].with_another_run) words.push_back(folder_ / "many");
            if (words[0] == "export" && words[2] == "otf2") {
                std::filesystem::remove_all(folder_ / "archive");
                words.insert(words.end(), {"--out", folder_ / "archive"});
            }
            const double begin = seconds_now();
            const Outcome outcome = run(folder_, words);
            longest_ = std::max(longest_, seconds_now() - begin);
            ++codes_[outcome.crashed() ? 1 : std::min(outcome.code(), 4)];
            if (outcome.errors.find("ended with signal") != std::string::npos) ++crashes_;
            const std::string problem = complaint(words, outcome);
            if (problem.empty()) continue;
            const std::string kept = tests::build_path(fmt::format("fuzz-{}.h5", seed));
            write(kept, bytes);
            BOOST_ERROR(fmt::format("FUZZ_SEED={} ({}), {}: {}\n{}", seed, kept, fmt::join(words, " "), problem,
                                    outcome.errors));
            well = false;
        }
        return well;
    }

    std::string figures() const {
        rusage used{};
        BOOST_REQUIRE(::getrusage(RUSAGE_CHILDREN, &used) == 0);
        return fmt::format(
            "exit 0: {}, exit 2: {}, exit 3: {} (of them {} crashes of HDF5), other: {}; slowest command {:.1f} s, "
            "most "
            "memory {} MiB",
            codes_[0], codes_[2], codes_[3], crashes_, codes_[1] + codes_[4], longest_, used.ru_maxrss / 1024);
    }
    const std::vector<std::string>& files() const { return files_; }

  private:
    TemporaryFolder folder_{"fuzz"};
    std::vector<std::string> files_;
    std::array<std::size_t, 5> codes_{};
    std::size_t crashes_ = 0;
    double longest_ = 0;
};

std::uint64_t number_from(const char* name) {
    const char* text = std::getenv(name);
    return text ? std::strtoull(text, nullptr, 10) : 0;
}

}  // namespace

BOOST_AUTO_TEST_CASE(checksums_are_those_of_hdf5) {
    const Fuzzer fuzzer;
    for (const std::string& file : fuzzer.files()) {
        const auto headers = test::object_headers(file);
        BOOST_TEST(headers.size() >= 10u);
        for (const auto& header : headers)
            BOOST_TEST(test::metadata_checksum(file.data() + header.begin, header.checksum_at - header.begin) ==
                       test::stored_checksum(file, header));
    }
}

BOOST_AUTO_TEST_CASE(damaged_traces_give_a_sentence_or_figures) {
    Fuzzer fuzzer;
    const std::uint64_t seconds = number_from("FUZZ_SECONDS"), one = number_from("FUZZ_SEED");
    if (one > 0) {
        fuzzer.take(one);
    } else if (seconds > 0) {
        const auto first = static_cast<std::uint64_t>(wall_seconds() * 1e6);
        std::printf("fuzzing for %llu s from seed %llu\n", static_cast<unsigned long long>(seconds),
                    static_cast<unsigned long long>(first));
        std::fflush(stdout);
        int wrong = 0;
        const double end = seconds_now() + static_cast<double>(seconds);
        for (std::uint64_t seed = first; seconds_now() < end && wrong < 20; ++seed) wrong += fuzzer.take(seed) ? 0 : 1;
    } else {
        for (std::uint64_t seed = 1; seed <= 150; ++seed) fuzzer.take(seed);
    }
    std::printf("%s\n", fuzzer.figures().c_str());
}

BOOST_AUTO_TEST_CASE(damaged_tables_give_a_sentence_or_runs) {
    const TemporaryFolder folder("fuzz-tables");
    const std::vector<std::string> tables = {
        "# by rank\nrun,ranks,rank,batch,total,compute,communication,tokens_per_second,peak_memory_bytes\n"
        "g1,1,0,64,2233.50,2000,,410.5,1048576\ng2,2,0,64,1384.64,1200.5,101.2,330,2097152\n"
        "g2,2,1,64,806.75,700,99.1,331,2097152\n",
        "run,ranks,batch,accumulation,length,data,tensor,pipeline,context,tokens,total,forward,loss,backward\r\n"
        "\"b16\",4,16,64,128,2,2,1,1,1e9,314.00,100,2,200\r\nb32,4,32,32,128,4,,,,1e9,184.91,,,\r\n",
        "\xef\xbb\xbfrun,rank,validation,checkpoint,initialization,optimizer,data_loading,data_movement,\"a "
        "\"\"b\"\"\"\n"
        "u,0,1,2,3,4,5,6,\"x, y\"\n\nv,0,1e-3,2,3,4,5,6,\nv,1,1e3,2,3,4,5,6,\"two\nlines\"\n",
    };
    std::array<int, 2> codes{};
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        const std::string& table = tables[seed % tables.size()];
        const std::string bytes = test::damaged(table, tables[seed / 3 % tables.size()], seed);
        write(folder / "t.csv", bytes);
        std::filesystem::remove_all(folder / "runs");
        const std::vector<std::string> words = {"import", folder / "t.csv", "--out", folder / "runs"};
        const Outcome outcome = run(folder, words);
        std::string problem = complaint(words, outcome);
        if (problem.empty() && outcome.code() == 3) problem = "exit code 3";
        if (problem.empty() && (outcome.code() == 0) != std::filesystem::exists(folder / "runs"))
            problem = "it wrote runs of a table that it refused, or none";
        if (problem.empty())
            ++codes[outcome.code() == 0 ? 0 : 1];
        else
            BOOST_ERROR(fmt::format("table of seed {}: {}\n{}\n{}", seed, problem, outcome.errors, bytes));
    }
    std::printf("tables: exit 0: %d, exit 2: %d\n", codes[0], codes[1]);
    BOOST_TEST(codes[0] > 0);
    BOOST_TEST(codes[1] > 0);
}
