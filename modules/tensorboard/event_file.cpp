#include "tensorboard/event_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/whole_file.hpp"

namespace lockstep::tensorboard {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view beginning = "events.out.tfevents.";
constexpr std::int64_t most_seconds = 9'999'999'999;  // ten digits, so that names sort by time

// The time in the last name of the folder; 0: there is none.
std::int64_t last_in(const std::string& folder) {
    std::int64_t last = 0;
    std::error_code problem;
    for (fs::directory_iterator entry(folder, problem), end; !problem && entry != end; entry.increment(problem)) {
        const std::string name = entry->path().filename().string();
        if (name.rfind(beginning, 0) != 0) continue;
        std::int64_t seconds = 0;
        const auto parsed = std::from_chars(name.data() + beginning.size(), name.data() + name.size(), seconds);
        if (parsed.ec == std::errc{} && seconds < most_seconds) last = std::max(last, seconds);
    }
    return last;
}

OpenFile create_in(const std::string& folder) {
    std::error_code problem;
    fs::create_directories(folder, problem);
    if (problem) throw fault_error("the folder {} cannot be created: {}", folder, problem.message());
    const std::int64_t seconds = std::max(static_cast<std::int64_t>(wall_seconds()), last_in(folder) + 1);
    const std::string path = fmt::format("{}/{}{:010}.{}", folder, beginning, seconds, host_name());
    OpenFile::create(path);
    return OpenFile::to_append(path);
}

}  // namespace

EventFile::EventFile(const std::string& folder, std::int64_t first_step) {
    const double now = wall_seconds();
    header_ = version_record(now) + start_record(now, first_step);
    try {
        file_ = create_in(folder);
    } catch (const Error& error) {
        log::warning("{}; TensorBoard will not show this launch, training continues", error.what());
    }
}

void EventFile::add(const std::string& record) {
    if (!file_.is_open()) return;
    const bool written = file_.append(header_ + record);
    if (written) header_.clear();
    if (!written && writable_)
        log::warning("{} cannot be written ({}): TensorBoard will not show these steps, training continues",
                     file_.path(), system_error_text());
    writable_ = written;
}

void EventFile::add_scalars(std::int64_t step, const std::vector<Scalar>& scalars) {
    add(scalars_record(wall_seconds(), step, scalars));
}

void EventFile::add_text(std::int64_t step, std::string_view tag, std::string_view markdown) {
    add(text_record(wall_seconds(), step, tag, markdown));
}

}  // namespace lockstep::tensorboard
