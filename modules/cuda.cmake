# lockstep::cuda: what declares itself in device/gpu.hpp and kernels/cuda.hpp, for GPUs, or saying that this build has
# none. It is above lockstep::kernels; programs link it, modules do not, so that tests may link the emulation instead
# (tests/cuda).
#
# Every file of these folders belongs to it; the emulation compiles the same list.
file(GLOB cuda_sources CONFIGURE_DEPENDS
    ${CMAKE_CURRENT_SOURCE_DIR}/device/cuda/*.cpp
    ${CMAKE_CURRENT_SOURCE_DIR}/kernels/cuda/*.cpp
    ${CMAKE_CURRENT_SOURCE_DIR}/kernels/cuda/*.cu)
set(cuda_absent_sources ${CMAKE_CURRENT_SOURCE_DIR}/device/gpu_absent.cpp
                        ${CMAKE_CURRENT_SOURCE_DIR}/kernels/cuda/absent.cpp)
list(REMOVE_ITEM cuda_sources ${cuda_absent_sources})
set_property(GLOBAL PROPERTY LOCKSTEP_CUDA_SOURCES ${cuda_sources})

if(LOCKSTEP_HAS_CUDA)
    add_library(lockstep_cuda STATIC ${cuda_sources})
    target_link_libraries(lockstep_cuda PUBLIC lockstep::kernels lockstep_cuda_toolkit PRIVATE lockstep_cuda_options)
else()
    add_library(lockstep_cuda STATIC ${cuda_absent_sources})
    target_link_libraries(lockstep_cuda PUBLIC lockstep::kernels)
endif()
add_library(lockstep::cuda ALIAS lockstep_cuda)
