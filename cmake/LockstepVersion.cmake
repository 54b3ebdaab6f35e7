# LOCKSTEP_COMMIT: the commit the sources are at, "+" when they differ from it; "unknown" where neither git nor an archive says it.
# In a release archive it stands below (.gitattributes) and is believed before git, which in an archive that was unpacked
# inside another repository gives that one's commit.
set(archived "$Format:%H$")
set(LOCKSTEP_COMMIT "unknown")
find_package(Git QUIET)
if(archived MATCHES "^[0-9a-f]+$")
    string(SUBSTRING "${archived}" 0 12 LOCKSTEP_COMMIT)
elseif(GIT_FOUND)
    execute_process(COMMAND ${GIT_EXECUTABLE} -C ${PROJECT_SOURCE_DIR} describe --always --dirty=+ --abbrev=12 --exclude *
                    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE result)
    if(result EQUAL 0)
        set(LOCKSTEP_COMMIT "${commit}")
    endif()
endif()
configure_file(${PROJECT_SOURCE_DIR}/modules/base/version.cpp.in ${PROJECT_BINARY_DIR}/generated/version.cpp @ONLY)
