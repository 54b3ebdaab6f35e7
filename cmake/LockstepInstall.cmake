# The programs, and the documents with the relative places they have in the repository, so that their links lead somewhere.
include(GNUInstallDirs)
install(TARGETS lockstep lockstep-analyze RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs ${PROJECT_SOURCE_DIR}/jobs DESTINATION ${CMAKE_INSTALL_DOCDIR}
        USE_SOURCE_PERMISSIONS)
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CONTRIBUTING.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md
              ${PROJECT_SOURCE_DIR}/SUPPORT.md ${PROJECT_SOURCE_DIR}/CITATION.cff ${PROJECT_SOURCE_DIR}/LICENSE
        DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${PROJECT_SOURCE_DIR}/checkpoints/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/checkpoints)

# The job scripts name the programs in a build folder; those that are installed name the installed programs. They are copied
# and edited by users, so that a path relative to the script would not last.
install(CODE "
    set(bin \"${CMAKE_INSTALL_BINDIR}\")
    set(jobs \"${CMAKE_INSTALL_DOCDIR}/jobs\")")
install(CODE [[
    get_filename_component(bin "${bin}" ABSOLUTE BASE_DIR "${CMAKE_INSTALL_PREFIX}")
    get_filename_component(jobs "${jobs}" ABSOLUTE BASE_DIR "${CMAKE_INSTALL_PREFIX}")
    file(GLOB_RECURSE files "$ENV{DESTDIR}${jobs}/*")
    if(NOT files)
        message(FATAL_ERROR "there are no job scripts in $ENV{DESTDIR}${jobs}")
    endif()
    foreach(file IN LISTS files)
        file(READ "${file}" text)
        string(REGEX REPLACE "([$]PWD/|[$]here/[.][.]/|[.][.]/)?build/bin" "${bin}" installed "${text}")
        if(NOT installed STREQUAL text)
            file(WRITE "${file}" "${installed}")
        endif()
    endforeach()]])

# Man pages and completion come from the programs' own options. A program that does not run here (compiled for another
# machine) leaves them out.
foreach(program lockstep lockstep-analyze)
    foreach(page "man/man1/${program}.1:--man" "bash-completion/completions/${program}:--completion=bash"
                 "zsh/site-functions/_${program}:--completion=zsh" "fish/vendor_completions.d/${program}.fish:--completion=fish")
        string(REGEX MATCH "^([^:]*):(.*)$" matched "${page}")
        install(CODE "
            set(file \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATAROOTDIR}/${CMAKE_MATCH_1}\")
            get_filename_component(folder \"\${file}\" DIRECTORY)
            file(MAKE_DIRECTORY \"\${folder}\")
            execute_process(COMMAND \"$<TARGET_FILE:${program}>\" help ${CMAKE_MATCH_2} OUTPUT_FILE \"\${file}\"
                            RESULT_VARIABLE result ERROR_VARIABLE problem)
            if(result EQUAL 0)
                message(STATUS \"Installing: \${file}\")
            else()
                file(REMOVE \"\${file}\")
                message(WARNING \"\${file} is left out: ${program} does not run here: \${result} \${problem}\")
            endif()")
    endforeach()
endforeach()
