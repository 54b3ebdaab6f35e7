# Compiler flags that every target of the project shares.
add_library(lockstep_options INTERFACE)
target_include_directories(lockstep_options INTERFACE ${PROJECT_SOURCE_DIR}/modules)
target_compile_options(lockstep_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
                                                 -Wnon-virtual-dtor -Woverloaded-virtual)
# Sums are rounded as written, but for the targets that ask otherwise (the vector code, cmake/LockstepModule.cmake).
target_compile_options(lockstep_options INTERFACE
    $<$<NOT:$<BOOL:$<TARGET_PROPERTY:LOCKSTEP_FUSED_MULTIPLY_ADD>>>:-ffp-contract=off>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ 12 takes std::string::insert for overlapping copies (GCC bug 105651).
    target_compile_options(lockstep_options INTERFACE -Wno-restrict)
endif()
if(LOCKSTEP_WARNINGS_AS_ERRORS)
    target_compile_options(lockstep_options INTERFACE -Werror)
endif()
if(LOCKSTEP_SANITIZE)
    target_compile_options(lockstep_options INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=undefined
                                                     -fno-omit-frame-pointer)
    target_link_options(lockstep_options INTERFACE -fsanitize=address,undefined)
endif()
if(LOCKSTEP_TESTS)
    target_compile_definitions(lockstep_options INTERFACE LOCKSTEP_FAULT_INJECTION=1)
endif()
