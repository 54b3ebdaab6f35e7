#include "train/run_folder.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/version.hpp"

namespace lockstep::train {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no NaN: a number that is not finite is written as null.
Json number(double value) {
    return std::isfinite(value) ? Json(value) : Json(nullptr);
}

std::string utc_now() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    gmtime_r(&now, &parts);
    std::array<char, 32> text{};
    std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text.data();
}

// Written beside its name and renamed, so that a reader never sees half a file.
void write_whole(const std::string& path, const std::string& text) {
    const std::string beside = path + ".tmp";
    std::ofstream file(beside);
    file << text;
    file.close();
    std::error_code problem;
    if (file) std::filesystem::rename(beside, path, problem);
    if (!file || problem) throw usage_error("{} cannot be written: {}", path, system_error_text());
}

}  // namespace

RunFolder::RunFolder(const std::string& folder, const std::string& name) : path_(folder + "/" + name) {
    std::error_code problem;
    std::filesystem::create_directories(path_, problem);
    if (problem) throw usage_error("the run folder {} cannot be made: {}", path_, problem.message());
    const std::string lock_path = path_ + "/lock";
    lock_ = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (lock_ < 0) throw usage_error("{} cannot be written: {}", lock_path, system_error_text());
    struct flock whole {};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    // A record lock: it also holds between nodes on file systems that pass locks on, and ends with the process.
    if (fcntl(lock_, F_SETLK, &whole) != 0) {
        std::array<char, 256> holder{};
        const auto bytes = read(lock_, holder.data(), holder.size() - 1);
        close(lock_);
        lock_ = -1;
        throw usage_error(
            "the run {} is being trained by another launch ({}); stop that one, or choose another run.name", name,
            bytes > 0 ? holder.data() : "of an unknown process");
    }
    std::array<char, 200> host{};
    static_cast<void>(gethostname(host.data(), host.size() - 1));
    const std::string holder = fmt::format("process {} on {} since {}", getpid(), host.data(), utc_now());
    if (ftruncate(lock_, 0) != 0 || write(lock_, holder.data(), holder.size()) < 0)
        throw usage_error("{} cannot be written: {}", lock_path, system_error_text());
}

RunFolder::~RunFolder() {
    if (lock_ >= 0) close(lock_);
}

void RunFolder::write_description(const std::string& toml) const {
    write_whole(path_ + "/run.toml", toml);
}

void RunFolder::write_status(const std::string& state, std::int64_t step, int exit_code,
                             const std::string& reason) const {
    const Json status = {{"state", state},    {"step", step},         {"exit_code", exit_code}, {"reason", reason},
                         {"time", utc_now()}, {"version", version()}, {"commit", commit()}};
    write_whole(path_ + "/status.json", status.dump(2) + "\n");
}

void RunFolder::open_metrics(std::int64_t step) {
    const std::string path = path_ + "/metrics.jsonl";
    std::string kept;
    std::ifstream before(path);
    for (std::string line; std::getline(before, line);) {
        const Json entry = Json::parse(line, nullptr, false);
        // A line that does not parse was cut off by a crash.
        if (!entry.is_object() || !entry.contains("step") || entry["step"].get<std::int64_t>() > step) continue;
        kept += line + "\n";
    }
    before.close();
    write_whole(path, kept);
    metrics_.open(path, std::ios::app);
    if (!metrics_) throw usage_error("{} cannot be written: {}", path, system_error_text());
}

void RunFolder::write_metrics_line(const std::string& line) {
    metrics_ << line << "\n" << std::flush;
    if (metrics_) return;
    log::warning("{}/metrics.jsonl cannot be written ({}); a line is lost, training goes on", path_,
                 system_error_text());
    metrics_.clear();
}

void RunFolder::write_step(const StepMetrics& metrics) {
    Json line = {{"step", metrics.step},
                 {"loss", number(metrics.loss)},
                 {"learning_rate", metrics.learning_rate},
                 {"gradient_norm", number(metrics.gradient_norm)},
                 {"tokens", metrics.tokens},
                 {"seconds", metrics.seconds},
                 {"tokens_per_second", metrics.tokens_per_second},
                 {"flop_per_second", metrics.flop_per_second}};
    if (metrics.skipped) line["skipped"] = true;
    write_metrics_line(line.dump());
}

void RunFolder::write_validation(std::int64_t step, double validation_loss) {
    write_metrics_line(Json({{"step", step}, {"validation_loss", number(validation_loss)}}).dump());
}

bool RunFolder::stop_file_exists() const {
    return access((path_ + "/stop").c_str(), F_OK) == 0;
}

void RunFolder::remove_stop_file() const {
    std::error_code ignored;
    std::filesystem::remove(path_ + "/stop", ignored);
}

}  // namespace lockstep::train
