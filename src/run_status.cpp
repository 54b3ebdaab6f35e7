#include "run_status.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/json_text.hpp"
#include "base/whole_file.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/part_files.hpp"
#include "exchange/folder.hpp"

namespace lockstep::commands {
namespace {

using Json = nlohmann::ordered_json;

std::string plain(const Json& value) {
    if (value.is_null()) return "";
    if (value.is_array()) {
        std::string text;
        for (const Json& each : value) text += (text.empty() ? "" : " ") + plain(each);
        return text;
    }
    return value.is_string() ? value.get<std::string>() : value.dump();
}

[[noreturn]] void refuse_folder(const std::string& path, const std::string& status_file, const std::string& problem) {
    exchange::check_has_config(path);
    if (const std::vector<std::string> all = checkpoint::list_checkpoints(path); !all.empty())
        throw usage_error("{} is a folder of checkpoints; name one of them, such as {}", path, all.back());
    if (const std::vector<std::string> parts = checkpoint::list_parts(path); !parts.empty())
        throw usage_error("{} is a folder of parts of local checkpoints; name one of them, such as {}", path,
                          parts.back());
    throw usage_error("{} cannot be read: {}; name a run folder", status_file, problem);
}

Json read_status(const std::string& path, const std::string& file) {
    if (::access(file.c_str(), R_OK) != 0) refuse_folder(path, file, system_error_text());
    std::error_code none;
    const bool is_file = std::filesystem::is_regular_file(file, none);  // a pipe would make this wait
    auto status = parse_json<Json>(is_file ? read_text_file(file) : "");
    if (!status.is_object()) throw damaged_error("{} is damaged: it is not a JSON object", file);
    return status;
}

}  // namespace

std::string lines_of(const std::vector<std::string>& values) {
    if (values.size() == 1 && values.front().empty()) return "";
    std::string text;
    for (const std::string& value : values) text += value + "\n";
    return text;
}

std::string run_status(const std::string& path, const std::vector<std::string>& keys, TableFormat format) {
    const std::string file = (std::filesystem::path(path) / "status.json").string();
    const Json status = read_status(path, file);
    if (keys.empty() && format == TableFormat::json) return status.dump(2) + "\n";
    std::string text;
    if (keys.empty()) {
        for (const auto& [key, value] : status.items()) text += fmt::format("{} = {}\n", key, plain(value));
        return text;
    }
    std::vector<std::string> known, values;
    for (const auto& [key, value] : status.items()) known.push_back(key);
    for (const std::string& key : keys) {
        if (!status.contains(key)) {
            const std::string near = nearest_name(key, known);
            throw usage_error("{} has no key {}{}", file, key, near.empty() ? "" : " (did you mean " + near + "?)");
        }
        values.push_back(plain(status.at(key)));
    }
    return lines_of(values);
}

}  // namespace lockstep::commands
