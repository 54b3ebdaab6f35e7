# LOCKSTEP_COMMIT: the commit the sources are at, "+" when they differ from it; "unknown" outside a checkout.
set(LOCKSTEP_COMMIT "unknown")
find_package(Git QUIET)
if(GIT_FOUND)
    execute_process(COMMAND ${GIT_EXECUTABLE} -C ${PROJECT_SOURCE_DIR} describe --always --dirty=+ --abbrev=12 --exclude *
                    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE result)
    if(result EQUAL 0)
        set(LOCKSTEP_COMMIT "${commit}")
    endif()
endif()
configure_file(${PROJECT_SOURCE_DIR}/modules/base/version.cpp.in ${PROJECT_BINARY_DIR}/generated/version.cpp @ONLY)
