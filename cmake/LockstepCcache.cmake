# Compiles through ccache where it is installed, so that another checkout or a second build folder takes its objects from
# the cache. Paths below the sources are made relative, else no two checkouts would share an object.
option(LOCKSTEP_CCACHE "Compile through ccache, if it is installed" ON)
if(NOT LOCKSTEP_CCACHE OR CMAKE_CXX_COMPILER_LAUNCHER)
    return()
endif()
find_program(LOCKSTEP_CCACHE_PROGRAM ccache DOC "The compiler cache")
mark_as_advanced(LOCKSTEP_CCACHE_PROGRAM)
if(LOCKSTEP_CCACHE_PROGRAM)
    set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${LOCKSTEP_CCACHE_PROGRAM})
    set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)  # ccache does not cache what is compiled with them
    message(STATUS "Compiler cache: ${LOCKSTEP_CCACHE_PROGRAM}")
endif()
