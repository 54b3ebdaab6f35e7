# lockstep_module(NAME SOURCES a.cpp … DEPENDS base … LIBRARIES PkgConfig::X … REGISTERS symbol …)
# makes the library target lockstep::NAME. DEPENDS names modules below this one. REGISTERS names a symbol in each source
# that registers something by a static object: nothing refers to such a source, so that the linker would leave it out of
# every program.
function(lockstep_module name)
    cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LIBRARIES;REGISTERS" ${ARGN})
    add_library(lockstep_${name} STATIC ${ARG_SOURCES})
    add_library(lockstep::${name} ALIAS lockstep_${name})
    target_link_libraries(lockstep_${name} PUBLIC lockstep_options)
    foreach(dependency IN LISTS ARG_DEPENDS)
        target_link_libraries(lockstep_${name} PUBLIC lockstep::${dependency})
    endforeach()
    target_link_libraries(lockstep_${name} PRIVATE ${ARG_LIBRARIES})
    foreach(symbol IN LISTS ARG_REGISTERS)
        target_link_options(lockstep_${name} INTERFACE "LINKER:-u,${symbol}")
    endforeach()
endfunction()

# lockstep_instruction_set_sources(TARGET ISA a.cpp …): adds files that are compiled for an instruction set, with
# LOCKSTEP_ISA naming it.
function(lockstep_instruction_set_sources target isa)
    set(flags_baseline "")
    set(flags_avx2 -mavx2 -mfma -ffp-contract=fast)
    set(flags_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mprefer-vector-width=512 -ffp-contract=fast)
    set(flags_avx512_bf16 ${flags_avx512} -mavx512bf16)
    set(flags_amx ${flags_avx512_bf16} -mamx-tile -mamx-bf16)
    add_library(${target}_${isa} OBJECT ${ARGN})
    target_link_libraries(${target}_${isa} PRIVATE lockstep_options)
    if(flags_${isa} MATCHES "-ffp-contract=fast")
        set_target_properties(${target}_${isa} PROPERTIES LOCKSTEP_FUSED_MULTIPLY_ADD ON)
    endif()
    target_compile_definitions(${target}_${isa} PRIVATE LOCKSTEP_ISA=${isa})
    target_compile_options(${target}_${isa} PRIVATE -O3 -fopenmp-simd -fno-math-errno -fno-trapping-math ${flags_${isa}})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_${isa}>)
endfunction()

# lockstep_vector_sources(TARGET a.cpp …): the same for each instruction set that vector code has; the one to run is
# chosen at run time (kernels/cpu/vector/vector.hpp).
function(lockstep_vector_sources target)
    set(instruction_sets baseline)
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
        list(APPEND instruction_sets avx2 avx512)
        target_compile_definitions(${target} PRIVATE LOCKSTEP_X86=1)
    endif()
    foreach(isa IN LISTS instruction_sets)
        lockstep_instruction_set_sources(${target} ${isa} ${ARGN})
    endforeach()
endfunction()
