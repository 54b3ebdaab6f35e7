#include "checkpoint/retention.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/error.hpp"
#include "checkpoint/checkpoint.hpp"

namespace lockstep::checkpoint {
namespace {

constexpr std::int64_t least_kept = 2;  // so that one is left when the newest is found damaged
constexpr std::string_view name_prefix = "step-", name_suffix = ".h5", unfinished_suffix = ".tmp";

// File names in `folder`; empty if it does not exist.
std::vector<std::string> names_in(const std::string& folder) {
    std::error_code error;
    std::vector<std::string> names;
    std::filesystem::directory_iterator at(folder, error), end;
    if (error == std::errc::no_such_file_or_directory) return names;
    for (; !error && at != end; at.increment(error)) names.push_back(at->path().filename().string());
    if (error) throw usage_error("the folder {} cannot be read: {}", folder, error.message());
    return names;
}

}  // namespace

std::string file_name(std::int64_t step) {
    return fmt::format("{}{:08}{}", name_prefix, step, name_suffix);
}

std::optional<std::int64_t> step_of(std::string_view name) {
    if (!name.starts_with(name_prefix) || !name.ends_with(name_suffix)) return std::nullopt;
    const std::string_view digits =
        name.substr(name_prefix.size(), name.size() - name_prefix.size() - name_suffix.size());
    std::int64_t step = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
    if (digits.empty() || error != std::errc() || end != digits.data() + digits.size() || file_name(step) != name)
        return std::nullopt;
    return step;
}

std::int64_t step_of_file(const std::string& path) {
    return step_of(std::filesystem::path(path).filename().string()).value_or(-1);
}

std::string unfinished_name(const std::string& path) {
    return path + std::string(unfinished_suffix);
}

std::vector<std::string> list_checkpoints(const std::string& folder) {
    std::vector<std::pair<std::int64_t, std::string>> found;
    for (const auto& name : names_in(folder))
        if (const auto step = step_of(name)) found.emplace_back(*step, (std::filesystem::path(folder) / name).string());
    std::sort(found.begin(), found.end());
    std::vector<std::string> paths;
    for (auto& [step, path] : found) paths.push_back(std::move(path));
    return paths;
}

std::string find_newest(const std::string& folder, std::vector<std::string>& skipped) {
    auto paths = list_checkpoints(folder);
    std::reverse(paths.begin(), paths.end());
    for (const auto& path : paths) {
        try {
            verify(path);
            return path;
        } catch (const Error& error) {
            // Only damaged files are skipped: one that cannot be read today may be readable tomorrow.
            if (error.code() != ExitCode::damaged) throw;
            skipped.emplace_back(error.what());
        }
    }
    return "";
}

std::vector<std::string> set_aside_later(const std::string& folder, std::int64_t step) {
    std::vector<std::string> moved;
    for (const auto& path : list_checkpoints(folder)) {
        if (*step_of(std::filesystem::path(path).filename().string()) <= step) continue;
        moved.push_back(path + ".set-aside");
        std::error_code error;
        std::filesystem::rename(path, moved.back(), error);
        if (error) throw usage_error("{} cannot be renamed: {}", path, error.message());
    }
    return moved;
}

std::vector<std::string> remove_unfinished(const std::string& folder) {
    std::vector<std::string> removed;
    for (const auto& name : names_in(folder)) {
        if (!name.ends_with(unfinished_suffix) || !step_of(name.substr(0, name.size() - unfinished_suffix.size())))
            continue;
        const auto path = std::filesystem::path(folder) / name;
        std::error_code error;
        if (!std::filesystem::remove(path, error) && error)
            throw fault_error("the unfinished checkpoint {} cannot be removed: {}", path.string(), error.message());
        removed.push_back(path.string());
    }
    return removed;
}

std::vector<std::string> remove_leftovers(const std::string& folder, std::int64_t step, std::int64_t keep) {
    std::vector<std::string> removed = remove_unfinished(folder);
    for (std::string& path : remove_older(folder, step, keep)) removed.push_back(std::move(path));
    return removed;
}

std::vector<std::string> remove_older(const std::string& folder, std::int64_t step, std::int64_t keep) {
    std::vector<std::string> candidates;
    for (const auto& path : list_checkpoints(folder))
        if (*step_of(std::filesystem::path(path).filename().string()) <= step) candidates.push_back(path);
    std::vector<std::string> removed;
    for (std::size_t i = 0; i + static_cast<std::size_t>(std::max(keep, least_kept)) < candidates.size(); ++i) {
        std::error_code error;
        if (!std::filesystem::remove(candidates[i], error) && error)
            throw fault_error("the old checkpoint {} cannot be removed: {}", candidates[i], error.message());
        removed.push_back(candidates[i]);
    }
    return removed;
}

}  // namespace lockstep::checkpoint
