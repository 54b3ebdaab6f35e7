#include "analysis/exchange/output.hpp"

#include <filesystem>
#include <utility>

#include "base/error.hpp"

namespace lockstep::analysis {

Output::Output(const std::string& path) : path_(path), file_(stdout) {
    if (path_.empty()) return;
    std::error_code ignored;
    if (std::filesystem::is_directory(path_, ignored)) throw usage_error("{} is a folder; give --out a file", path_);
    // What is no file (/dev/stdout, a pipe) is written to, never replaced.
    const bool special = std::filesystem::exists(path_, ignored) && !std::filesystem::is_regular_file(path_, ignored);
    unfinished_ = special ? path_ : path_ + ".tmp";
    file_ = std::fopen(unfinished_.c_str(), "wbe");
    if (!file_) throw usage_error("{} cannot be written: {}", unfinished_, system_error_text());
}

Output::~Output() {
    if (path_.empty() || !file_) return;
    std::fclose(file_);
    if (unfinished_ != path_) std::remove(unfinished_.c_str());
}

void Output::write(std::string_view text) {
    if (std::fwrite(text.data(), 1, text.size(), file_) != text.size())
        throw fault_error("{} cannot be written: {}", path_.empty() ? "the output" : path_, system_error_text());
}

void Output::finish() {
    if (std::fflush(file_) != 0)
        throw fault_error("{} cannot be written: {}", path_.empty() ? "the output" : path_, system_error_text());
    if (path_.empty()) return;
    const bool beside = unfinished_ != path_;
    if (std::fclose(std::exchange(file_, nullptr)) != 0 ||
        (beside && std::rename(unfinished_.c_str(), path_.c_str()) != 0)) {
        const std::string why = system_error_text();
        if (beside) std::remove(unfinished_.c_str());
        throw fault_error("{} cannot be written: {}", path_, why);
    }
}

}  // namespace lockstep::analysis
