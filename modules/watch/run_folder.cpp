#include "watch/run_folder.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/version.hpp"
#include "base/whole_file.hpp"

namespace lockstep::watch {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no NaN: non-finite numbers become null.
Json number(double value) {
    return std::isfinite(value) ? Json(value) : Json(nullptr);
}

void write_whole(const std::string& path, const std::string& text) {
    if (!write_whole_file(path, text)) throw usage_error("{} cannot be written: {}", path, system_error_text());
}

}  // namespace

RunFolder::RunFolder(const std::string& path) : path_(path), lock_(path, "lock") {}

RunFolder::~RunFolder() {
    if (metrics_ >= 0) close(metrics_);
}

void RunFolder::write_description(const std::string& toml) const {
    write_whole(path_ + "/run.toml", toml);
}

void RunFolder::write_status(const std::string& folder, const std::string& state, std::int64_t step, int exit_code,
                             const std::string& reason) {
    const Json status = {{"state", state},    {"step", step},         {"exit_code", exit_code}, {"reason", reason},
                         {"time", utc_now()}, {"version", version()}, {"commit", commit()}};
    try {
        write_whole(folder + "/status.json", status.dump(2) + "\n");
    } catch (const Error& error) {
        log::warning("{}", error.what());  // this file must not decide how a run ends
    }
}

std::string RunFolder::read_rates(const std::string& folder) {
    std::ifstream file(folder + "/rates.json", std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

void RunFolder::write_rates(const std::string& folder, const std::string& json) {
    try {
        write_whole(folder + "/rates.json", json);
    } catch (const Error& error) {
        log::warning("{}; the next launch cannot compare its rates", error.what());
    }
}

void RunFolder::open_metrics(std::int64_t step) {
    const std::string path = path_ + "/metrics.jsonl";
    std::string kept;
    std::ifstream before(path);
    for (std::string line; std::getline(before, line);) {
        const Json entry = Json::parse(line, nullptr, false);
        // An unparsable line was truncated by a crash.
        if (!entry.is_object() || !entry.contains("step") || entry["step"].get<std::int64_t>() > step) continue;
        kept += line + "\n";
    }
    before.close();
    write_whole(path, kept);
    metrics_ = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    if (metrics_ < 0) throw usage_error("{} cannot be written: {}", path, system_error_text());
}

void RunFolder::write_metrics_line(const std::string& line) {
    const std::string text = line + "\n";
    const off_t before = lseek(metrics_, 0, SEEK_END);
    const auto written = write(metrics_, text.data(), text.size());
    const bool whole = written == static_cast<ssize_t>(text.size());
    if (!whole && metrics_writable_)
        log::warning("cannot write {}/metrics.jsonl ({}): lines are lost, training continues", path_,
                     system_error_text());
    // Half a line would corrupt the next one.
    if (!whole && written > 0 && ftruncate(metrics_, before) != 0)
        log::warning("{}/metrics.jsonl ends with a truncated line", path_);
    metrics_writable_ = whole;
}

void RunFolder::write_step(const trace::StepNumbers& numbers) {
    Json line = {{"step", numbers.step},
                 {"loss", number(numbers.loss)},
                 {"learning_rate", numbers.learning_rate},
                 {"gradient_norm", number(numbers.gradient_norm)},
                 {"tokens", numbers.tokens},
                 {"seconds", numbers.seconds},
                 {"tokens_per_second", numbers.per_second(static_cast<double>(numbers.tokens))},
                 {"flop_per_second", numbers.per_second(numbers.model_flop)},
                 {"batch", numbers.batch},
                 {"loss_scale", numbers.loss_scale},
                 {"zero_gradients", numbers.zero_gradients}};
    if (numbers.skipped != 0) line["skipped"] = true;
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

}  // namespace lockstep::watch
