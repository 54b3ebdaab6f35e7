# lockstep::cuda: what declares itself in device/gpu.hpp, kernels/cuda.hpp and cluster/gpu_communicator.hpp, for GPUs, or
# saying that this build has none. It is above lockstep::kernels; programs link it, modules do not, so that tests may link the emulation instead
# (tests/cuda, tests/operations).
#
# Every file of these folders belongs to it; the emulation compiles the same list.
file(GLOB cuda_sources CONFIGURE_DEPENDS
    ${CMAKE_CURRENT_SOURCE_DIR}/cluster/cuda/*.cpp
    ${CMAKE_CURRENT_SOURCE_DIR}/device/cuda/*.cpp
    ${CMAKE_CURRENT_SOURCE_DIR}/kernels/cuda/*.cpp
    ${CMAKE_CURRENT_SOURCE_DIR}/kernels/cuda/*.cu)
set(cuda_absent_sources ${CMAKE_CURRENT_SOURCE_DIR}/cluster/gpu_communicator_absent.cpp
                        ${CMAKE_CURRENT_SOURCE_DIR}/device/gpu_absent.cpp
                        ${CMAKE_CURRENT_SOURCE_DIR}/kernels/cuda/absent.cpp)
list(REMOVE_ITEM cuda_sources ${cuda_absent_sources})
set_property(GLOBAL PROPERTY LOCKSTEP_CUDA_SOURCES ${cuda_sources})
set(kernel_sources ${cuda_sources})
list(FILTER kernel_sources INCLUDE REGEX "\\.cu$")
set(host_sources ${cuda_sources})
list(FILTER host_sources EXCLUDE REGEX "\\.cu$")

if(LOCKSTEP_HAS_CUDA)
    # The kernels apart: the tests that run PTX link the same objects.
    add_library(lockstep_cuda_kernels OBJECT ${kernel_sources})
    target_link_libraries(lockstep_cuda_kernels PRIVATE lockstep::kernels lockstep_cuda_toolkit lockstep_cuda_options)
    add_library(lockstep_cuda STATIC ${host_sources} $<TARGET_OBJECTS:lockstep_cuda_kernels>)
    target_link_libraries(lockstep_cuda PUBLIC lockstep::kernels lockstep::cluster lockstep_cuda_toolkit
                                        PRIVATE MPI::MPI_C)
else()
    add_library(lockstep_cuda STATIC ${cuda_absent_sources})
    target_link_libraries(lockstep_cuda PUBLIC lockstep::kernels lockstep::cluster)
endif()
add_library(lockstep::cuda ALIAS lockstep_cuda)

# The target cuda-report: the kernels as PTX, with the flags of the library, assembled once more for what ptxas says;
# cuda-report-90a and so on are of one architecture.
if(LOCKSTEP_HAS_CUDA AND kernel_sources)
    get_filename_component(cuda_programs ${CMAKE_CUDA_COMPILER} DIRECTORY)
    find_program(LOCKSTEP_PTXAS ptxas HINTS ${cuda_programs} REQUIRED DOC "NVIDIA's assembler")
    include(ProcessorCount)
    ProcessorCount(processors)
    function(lockstep_cuda_report name)
        add_custom_target(${name}
            COMMAND ${PROJECT_SOURCE_DIR}/tools/cuda_report --ptxas ${LOCKSTEP_PTXAS} --jobs ${processors}
                    --allow ${PROJECT_SOURCE_DIR}/tools/cuda_report.allow --out ${PROJECT_BINARY_DIR}/${name}.txt ${ARGN}
            DEPENDS ${ARGN}
            COMMAND_EXPAND_LISTS VERBATIM)
    endfunction()
    set(kernel_ptx "")
    if(LOCKSTEP_CUDA_ARCHITECTURES STREQUAL "AUTO")
        set(architectures ${all_architectures})
    endif()
    foreach(architecture IN LISTS architectures)
        string(REGEX REPLACE "-.*" "" architecture ${architecture})
        set(target lockstep_cuda_ptx_${architecture})
        add_library(${target} OBJECT EXCLUDE_FROM_ALL ${kernel_sources})
        set_target_properties(${target} PROPERTIES CUDA_PTX_COMPILATION ON CUDA_ARCHITECTURES ${architecture}-virtual)
        target_link_libraries(${target} PRIVATE lockstep::kernels lockstep_cuda_toolkit lockstep_cuda_options)
        lockstep_cuda_report(cuda-report-${architecture} $<TARGET_OBJECTS:${target}>)
        list(APPEND kernel_ptx $<TARGET_OBJECTS:${target}>)
    endforeach()
    lockstep_cuda_report(cuda-report ${kernel_ptx})
endif()
