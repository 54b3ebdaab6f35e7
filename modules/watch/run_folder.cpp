#include "watch/run_folder.hpp"

#include <unistd.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/json_number.hpp"
#include "base/json_text.hpp"
#include "base/log.hpp"
#include "base/version.hpp"
#include "base/whole_file.hpp"
#include "watch/watch_folder.hpp"

namespace lockstep::watch {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no NaN: non-finite numbers become null.
Json number(double value) {
    return std::isfinite(value) ? Json(value) : Json(nullptr);
}

// On a full disk a new file may have no room where the old one can still be overwritten.
void write_status_text(const std::string& path, const std::string& text) {
    try {
        replace_file(path, text, Durable::no);  // while training waits
    } catch (const Error& error) {
        std::error_code none;
        if (std::filesystem::symlink_status(path, none).type() != std::filesystem::file_type::regular) throw;
        try {
            OpenFile file = OpenFile::for_writing(path);
            file.write(text.data(), text.size(), 0);
            file.resize(text.size());
            file.close();
        } catch (const Error&) {
            throw error;
        }
    }
}

}  // namespace

RunFolder::RunFolder(const std::string& path) : path_(path), lock_(path, "lock") {
    remove_unfinished_files(path_,
                            {"status.json.", "run.toml.", "rates.json.", "products.json.", "metrics.jsonl.", "trace-"});
    remove_watch_folders(path_);
}

void RunFolder::write_description(const std::string& toml) const {
    replace_file(path_ + "/run.toml", toml);
}

void RunFolder::write_status(const std::string& folder, const std::string& state, std::int64_t step, int exit_code,
                             const std::string& reason, const NodeBlame& blame) {
    const Json status = {{"state", state},           {"step", step},
                         {"exit_code", exit_code},   {"reason", reason},
                         {"lost_nodes", blame.lost}, {"suspects", blame.suspected},
                         {"time", utc_now()},        {"version", version()},
                         {"commit", commit()}};
    static std::atomic<bool> writable{true};  // it is written every few seconds: a full disk is worth one warning
    try {
        write_status_text(folder + "/status.json", status.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
        writable = true;
    } catch (const Error& error) {  // this file must not decide how a run ends
        if (writable.exchange(false)) log::warning("{}", error.what());
    }
}

std::string RunFolder::read_rates(const std::string& folder) {
    return text_of_regular_file(folder + "/rates.json");
}

void RunFolder::write_rates(const std::string& folder, const std::string& json) {
    try {
        replace_file(folder + "/rates.json", json);
    } catch (const Error& error) {
        log::warning("{}; the next launch cannot compare its rates", error.what());
    }
}

std::optional<std::string> RunFolder::read_products(const std::string& folder) {
    const std::string path = folder + "/products.json";
    std::error_code none;
    if (!std::filesystem::exists(std::filesystem::symlink_status(path, none))) return std::nullopt;
    return text_of_regular_file(path);
}

void RunFolder::write_products(const std::string& folder, const std::string& json) {
    try {
        replace_file(folder + "/products.json", json);
    } catch (const Error& error) {
        log::warning("{}; the next launch times matrix products again, and its results may differ in the last bits",
                     error.what());
    }
}

void RunFolder::set_products_aside(const std::string& folder) {
    try {
        rename_file(folder + "/products.json", folder + "/products.json.broken");
    } catch (const Error& error) {
        log::warning("{}", error.what());
    }
}

void RunFolder::open_metrics(std::int64_t step) {
    const std::string path = path_ + "/metrics.jsonl";
    std::string kept, broken;
    std::error_code none;
    using Type = std::filesystem::file_type;
    const Type kind =
        std::filesystem::status(path, none).type();  // of what a link points to; the link is replaced below
    if (kind != Type::not_found && kind != Type::regular)
        throw usage_error("{} is no regular file that can be read; remove it", path);
    std::istringstream before(kind == Type::regular ? read_text_file(path) : "");
    for (std::string line; std::getline(before, line);) {
        const auto entry = parse_json<Json>(line);
        const bool whole = entry.is_object() && entry.contains("step") && is_whole<std::int64_t>(entry["step"]);
        if (!whole) broken += line + "\n";
        if (whole && entry["step"].get<std::int64_t>() <= step) kept += line + "\n";
    }
    if (!broken.empty()) {
        OpenFile rescued = OpenFile::to_append(path + ".broken");  // beside earlier ones
        if (!rescued.append(broken)) throw fault_error("{}.broken cannot be written: {}", path, system_error_text());
        log::warning(
            "{} has lines that are not metrics of a step, such as a crash leaves behind; they are moved to {}.broken",
            path, path);
    }
    replace_file(path, kept);
    metrics_ = OpenFile::to_append(path);
}

void RunFolder::write_metrics_line(const std::string& line) {
    const bool written = metrics_.append(line + "\n");
    if (!written && metrics_writable_)
        log::warning("{} cannot be written ({}): lines are lost, training continues", metrics_.path(),
                     system_error_text());
    metrics_writable_ = written;
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
    if (numbers.joules > 0) {
        line["joules"] = numbers.joules;
        line["joules_per_token"] = numbers.joules / static_cast<double>(numbers.tokens);
    }
    if (numbers.cycles > 0 && numbers.processor_seconds > 0) {
        line["instructions"] = numbers.instructions;
        line["instructions_per_cycle"] = numbers.instructions / numbers.cycles;
        line["cycles_per_second"] = numbers.cycles / numbers.processor_seconds;
    }
    if (numbers.skipped != 0) line["skipped"] = true;
    write_metrics_line(line.dump());
}

void RunFolder::write_validation(std::int64_t step, double validation_loss, double bits_per_byte) {
    Json line = {{"step", step}, {"validation_loss", number(validation_loss)}};
    if (bits_per_byte != 0) line["validation_bits_per_byte"] = number(bits_per_byte);
    write_metrics_line(line.dump());
}

bool RunFolder::stop_file_exists() const {
    return access((path_ + "/stop").c_str(), F_OK) == 0;
}

void RunFolder::remove_stop_file() const {
    std::error_code ignored;
    std::filesystem::remove(path_ + "/stop", ignored);
}

}  // namespace lockstep::watch
