// Where the project's sources are, where this build is, and what starts ranks. In functions, so that no test's object
// depends on where the checkout lies and a compiler cache serves every checkout.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::tests {

// "tests/compatibility": that file or folder of the sources.
std::string source_path(std::string_view path);

// "bin/lockstep": that file or folder of the build.
std::string build_path(std::string_view path);

// The program that starts ranks, such as mpirun.
std::string mpi_launcher();

// Whether that is Open MPI's, which treats signals and exit codes in ways of its own.
bool launcher_is_open_mpi();

}  // namespace lockstep::tests
