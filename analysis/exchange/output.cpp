#include "analysis/exchange/output.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "analysis/load/guard.hpp"
#include "base/error.hpp"
#include "base/whole_file.hpp"

namespace lockstep::analysis {

namespace fs = std::filesystem;

Output::Output(const std::string& path) : path_(path), file_(stdout) {
    if (path_.empty()) return;
    std::error_code problem;
    const fs::file_status status = fs::status(path_, problem);
    if (fs::is_directory(status)) throw usage_error("{} is a folder; give --out a file", path_);
    const bool replaces = fs::is_regular_file(status) || !fs::exists(status);
    if (replaces) {
        const fs::path target = fs::canonical(path_, problem);
        if (!problem) path_ = target.string();
        unfinished_ = fmt::format("{}.{}-{}.tmp", path_, host_name(), ::getpid());  // nobody else's
    }
    const std::string& opened = replaces ? unfinished_ : path_;
    if (replaces) note_unfinished(unfinished_);
    file_ = std::fopen(opened.c_str(), "wbe");
    if (file_) return;
    const std::string why = system_error_text();
    forget_unfinished();
    throw usage_error("{} cannot be written: {}", path_, why);
}

Output::~Output() {
    if (path_.empty() || !file_) return;
    std::fclose(file_);
    if (!unfinished_.empty()) std::remove(unfinished_.c_str());
    forget_unfinished();
}

void Output::write(std::string_view text) {
    if (std::fwrite(text.data(), 1, text.size(), file_) != text.size())
        throw fault_error("{} cannot be written: {}", path_.empty() ? "the output" : path_, system_error_text());
}

void Output::finish() {
    if (std::fflush(file_) != 0)
        throw fault_error("{} cannot be written: {}", path_.empty() ? "the output" : path_, system_error_text());
    if (path_.empty()) return;
    const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
    if (!closed || (!unfinished_.empty() && std::rename(unfinished_.c_str(), path_.c_str()) != 0)) {
        const std::string why = system_error_text();
        if (!unfinished_.empty()) std::remove(unfinished_.c_str());
        forget_unfinished();
        throw fault_error("{} cannot be written: {}", path_, why);
    }
    forget_unfinished();
}

OutputFolder::OutputFolder(const std::string& path) : path_(path) {
    while (path_.size() > 1 && path_.ends_with('/')) path_.pop_back();
    std::error_code problem;
    if (fs::exists(fs::symlink_status(path_, problem))) throw usage_error("{} exists; give --out a new name", path_);
    unfinished_ = path_ + ".tmp";
    const bool made = fs::create_directory(unfinished_, problem);
    if (problem) throw usage_error("the folder {} cannot be created: {}", unfinished_, problem.message());
    if (!made)
        throw usage_error(
            "{} exists: another export is writing it, or one was killed; remove it if no export is running",
            unfinished_);
    note_unfinished(unfinished_);
}

OutputFolder::~OutputFolder() {
    if (finished_) return;
    std::error_code ignored;
    fs::remove_all(unfinished_, ignored);
    forget_unfinished();
}

void OutputFolder::finish() {
    std::error_code problem;
    fs::rename(unfinished_, path_, problem);
    if (problem) throw fault_error("{} cannot be renamed to {}: {}", unfinished_, path_, problem.message());
    finished_ = true;
    forget_unfinished();
}

}  // namespace lockstep::analysis
