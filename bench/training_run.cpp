#include "training_run.hpp"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "base/random.hpp"
#include "command_run.hpp"
#include "trace/reader.hpp"

namespace lockstep::bench {
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t random_tokens = std::int64_t{1} << 20;

std::vector<std::string> words_of(const std::string& program, const TrainingCase& training, std::int64_t steps,
                                  const std::string& tokens) {
    std::vector<std::string> words;
    if (training.ranks > 1) words = {LOCKSTEP_MPIEXEC, "-np", std::to_string(training.ranks)};
    words.insert(words.end(), {program, "train"});
    const auto set = [&](const std::string& setting) { words.insert(words.end(), {"--set", setting}); };
    set("run.name=bench");
    set("run.device=cpu");
    set("run.self_test=false");
    set("run.peak_tflops=1");  // a share of a given rate: otherwise every start would measure one
    set("data.train=[\"" + tokens + "\"]");
    set(fmt::format("schedule.steps={}", steps));
    set("schedule.warmup=1");
    set("schedule.peak_lr=1e-4");
    for (const std::string& setting : settings_of(training)) set(setting);
    return words;
}

// What the program said of its end, without the time at which it did; the launcher's own words where there is nothing.
std::string sentence_of(const std::string& output) {
    const std::string mark = " error: ";
    const auto at = output.find(mark);
    if (at != std::string::npos) return output.substr(at + mark.size(), output.find('\n', at) - at - mark.size());
    const auto last = output.find_last_not_of('\n');
    return last == std::string::npos ? "it said nothing" : output.substr(0, last + 1);
}

TrainingResult read_trace(const std::string& folder) {
    const trace::Run run = trace::open_run(folder);
    const trace::TraceFile& file = run.parts.back().file;
    const std::size_t rows = file.steps().size(), ranks = file.ranks(), regions = file.regions();
    if (rows <= static_cast<std::size_t>(uncounted_steps))
        throw fault_error("{} has {} steps; more than {} are needed", file.path(), rows, uncounted_steps);

    TrainingResult result;
    result.threads = file.header().ranks.front().threads;
    std::vector<double> tokens, flop, step_seconds;
    for (std::size_t i = uncounted_steps; i < rows; ++i) {
        const trace::StepRow& step = file.steps()[i];
        tokens.push_back(static_cast<double>(step.tokens) / step.seconds);
        flop.push_back(step.model_flop / step.seconds);
        step_seconds.push_back(step.seconds);
    }
    result.tokens_per_second = median(tokens);
    result.flop_per_second = median(flop);
    result.step_seconds = median(step_seconds);

    // The last row holds the checkpoint, too.
    std::vector<std::uint64_t> memory;
    file.read_memory(rows - 2, 1, memory);
    for (std::size_t rank = 0; rank < ranks; ++rank)
        result.peak_bytes = std::max(result.peak_bytes, static_cast<double>(memory[3 * rank + 2]));
    std::vector<double> seconds;
    file.read_times(rows - 1, 1, seconds);
    for (std::size_t region = 0; region < regions; ++region)
        if (file.header().regions[region].path == "checkpoint")
            for (std::size_t rank = 0; rank < ranks; ++rank)
                result.checkpoint_seconds = std::max(result.checkpoint_seconds, seconds[rank * regions + region]);
    return result;
}

double bytes_of_checkpoints(const fs::path& folder) {
    double bytes = 0;
    for (const auto& entry : fs::directory_iterator(folder))
        if (entry.path().extension() == ".h5") bytes += static_cast<double>(entry.file_size());
    return bytes;
}

}  // namespace

std::string name_of(const TrainingCase& training) {
    const std::string more = training.settings.empty() ? "" : fmt::format(" ({})", fmt::join(training.settings, ", "));
    return fmt::format("{} {}x{} {}, {} rank{}{}", training.preset, training.batch, training.length, training.precision,
                       training.ranks, plural(training.ranks), more);
}

std::vector<std::string> settings_of(const TrainingCase& training) {
    std::vector<std::string> settings = {"model.preset=" + training.preset,
                                         fmt::format("model.vocabulary={}", vocabulary),
                                         fmt::format("batch.global={}", training.batch),
                                         fmt::format("batch.micro={}", training.micro),
                                         fmt::format("batch.length={}", training.length),
                                         "precision.compute=" + training.precision};
    if (training.length > 1024) settings.push_back(fmt::format("model.context={}", training.length));
    settings.insert(settings.end(), training.settings.begin(), training.settings.end());
    return settings;
}

void write_random_tokens(const std::string& path, std::int64_t count) {
    const std::array<std::int32_t, 256> header = {20240520, 1, static_cast<std::int32_t>(count)};
    std::vector<std::uint16_t> tokens(static_cast<std::size_t>(count));
    const RandomStream stream(1, "tokens");
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::uint16_t>(stream.bits(i) % vocabulary);
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(header.data()), sizeof header);
    file.write(reinterpret_cast<const char*>(tokens.data()), static_cast<std::streamsize>(2 * tokens.size()));
    file.close();
    if (!file) throw fault_error("{} cannot be written: {}", path, system_error_text());
}

Trainings::Trainings(const std::string& program, std::string folder)
    : program_(fs::absolute(program).string()), folder_(std::move(folder)), tokens_(folder_ + "/tokens.bin") {
    if (::access(program_.c_str(), X_OK) != 0)
        throw usage_error("{} cannot be executed; name the lockstep program with --lockstep", program_);
    write_random_tokens(tokens_, random_tokens);
}

TrainingResult Trainings::run(const TrainingCase& training, std::int64_t steps) const {
    const fs::path runs = fs::path(folder_) / "runs", checkpoints = fs::path(folder_) / "checkpoints";
    fs::remove_all(runs);
    fs::remove_all(checkpoints);
    const CommandResult ended =
        run_command({words_of(program_, training, steps, tokens_), folder_, {{"LOCKSTEP_LOG", "error"}}});
    if (ended.exit_code != 0)
        throw fault_error("{}: lockstep ended with exit code {}: {}", name_of(training), ended.exit_code,
                          sentence_of(ended.output));
    TrainingResult result = read_trace((runs / "bench").string());
    result.checkpoint_bytes = bytes_of_checkpoints(checkpoints / "bench");
    fs::remove_all(runs);
    fs::remove_all(checkpoints);
    return result;
}

std::string beside_this_program(const std::string& name) {
    return (fs::read_symlink("/proc/self/exe").parent_path() / name).string();
}

}  // namespace lockstep::bench
