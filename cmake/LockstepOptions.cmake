# Compiler flags that every target of the project shares; those of .cu files are in LockstepCuda.cmake.
add_library(lockstep_options INTERFACE)
target_include_directories(lockstep_options INTERFACE ${PROJECT_SOURCE_DIR}/modules)
function(lockstep_cxx_options)
    target_compile_options(lockstep_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${ARGN}>")
endfunction()
lockstep_cxx_options(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
                     -Woverloaded-virtual)
# Sums are rounded as written, but for the targets that ask otherwise (the vector code, cmake/LockstepModule.cmake).
lockstep_cxx_options($<$<NOT:$<BOOL:$<TARGET_PROPERTY:LOCKSTEP_FUSED_MULTIPLY_ADD>>>:-ffp-contract=off>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ 12 takes std::string::insert for overlapping copies (GCC bug 105651).
    lockstep_cxx_options(-Wno-restrict)
endif()
if(LOCKSTEP_WARNINGS_AS_ERRORS)
    lockstep_cxx_options(-Werror)
endif()
# lockstep_little_optimised(TARGET [files …]): of code that takes long to compile and none to run, such as that of CLI11.
function(lockstep_little_optimised target)
    if(CMAKE_BUILD_TYPE MATCHES "^Rel")
        if(ARGN)
            set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS -O1)
        else()
            target_compile_options(${target} PRIVATE -O1)
        endif()
    endif()
endfunction()
if(LOCKSTEP_SANITIZE)
    # GCC 12 takes what the sanitizers add to std::function for uses of uninitialized memory.
    lockstep_cxx_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
                         -Wno-maybe-uninitialized)
    target_link_options(lockstep_options INTERFACE -fsanitize=address,undefined)
endif()
# The modules are instrumented like the targets, so that libFuzzer sees which of their code an input reaches, and for
# llvm-cov, which tells how many of their lines that is.
if(LOCKSTEP_FUZZ)
    if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
        message(FATAL_ERROR "LOCKSTEP_FUZZ needs clang, which brings libFuzzer; this compiler is ${CMAKE_CXX_COMPILER}. "
                            "Configure with: cmake --preset fuzz, or -DCMAKE_CXX_COMPILER=clang++.")
    endif()
    lockstep_cxx_options(-fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=undefined
                         -fno-omit-frame-pointer -fprofile-instr-generate -fcoverage-mapping)
    # Instrumented loops are not vectorized, and need not be.
    lockstep_cxx_options(-Wno-pass-failed)
    target_link_options(lockstep_options INTERFACE -fsanitize=address,undefined -fprofile-instr-generate)
endif()
if(LOCKSTEP_TESTS)
    target_compile_definitions(lockstep_options INTERFACE LOCKSTEP_FAULT_INJECTION=1)
endif()
