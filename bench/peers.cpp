// Trains the same model with lockstep and with a peer that the user has built, in turns, and prints tokens/s and memory
// of both. Of a peer only its own program is called; docs/benchmarks.md says what runs and how to prepare it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/table.hpp"
#include "cluster/placement.hpp"
#include "command_run.hpp"
#include "training_run.hpp"

using namespace lockstep;
using namespace lockstep::bench;
namespace fs = std::filesystem;

namespace {

struct Options {
    std::string lockstep = beside_this_program("lockstep"), folder = fs::temp_directory_path().string();
    std::vector<std::string> llm_c;
    bool pytorch = false;
    std::string ttt_lm_pytorch, python = "python3", precision = "fp32", format = "text";
    std::int64_t steps = 6, rounds = 3;
};

// What one run of a peer has shown.
struct PeerRun {
    std::int64_t tokens = 0;  // of a step
    double tokens_per_second = 0, peak_bytes = 0;
};

struct Peer {
    std::string name;
    TrainingCase training;  // what lockstep does; a length of 0 is what the peer is found to do
    std::function<PeerRun()> run;
};

// Random parameters in the file that llm.c starts from: a header of 256 int32, then fp32.
void write_gpt2_parameters(const std::string& path) {
    constexpr std::int32_t length = 1024, layers = 12, heads = 12, width = 768, padded = 50304;
    std::array<std::int32_t, 256> header = {20240326, 3,     length, static_cast<std::int32_t>(vocabulary),
                                            layers,   heads, width,  padded};
    constexpr std::int64_t w = width, l = layers;
    // Embeddings; per layer norm, attention, norm, MLP; the last norm. Weights are random, norms 1, biases 0.
    enum class Kind { random, one, zero };
    using K = Kind;
    const std::vector<std::pair<std::int64_t, Kind>> tensors = {{padded * w, K::random},
                                                                {length * w, K::random},
                                                                {l * w, K::one},
                                                                {l * w, K::zero},
                                                                {l * 3 * w * w, K::random},
                                                                {l * 3 * w, K::zero},
                                                                {l * w * w, K::random},
                                                                {l * w, K::zero},
                                                                {l * w, K::one},
                                                                {l * w, K::zero},
                                                                {l * 4 * w * w, K::random},
                                                                {l * 4 * w, K::zero},
                                                                {l * 4 * w * w, K::random},
                                                                {l * w, K::zero},
                                                                {w, K::one},
                                                                {w, K::zero}};
    constexpr std::int64_t piece = std::int64_t{1} << 18;
    std::vector<float> random(piece), ones(piece, 1), zeros(piece, 0);
    const RandomStream stream(1, "parameters");
    for (std::size_t i = 0; i < random.size(); ++i) random[i] = static_cast<float>(0.02 * stream.normal(i));

    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(header.data()), sizeof header);
    for (const auto& [count, kind] : tensors) {
        const std::vector<float>& values = kind == K::random ? random : kind == K::one ? ones : zeros;
        for (std::int64_t first = 0; first < count; first += piece)
            file.write(reinterpret_cast<const char*>(values.data()),
                       static_cast<std::streamsize>(std::min(piece, count - first)) * 4);
    }
    file.close();
    if (!file) throw fault_error("{} cannot be written: {}", path, system_error_text());
}

// The number after the last `mark` of a line; -1 where there is none.
double number_after(const std::string& line, const std::string& mark) {
    const auto at = line.rfind(mark);
    return at == std::string::npos ? -1 : std::strtod(line.c_str() + at + mark.size(), nullptr);
}

// Runs a program that prints "step N: … (took X ms)" until it has made `steps` of them.
PeerRun run_peer(const std::string& name, const Command& command, std::int64_t steps,
                 const std::function<void(const std::string&, PeerRun&)>& look) {
    PeerRun run;
    std::vector<double> seconds;
    std::int64_t made = 0;
    const CommandResult ended = run_command(command, [&](const std::string& line) {
        look(line, run);
        const double milliseconds = line.rfind("step ", 0) == 0 ? number_after(line, "(took ") : -1;
        if (milliseconds > 0 && ++made > uncounted_steps) seconds.push_back(milliseconds / 1e3);
        return made < steps;
    });
    if (made < steps)
        throw fault_error("{} ended with exit code {} after {} of {} steps; its output:\n{}", name, ended.exit_code,
                          made, steps, ended.output);
    run.tokens_per_second = static_cast<double>(run.tokens) / median(seconds);
    run.peak_bytes = ended.peak_bytes;
    return run;
}

Peer llm_c(const std::string& given, const std::string& folder, std::int64_t threads, std::int64_t steps) {
    const fs::path path = fs::is_directory(given) ? fs::path(given) / "train_gpt2" : fs::path(given);
    if (!fs::exists(path)) throw usage_error("{} does not exist; build it first: docs/benchmarks.md", path.string());
    const std::string program = fs::absolute(path).string();
    constexpr std::int64_t tokens = std::int64_t{1} << 20, batch = 4;
    const fs::path data = fs::path(folder) / "dev/data/tinyshakespeare";
    if (!fs::exists(data)) {
        fs::create_directories(data);
        for (const char* part : {"train", "val"})
            write_random_tokens((data / fmt::format("tiny_shakespeare_{}.bin", part)).string(), tokens);
        write_gpt2_parameters(folder + "/gpt2_124M.bin");
    }
    // It prints into a pipe: without stdbuf its lines would come all at once.
    const Command command = {{"stdbuf", "-oL", program}, folder, {{"OMP_NUM_THREADS", std::to_string(threads)}}};
    const auto look = [](const std::string& line, PeerRun& run) {
        const double batches = number_after(line, "train dataset num_batches: ");
        if (batches > 0) run.tokens = static_cast<std::int64_t>(static_cast<double>(tokens) / batches);
    };
    return {"llm.c", {"gpt2-124m", batch, 0, batch}, [=] { return run_peer("llm.c", command, steps, look); }};
}

Peer ttt_lm_pytorch(const Options& options, const std::string& kind, const std::string& folder, std::int64_t threads) {
    const std::string checkout = fs::absolute(options.ttt_lm_pytorch).string();
    if (!fs::exists(checkout + "/ttt.py"))
        throw usage_error("{} is not a checkout of ttt-lm-pytorch: it has no ttt.py", options.ttt_lm_pytorch);
    constexpr std::int64_t length = 512;
    const Command command = {{options.python, LOCKSTEP_BENCH_SOURCE "/ttt_lm_pytorch.py", checkout, kind,
                              std::to_string(length), std::to_string(threads), std::to_string(options.steps)},
                             folder,
                             {}};
    const auto look = [](const std::string&, PeerRun& run) { run.tokens = length; };
    return {"ttt-lm-pytorch", {fmt::format("ttt-{}-125m", kind), 1, length, 1}, [=, steps = options.steps] {
                return run_peer("ttt-lm-pytorch", command, steps, look);
            }};
}

Peer pytorch(const Options& options, std::int64_t length, const std::string& folder, std::int64_t threads) {
    constexpr std::int64_t batch = 4;
    const Command command = {
        {options.python, LOCKSTEP_BENCH_SOURCE "/gpt2_pytorch.py", std::to_string(batch), std::to_string(length),
         std::to_string(threads), std::to_string(options.steps), options.precision},
        folder,
        {}};
    const auto look = [=](const std::string&, PeerRun& run) { run.tokens = batch * length; };
    return {"PyTorch", {"gpt2-124m", batch, length, batch}, [=, steps = options.steps] {
                return run_peer("PyTorch", command, steps, look);
            }};
}

// The peer and lockstep in turns; the medians of all rounds.
void compare(const Peer& peer, const Trainings& trainings, const Options& options, Table& table) {
    TrainingCase training = peer.training;
    training.precision = options.precision;
    std::vector<double> own, others, own_memory, other_memory;
    for (std::int64_t round = 1; round <= options.rounds; ++round) {
        const PeerRun run = peer.run();
        if (training.length == 0) training.length = run.tokens / training.batch;
        std::fprintf(stderr, "%s, round %d of %d: %s %.1f tokens/s, ", name_of(training).c_str(),
                     static_cast<int>(round), static_cast<int>(options.rounds), peer.name.c_str(),
                     run.tokens_per_second);
        const TrainingResult result = trainings.run(training, options.steps);
        std::fprintf(stderr, "lockstep %.1f tokens/s\n", result.tokens_per_second);
        own.push_back(result.tokens_per_second);
        others.push_back(run.tokens_per_second);
        own_memory.push_back(result.peak_bytes);
        other_memory.push_back(run.peak_bytes);
    }
    constexpr double gibibyte = 1 << 30;
    table.add_row({peer.name, training.preset, training.batch, training.length, training.precision, median(own),
                   median(others), median(own) / median(others), median(own_memory) / gibibyte,
                   median(other_memory) / gibibyte});
}

void run(const Options& options) {
    const TableFormat format = table_format(options.format);
    if (options.llm_c.empty() && options.ttt_lm_pytorch.empty() && !options.pytorch)
        throw usage_error(
            "name a peer with --llm-c, --pytorch or --ttt-lm-pytorch; docs/benchmarks.md says how to prepare them");
    const TemporaryFolder folder(options.folder);
    const Trainings trainings(options.lockstep, folder.path());
    const std::int64_t threads = cluster::place_alone({}).seat().threads;
    std::vector<Peer> peers;
    for (const std::string& path : options.llm_c) peers.push_back(llm_c(path, folder.path(), threads, options.steps));
    if (options.pytorch)
        for (const std::int64_t length : {64, 256}) peers.push_back(pytorch(options, length, folder.path(), threads));
    if (!options.ttt_lm_pytorch.empty())
        for (const char* kind : {"linear", "mlp"})
            peers.push_back(ttt_lm_pytorch(options, kind, folder.path(), threads));

    Table table({{"peer", "peer"},
                 {"model", "model"},
                 {"batch", "batch"},
                 {"length", "length"},
                 {"precision", "precision"},
                 {"tokens_per_second", "lockstep, tokens/s", 0},
                 {"peer_tokens_per_second", "peer, tokens/s", 0},
                 {"ratio", "ratio", 2},
                 {"peak_gibibytes", "lockstep, GiB", 2},
                 {"peer_peak_gibibytes", "peer, GiB", 2}});
    for (const Peer& peer : peers) compare(peer, trainings, options, table);
    std::fputs(table.print(format).c_str(), stdout);
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App program(
        "Trains the same models with lockstep and with peers that you have built, alternating on the same threads. "
        "tokens/s are those of the median step after the first two, as medians over the rounds; memory is the largest "
        "resident set, for lockstep until its checkpoint begins. PyTorch computes in lockstep's precision, other peers in "
        "fp32.",
        "bench_peers");
    program
        .add_option("--llm-c", options.llm_c, "a checkout of llm.c with train_gpt2 built, or that program; repeatable")
        ->allow_extra_args(false);
    program.add_option("--ttt-lm-pytorch", options.ttt_lm_pytorch, "a checkout of ttt-lm-pytorch");
    program.add_flag("--pytorch", options.pytorch, "GPT-2 in PyTorch, compiled (bench/gpt2_pytorch.py)");
    program.add_option("--python", options.python, "the Python interpreter that has PyTorch")->capture_default_str();
    program.add_option("--lockstep", options.lockstep, "the program")->capture_default_str();
    program.add_option("--precision", options.precision, "lockstep's, and PyTorch's: fp32 or bf16")
        ->check(CLI::IsMember({"fp32", "bf16"}))
        ->capture_default_str();
    program.add_option("--steps", options.steps, "steps per run; the first two are not timed")
        ->check(CLI::Range(3, 20))  // llm.c's 21st comes after it has generated text
        ->capture_default_str();
    program.add_option("--rounds", options.rounds, "runs of each program")
        ->check(CLI::Range(1, 100))
        ->capture_default_str();
    program.add_option("--folder", options.folder, "where to create a temporary folder; it needs up to 3 GB")
        ->capture_default_str();
    program.add_option("--format", options.format, "text, markdown, csv or json")->capture_default_str();
    try {
        program.parse(argc, argv);
    } catch (const CLI::ParseError& problem) {
        if (problem.get_exit_code() == 0) return program.exit(problem);
        std::fprintf(stderr, "bench_peers: %s; see bench_peers --help\n", problem.what());
        return static_cast<int>(ExitCode::usage);
    }
    try {
        end_on_signals();
        run(options);
    } catch (const Error& problem) {
        std::fprintf(stderr, "bench_peers: %s\n", problem.what());
        return static_cast<int>(problem.code());
    }
    return 0;
}
