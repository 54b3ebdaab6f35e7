#include <filesystem>

#include "base/error.hpp"
#include "command.hpp"
#include "hdf5/hdf5.hpp"

namespace lockstep::commands {

void check_written_by_lockstep(const std::string& path) {
    std::error_code ignored;
    const bool named_like_one = std::filesystem::path(path).extension() == ".h5";
    if (named_like_one || !std::filesystem::is_regular_file(path, ignored) || hdf5::has_signature(path)) return;
    throw usage_error("{} is not an HDF5 file, as lockstep's checkpoints, traces and token files are", path);
}

}  // namespace lockstep::commands
