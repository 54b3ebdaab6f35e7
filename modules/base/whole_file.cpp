#include "base/whole_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

#include "base/error.hpp"
#include "base/open_file.hpp"

namespace lockstep {
namespace {

constexpr std::string_view unfinished_suffix = ".tmp";

}  // namespace

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

std::string text_of_regular_file(const std::string& path) {
    std::error_code none;
    if (!std::filesystem::is_regular_file(path, none)) return {};
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

void write_whole_file(const std::string& path, const std::string& text) {
    std::error_code none;
    if (path.empty()) throw usage_error("the name of a file to write is empty");
    if (std::filesystem::is_directory(path, none)) throw usage_error("{} is a folder; name a file", path);
    // Anything but a regular file (/dev/stdout, a pipe) is written to, never replaced.
    if (std::filesystem::exists(path, none) && !std::filesystem::is_regular_file(path, none)) {
        std::ofstream stream(path, std::ios::binary);
        stream << text;
        stream.close();
        if (stream.fail()) throw fault_error("{} cannot be written: {}", path, system_error_text());
        return;
    }
    // Follow links instead of replacing them.
    const bool link = std::filesystem::is_symlink(path, none);
    const std::string target = link ? std::filesystem::canonical(path, none).string() : path;
    replace_file(target.empty() ? path : target, text);
}

void replace_file(const std::string& path, const std::string& text, Durable durable) {
    const std::string unfinished = fmt::format("{}.{}-{}{}", path, host_name(), getpid(), unfinished_suffix);
    try {
        OpenFile file = OpenFile::create(unfinished);
        file.write(text.data(), text.size(), 0);
        if (durable == Durable::yes) file.sync_data();  // else the name may come to the disk before the bytes
        file.close();
        rename_file(unfinished, path);
    } catch (const Error& error) {
        ::unlink(unfinished.c_str());
        std::string sentence = error.what();  // of the temporary file, which says nothing to the user
        if (const std::size_t at = sentence.find(unfinished); at != std::string::npos)
            sentence.replace(at, unfinished.size(), path);
        throw Error(error.code(), sentence);
    }
}

void remove_unfinished_files(const std::string& folder, const std::vector<std::string>& beginnings) {
    std::error_code problem;
    std::vector<std::filesystem::path> found;
    for (std::filesystem::directory_iterator entry(folder, problem), end; !problem && entry != end;
         entry.increment(problem)) {
        const std::string name = entry->path().filename().string();
        const auto begins = [&](const std::string& beginning) { return name.starts_with(beginning); };
        if (name.ends_with(unfinished_suffix) && std::any_of(beginnings.begin(), beginnings.end(), begins))
            found.push_back(entry->path());
    }
    for (const auto& path : found) std::filesystem::remove(path, problem);
}

}  // namespace lockstep
