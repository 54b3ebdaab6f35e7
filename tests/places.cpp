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

bool launcher_is_open_mpi() {
    return LOCKSTEP_MPI_IS_OPEN_MPI != 0;
}

}  // namespace lockstep::tests
