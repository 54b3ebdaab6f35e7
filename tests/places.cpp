#include "places.hpp"

namespace lockstep::tests {

std::string source_path(std::string_view path) {
    return std::string(LOCKSTEP_SOURCE_DIR "/").append(path);
}

std::string build_path(std::string_view path) {
    return std::string(LOCKSTEP_BINARY_DIR "/").append(path);
}

std::string mpi_launcher() {
    return LOCKSTEP_MPIEXEC;
}

}  // namespace lockstep::tests
