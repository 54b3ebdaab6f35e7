#include "base/whole_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "base/error.hpp"

namespace lockstep {

std::string host_name() {
    std::array<char, 256> name{};
    if (gethostname(name.data(), name.size() - 1) != 0) return "unknown";
    return name.data();
}

std::string read_text_file(const std::string& path) {
    std::error_code none;
    if (std::filesystem::is_directory(path, none)) throw usage_error("{} is a folder; name a file", path);
    errno = 0;
    std::ifstream file(path, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (!file.is_open() || file.bad()) throw usage_error("{} cannot be read: {}", path, system_error_text());
    return text;
}

bool write_whole_file(const std::string& path, const std::string& text) {
    // Anything but a regular file (/dev/stdout, a pipe) is written to, never replaced.
    std::error_code none;
    const bool special = std::filesystem::exists(path, none) && !std::filesystem::is_regular_file(path, none);
    if (special) {
        std::ofstream stream(path, std::ios::binary);
        stream << text;
        stream.close();
        return !stream.fail();
    }
    // Follow links instead of replacing them.
    if (std::filesystem::is_symlink(path, none)) {
        const std::string target = std::filesystem::canonical(path, none).string();
        if (!none) return write_whole_file(target, text);
    }
    const std::string temporary = fmt::format("{}.{}-{}.tmp", path, host_name(), getpid());
    std::ofstream file(temporary, std::ios::binary);
    file << text;
    file.close();
    if (!file) return false;
    std::error_code problem;
    std::filesystem::rename(temporary, path, problem);
    if (problem) errno = problem.value();
    return !problem;
}

}  // namespace lockstep
