// How fast checkpoints reach the disk and come back, alternating with dd on the same file system: both ways of
// checkpoint.verify, and loading, on one rank and on two. docs/benchmarks.md
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/table.hpp"
#include "checkpoint/checkpoint.hpp"
#include "cluster/placement.hpp"
#include "cluster/session.hpp"
#include "command_run.hpp"
#include "config/words.hpp"
#include "model/parameter_description.hpp"
#include "training_run.hpp"

using namespace lockstep;
using namespace lockstep::bench;
namespace fs = std::filesystem;

namespace {

struct Options {
    std::string folder = fs::temp_directory_path().string(), preset = "gpt2-124m", format = "text", verify;
    std::int64_t rounds = 5;
    bool works = false;
};

// Parameters and moments, whole on every rank, as replicas have them.
class Tensors {
  public:
    explicit Tensors(const std::string& preset) {
        config::ModelDescription model = config::preset(preset);
        model.vocabulary = vocabulary;
        std::uint32_t state = 1;
        for (const std::string group : {"parameters/", "optimizer/first_moment/", "optimizer/second_moment/"})
            for (const auto& parameter : model::describe_parameters(model, model::whole_model(model))) {
                const auto count = static_cast<std::size_t>(element_count(parameter.shape));
                memory_.emplace_back(count);
                for (float& value : memory_.back()) {
                    state = state * 1664525u + 1013904223u;
                    value = static_cast<float>(state >> 8);
                }
                entries.push_back(checkpoint::whole(
                    group + parameter.name, Tensor(memory_.back().data(), Type::fp32, parameter.shape), nullptr));
            }
    }
    std::vector<checkpoint::Entry> entries;

  private:
    std::vector<std::vector<float>> memory_;
};

void forget_cached(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0 || ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0)
        throw fault_error("{} cannot be dropped from the page cache", path);
    ::close(file);
}

// One rank: writes a checkpoint and reads it, and prints the seconds of both and the bytes.
int work(const Options& options, cluster::Session& session) {
    cluster::Placement placement = cluster::place_ranks(session, {});
    cluster::take_seat(placement, false, true);
    const auto group = session.make_world_group();
    const Tensors tensors(options.preset);
    checkpoint::Contents contents;
    contents.state.step = 1;
    contents.run_description = "[run]\n";
    contents.tokenizer_kind = "bytes";
    checkpoint::Writer writer(options.folder, 2, session.make_world_group("checkpoint"),
                              config::from_word<config::CheckpointVerify>(options.verify, "--verify"));
    group->barrier();
    const double begun = seconds_now();
    if (!writer.write_now(contents, tensors.entries)) throw fault_error("the checkpoint was not written");
    group->barrier();
    const double written = seconds_now() - begun;
    const std::string path = options.folder + "/" + checkpoint::file_name(1);
    if (group->rank() == 0) forget_cached(path);
    group->barrier();
    const double called = seconds_now();
    checkpoint::load(path, tensors.entries, *group);
    group->barrier();
    if (group->rank() == 0)
        std::printf("seconds %.6f %.6f %llu\n", written, seconds_now() - called,
                    static_cast<unsigned long long>(writer.cost().bytes));
    return 0;
}

using Seconds = std::vector<double>;

double run_dd(const std::vector<std::string>& more, const std::string& folder) {
    std::vector<std::string> words = {"dd"};
    words.insert(words.end(), more.begin(), more.end());
    const double start = seconds_now();
    const CommandResult ended = run_command({words, folder, {}});
    if (ended.exit_code != 0) throw fault_error("dd ended with exit code {}: {}", ended.exit_code, ended.output);
    return seconds_now() - start;
}

// Of all rounds, by what was done.
struct Measured {
    double bytes = 0;
    Seconds dd_write, dd_direct, dd_read, dd_both;
    std::map<std::string, Seconds> own;  // "written", "read", "load"
};

void run_own(const Options& options, const std::string& folder, std::int64_t ranks, const std::string& verify,
             Measured& measured) {
    fs::remove_all(folder + "/own");
    const CommandResult ended =
        run_command({{LOCKSTEP_MPIEXEC, "-np", std::to_string(ranks), beside_this_program("bench_checkpoints"),
                      "--work", "--folder", folder + "/own", "--preset", options.preset, "--verify", verify},
                     folder,
                     {{"LOCKSTEP_LOG", "error"}}});
    double written = 0, loaded = 0;
    unsigned long long bytes = 0;
    const auto at = ended.output.find("seconds ");
    if (ended.exit_code != 0 || at == std::string::npos ||
        std::sscanf(ended.output.c_str() + at, "seconds %lf %lf %llu", &written, &loaded, &bytes) != 3)
        throw fault_error("{} ranks ended with exit code {}: {}", ranks, ended.exit_code, ended.output);
    fs::remove_all(folder + "/own");
    measured.bytes = static_cast<double>(bytes);
    measured.own[verify].push_back(written);
    measured.own["load"].push_back(loaded);
}

void run_plain(const std::string& folder, Measured& measured) {
    const std::string file = folder + "/plain";
    const auto mebibytes = static_cast<std::int64_t>(std::ceil(measured.bytes / (1 << 20)));
    const auto count = [](std::int64_t blocks) { return fmt::format("count={}", blocks); };
    measured.dd_direct.push_back(run_dd(
        {"if=/dev/zero", "of=" + file, "bs=4M", count((mebibytes + 3) / 4), "oflag=direct", "conv=fsync"}, folder));
    fs::remove(file);
    measured.dd_write.push_back(
        run_dd({"if=/dev/zero", "of=" + file, "bs=1M", count(mebibytes), "conv=fsync"}, folder));
    measured.dd_read.push_back(run_dd({"if=" + file, "of=/dev/null", "bs=4M", "iflag=direct"}, folder));
    measured.dd_both.push_back(measured.dd_write.back() + measured.dd_read.back());
    fs::remove(file);
}

void add_row(Table& table, const std::string& what, std::int64_t ranks, double bytes, const Seconds& own,
             const Seconds& plain) {
    const auto rate = [&](double seconds) { return bytes / seconds / 1e6; };
    const auto [least, most] = std::minmax_element(own.begin(), own.end());
    table.add_row({what, ranks, static_cast<std::int64_t>(own.size()), rate(*most), rate(median(own)), rate(*least),
                   median(plain) / median(own)});
}

int run(const Options& options) {
    const TableFormat format = table_format(options.format);
    const TemporaryFolder folder(options.folder);
    Table table({{"what", "what"},
                 {"ranks", "ranks"},
                 {"times", "times"},
                 {"lowest_mb_per_second", "lowest, MB/s", 0},
                 {"median_mb_per_second", "median, MB/s", 0},
                 {"highest_mb_per_second", "highest, MB/s", 0},
                 {"ratio", "ratio to dd", 2}});
    for (const std::int64_t ranks : {1, 2}) {
        Measured measured;
        for (std::int64_t round = 0; round < options.rounds; ++round) {
            for (const char* verify : {"written", "read"}) {
                std::fprintf(stderr, "%lld rank%s, round %lld of %lld: %s\n", static_cast<long long>(ranks),
                             ranks > 1 ? "s" : "", static_cast<long long>(round + 1),
                             static_cast<long long>(options.rounds), verify);
                run_own(options, folder.path(), ranks, verify, measured);
                run_plain(folder.path(), measured);
            }
        }
        add_row(table, "dd, fsync", ranks, measured.bytes, measured.dd_write, measured.dd_write);
        add_row(table, "dd, direct, fsync", ranks, measured.bytes, measured.dd_direct, measured.dd_write);
        add_row(table, "dd, read back", ranks, measured.bytes, measured.dd_read, measured.dd_read);
        add_row(table, "verify = written", ranks, measured.bytes, measured.own["written"], measured.dd_write);
        add_row(table, "verify = read", ranks, measured.bytes, measured.own["read"], measured.dd_both);
        add_row(table, "load", ranks, measured.bytes, measured.own["load"], measured.dd_read);
    }
    std::fputs(table.print(format).c_str(), stdout);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App program(
        "Writes a checkpoint of random parameters and moments and reads it back, on one rank and on two, alternating "
        "with dd, which writes zeros and syncs, then reads past the page cache. Rates are file bytes per second.",
        "bench_checkpoints");
    program
        .add_option("--folder", options.folder,
                    "where to create a temporary folder; it needs twice the checkpoint's size")
        ->capture_default_str();
    program.add_option("--preset", options.preset, "the model preset")->capture_default_str();
    program.add_option("--rounds", options.rounds, "number of rounds")
        ->check(CLI::Range(1, 100))
        ->capture_default_str();
    program.add_option("--format", options.format, "text, markdown, csv or json")->capture_default_str();
    program.add_flag("--work", options.works, "be one of the ranks that it starts")->group("");
    program.add_option("--verify", options.verify, "of a rank")->group("");
    try {
        program.parse(argc, argv);
    } catch (const CLI::ParseError& problem) {
        if (problem.get_exit_code() == 0) return program.exit(problem);
        std::fprintf(stderr, "bench_checkpoints: %s; see bench_checkpoints --help\n", problem.what());
        return static_cast<int>(ExitCode::usage);
    }
    if (options.works) {
        cluster::Session session(&argc, &argv);
        return session.run([&] { return work(options, session); });
    }
    try {
        end_on_signals();
        return run(options);
    } catch (const Error& problem) {
        std::fprintf(stderr, "bench_checkpoints: %s\n", problem.what());
        return static_cast<int>(problem.code());
    }
}
