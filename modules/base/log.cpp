#include "base/log.hpp"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>

#include "base/error.hpp"
#include "base/open_file.hpp"

namespace lockstep::log {
namespace {

std::string rank_prefix;
int own_rank = 0;
bool status_shown = false;
std::mutex status_mutex;

spdlog::level::level_enum spdlog_level(Level level) {
    switch (level) {
        case Level::debug:
            return spdlog::level::trace;
        case Level::detail:
            return spdlog::level::debug;
        case Level::info:
            return spdlog::level::info;
        case Level::warning:
            return spdlog::level::warn;
        case Level::error:
            return spdlog::level::err;
    }
    return spdlog::level::info;
}

// From LOCKSTEP_LOG; an unknown word is reported in the log, so this must not fail.
std::optional<Level> level_from_environment() {
    const char* value = std::getenv("LOCKSTEP_LOG");
    const std::string name = value ? value : "info";
    if (name == "debug") return Level::debug;
    if (name == "detail") return Level::detail;
    if (name == "info") return Level::info;
    if (name == "warning") return Level::warning;
    if (name == "error") return Level::error;
    return std::nullopt;
}

spdlog::logger& logger() {
    static const auto instance = [] {
        auto made = std::make_shared<spdlog::logger>("lockstep", std::make_shared<spdlog::sinks::stderr_sink_mt>());
        made->set_pattern("%H:%M:%S %v");
        made->flush_on(spdlog::level::trace);
        made->set_level(spdlog::level::trace);
        const auto level = level_from_environment();
        made->sinks().front()->set_level(spdlog_level(level.value_or(Level::info)));
        if (!level) made->warn("warning: LOCKSTEP_LOG must be debug, detail, info, warning or error; using info");
        return made;
    }();
    return *instance;
}

// Where the file cannot be written, stderr says so once and the run goes on.
class FileSink : public spdlog::sinks::base_sink<std::mutex> {
  public:
    explicit FileSink(const std::string& path) : file_(OpenFile::to_append(path)) {}

  private:
    void sink_it_(const spdlog::details::log_msg& message) override {
        spdlog::memory_buf_t line;
        formatter_->format(message, line);
        const bool written = file_.append({line.data(), line.size()});
        if (!written && writable_)
            fmt::print(stderr, "warning: {} cannot be written ({}): lines are lost, the run continues\n", file_.path(),
                       system_error_text());
        writable_ = written;
    }
    void flush_() override {}

    OpenFile file_;
    bool writable_ = true;
};

void clear_status() {
    if (!status_shown) return;
    std::fputs("\r\033[K", stderr);
    status_shown = false;
}

}  // namespace

void set_rank(int rank) {
    own_rank = rank;
    rank_prefix = rank == 0 ? "" : fmt::format("rank {}: ", rank);
}

void show_from(Level level) {
    logger().sinks().front()->set_level(spdlog_level(level));
}

void add_file(const std::string& path) {
    auto sink = std::make_shared<FileSink>(path);
    sink->set_pattern("%Y-%m-%d %H:%M:%S %v");
    sink->set_level(spdlog_level(Level::detail));
    const std::lock_guard lock(status_mutex);
    logger().sinks().push_back(std::move(sink));
}

void write(Level level, std::string_view sentence) {
    if (level <= Level::info && own_rank != 0) return;
    const std::lock_guard lock(status_mutex);
    clear_status();
    const char* word = level == Level::warning ? "warning: " : level == Level::error ? "error: " : "";
    logger().log(spdlog_level(level), "{}{}{}", word, rank_prefix, sentence);
}

bool on_terminal() {
    return isatty(STDERR_FILENO) == 1;
}

void status_line(std::string_view text) {
    if (own_rank != 0 || !on_terminal()) return;
    const std::lock_guard lock(status_mutex);
    clear_status();
    if (text.empty()) return;
    std::fprintf(stderr, "%.*s", static_cast<int>(text.size()), text.data());
    std::fflush(stderr);
    status_shown = true;
}

}  // namespace lockstep::log
