#include "analysis/exchange/output.hpp"

#include <filesystem>
#include <utility>

#include "base/error.hpp"

namespace lockstep::analysis {

Output::Output(const std::string& path) : path_(path), file_(stdout) {
    if (path_.empty()) return;
    std::error_code ignored;
    if (std::filesystem::is_directory(path_, ignored)) throw usage_error("{} is a folder; give --out a file", path_);
    unfinished_ = path_ + ".tmp";
    file_ = std::fopen(unfinished_.c_str(), "wbe");
    if (!file_) throw usage_error("{} cannot be written: {}", unfinished_, system_error_text());
}

Output::~Output() {
    if (path_.empty() || !file_) return;
    std::fclose(file_);
    std::remove(unfinished_.c_str());
}

void Output::write(std::string_view text) {
    if (std::fwrite(text.data(), 1, text.size(), file_) != text.size())
        throw fault_error("{} cannot be written: {}", path_.empty() ? "the output" : path_, system_error_text());
}

void Output::finish() {
    if (std::fflush(file_) != 0)
        throw fault_error("{} cannot be written: {}", path_.empty() ? "the output" : path_, system_error_text());
    if (path_.empty()) return;
    if (std::fclose(std::exchange(file_, nullptr)) != 0 || std::rename(unfinished_.c_str(), path_.c_str()) != 0) {
        const std::string why = system_error_text();
        std::remove(unfinished_.c_str());
        throw fault_error("{} cannot be written: {}", path_, why);
    }
}

}  // namespace lockstep::analysis
