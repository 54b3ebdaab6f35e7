# Compiles for 64-bit Arm on another processor, with Debian's g++-aarch64-linux-gnu, against a folder with Debian's arm64
# packages (tools/make_arm64_root makes it); the tests run in qemu. See docs/install.md.
get_filename_component(default ${CMAKE_CURRENT_LIST_DIR}/../build/arm64-root ABSOLUTE)
set(LOCKSTEP_ARM64_ROOT ${default} CACHE PATH "The folder with Debian's arm64 packages")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES LOCKSTEP_ARM64_ROOT)
if(NOT EXISTS "${LOCKSTEP_ARM64_ROOT}/usr/lib/aarch64-linux-gnu/libc.so.6")
    message(FATAL_ERROR "LOCKSTEP_ARM64_ROOT is '${LOCKSTEP_ARM64_ROOT}', which is not a folder with Debian's arm64 packages; "
                        "tools/make_arm64_root FOLDER makes one.")
endif()

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_SYSROOT ${LOCKSTEP_ARM64_ROOT})
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L ${LOCKSTEP_ARM64_ROOT})

# Libraries and headers are the folder's, programs (git, mpiexec, gnuplot …) this machine's.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${LOCKSTEP_ARM64_ROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${LOCKSTEP_ARM64_ROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${LOCKSTEP_ARM64_ROOT}/usr/share/pkgconfig)

# This machine's mpicc knows only its own MPICH. Its mpiexec starts the ranks, each in a qemu of its own.
set(MPI_C_INCLUDE_PATH ${LOCKSTEP_ARM64_ROOT}/usr/include/aarch64-linux-gnu/mpich CACHE PATH "Where mpi.h is")
set(MPI_C_LIB_NAMES mpich CACHE STRING "MPI's library")
set(MPI_mpich_LIBRARY ${LOCKSTEP_ARM64_ROOT}/usr/lib/aarch64-linux-gnu/libmpich.so CACHE FILEPATH "MPI's library")
find_program(MPIEXEC_EXECUTABLE NAMES mpiexec.mpich mpiexec DOC "Starts the ranks of the tests")
