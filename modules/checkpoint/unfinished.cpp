#include "checkpoint/unfinished.hpp"

#include <filesystem>

#include "base/fault.hpp"
#include "checkpoint/retention.hpp"

namespace lockstep::checkpoint {

Layout lay_out(const std::string& path, const Contents& contents, const std::vector<TensorInfo>& tensors) {
    const std::string folder = std::filesystem::path(path).parent_path().string(), unfinished = unfinished_name(path);
    std::error_code error;
    if (!folder.empty()) std::filesystem::create_directories(folder, error);
    if (error) throw fault_error("cannot create the folder {}: {}", folder, error.message());
    fail_if_injected("checkpoint_reserve", unfinished);
    Layout layout = write_header(unfinished, contents, tensors);
    OpenFile file = OpenFile::for_writing(unfinished);
    file.reserve(layout.file_bytes);
    file.sync();
    file.close();
    return layout;
}

void publish(const std::string& path, std::string_view fault_point) {
    const std::string unfinished = unfinished_name(path);
    static_cast<void>(read_header(unfinished));
    OpenFile file = OpenFile::for_writing(unfinished);
    file.sync();
    file.close();
    static_cast<void>(fault::at(fault_point));
    rename_file(unfinished, path);
    sync_folder(std::filesystem::path(path).parent_path().string());
}

void remove_quietly(const std::string& path) {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
}

}  // namespace lockstep::checkpoint
