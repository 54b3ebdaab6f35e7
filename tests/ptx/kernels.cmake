# The kernels as nvcc compiled them, on a machine that runs PTX (ctest ptx/NAME). Only where the CUDA toolkit is.
if(NOT LOCKSTEP_HAS_CUDA)
    message(STATUS "Tests of the kernels' PTX: no, they need the CUDA toolkit")
    return()
elseif(NOT LOCKSTEP_TESTS_PTX)
    message(STATUS "Tests of the kernels' PTX: no, they need nvcc 12.8 or newer and libzstd")
    return()
endif()
set(ptx_architectures 90a)
if(CMAKE_CUDA_ARCHITECTURES MATCHES "(^|;)80(-virtual)?(;|$)")
    list(PREPEND ptx_architectures 80)
endif()
# In the cache, since other folders call the functions below.
set(LOCKSTEP_PTX_ARCHITECTURES ${ptx_architectures} CACHE INTERNAL "Architectures whose PTX is tested")
get_property(cuda_sources GLOBAL PROPERTY LOCKSTEP_CUDA_SOURCES)
set(host_sources ${cuda_sources})
list(FILTER host_sources EXCLUDE REGEX "\\.cu$")

# The runtime: streams, events, graphs, memory, cuBLASLt and NCCL are the emulation's, compiled against the toolkit's
# headers, so that the compiler holds their declarations and types against CUDA's.
get_property(runtime_sources GLOBAL PROPERTY LOCKSTEP_EMULATED_RUNTIME_SOURCES)
add_library(lockstep_ptx_runtime STATIC counts.cpp fat_binary.cpp launch.cpp outcome.cpp registry.cpp settings.cpp
                                        ${runtime_sources})
target_include_directories(lockstep_ptx_runtime PUBLIC ${PROJECT_SOURCE_DIR}/tests)
target_include_directories(lockstep_ptx_runtime SYSTEM BEFORE PUBLIC
    ${PROJECT_SOURCE_DIR}/tests/cuda_emulation/nccl/include ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(lockstep_ptx_runtime PUBLIC lockstep_options lockstep::base MPI::MPI_C Threads::Threads
                                           PRIVATE lockstep_ptx_machine PkgConfig::ZSTD)

# lockstep::cuda on it. What host objects of kernels leave open the stand-in supplies; no CUDA library is linked.
add_library(lockstep_cuda_ptx STATIC ${host_sources} $<TARGET_OBJECTS:lockstep_cuda_kernels>)
target_compile_definitions(lockstep_cuda_ptx PRIVATE LOCKSTEP_NCCL=1)
target_link_libraries(lockstep_cuda_ptx PUBLIC lockstep::kernels lockstep::cluster lockstep_ptx_runtime MPI::MPI_C)

# Every test says which kernels it ran: together all of them, on each architecture. Those of the A100 are among the long
# tests, since most of its code is the H100's.
set(executed ${PROJECT_BINARY_DIR}/ptx_executed)
add_test(NAME ptx/begin COMMAND sh -c "rm -rf '${executed}' && mkdir -p '${executed}/sm_80' '${executed}/sm_90'")
set_tests_properties(ptx/begin PROPERTIES LABELS ptx FIXTURES_SETUP ptx_folder)
add_test(NAME ptx/executed COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/executed ${executed}/sm_90 100)
set_tests_properties(ptx/executed PROPERTIES LABELS ptx FIXTURES_REQUIRED "ptx_folder;ptx_runs_90")
if("80" IN_LIST ptx_architectures)
    add_test(NAME ptx/executed-sm_80 COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/executed ${executed}/sm_80 100)
    set_tests_properties(ptx/executed-sm_80 PROPERTIES LABELS "ptx;long" FIXTURES_REQUIRED "ptx_folder;ptx_runs_80")
endif()

# lockstep_ptx_runs(NAME ARCHITECTURE): the ctest ptx/NAME, which is there, runs the kernels of this architecture.
function(lockstep_ptx_runs name architecture)
    set(executed ${PROJECT_BINARY_DIR}/ptx_executed/sm_${architecture})
    set(labels ptx)
    if(architecture EQUAL 80)
        list(APPEND labels long)
    endif()
    set_tests_properties(ptx/${name} PROPERTIES LABELS "${labels}" FIXTURES_REQUIRED ptx_folder
        FIXTURES_SETUP ptx_runs_${architecture}
        ENVIRONMENT "OMP_WAIT_POLICY=passive;LOCKSTEP_PTX_EXECUTED=${executed};LOCKSTEP_PTX_ARCHITECTURE=sm_${architecture}")
endfunction()

# lockstep_ptx_test(NAME SOURCES a.cpp … LIBRARIES …): the ctests ptx/NAME and, of sm_80, ptx/NAME-sm_80 (long), of a test of
# the CUDA backend.
function(lockstep_ptx_test name)
    cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
    lockstep_test(${name} ptx SOURCES ${ARG_SOURCES} LIBRARIES ${ARG_LIBRARIES} lockstep_cuda_ptx TIMEOUT 600)
    target_compile_definitions(test_ptx_${name} PRIVATE LOCKSTEP_TEST_PTX=1)
    lockstep_ptx_runs(${name} 90)
    if("80" IN_LIST LOCKSTEP_PTX_ARCHITECTURES)
        add_test(NAME ptx/${name}-sm_80 COMMAND test_ptx_${name})
        lockstep_ptx_runs(${name}-sm_80 80)
    endif()
endfunction()

# The stand-in itself, with kernels of its own.
add_library(lockstep_ptx_runtime_kernels OBJECT runtime_kernels.cu)
target_include_directories(lockstep_ptx_runtime_kernels PRIVATE ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(lockstep_ptx_runtime_kernels PRIVATE lockstep_cuda_options)
lockstep_test(runtime ptx SOURCES runtime_test.cpp $<TARGET_OBJECTS:lockstep_ptx_runtime_kernels>
              LIBRARIES lockstep_ptx_runtime)

# The whole program.
add_executable(lockstep_ptx ${PROJECT_SOURCE_DIR}/src/main.cpp)
target_link_libraries(lockstep_ptx PRIVATE lockstep_commands lockstep::train lockstep::layout lockstep_cuda_ptx)
lockstep_program_test(ptx program_test.cpp program PROGRAM lockstep_ptx)
lockstep_ptx_runs(program 90)

# The counts that `make ptx-report` prints. Run as a test, it looks for findings at the sizes of real models.
add_executable(ptx_report report.cpp ${PROJECT_SOURCE_DIR}/bench/gpu_operations.cpp)
target_include_directories(ptx_report PRIVATE ${PROJECT_SOURCE_DIR}/bench)
target_link_libraries(ptx_report PRIVATE lockstep_cuda_ptx CLI11::CLI11)
foreach(architecture IN LISTS LOCKSTEP_PTX_ARCHITECTURES)
    string(REPLACE a "" architecture ${architecture})
    add_test(NAME ptx/training-sizes-sm_${architecture} COMMAND ptx_report)
    set_tests_properties(ptx/training-sizes-sm_${architecture} PROPERTIES LABELS "ptx;long" TIMEOUT 600
                         ENVIRONMENT LOCKSTEP_PTX_ARCHITECTURE=sm_${architecture})
endforeach()
