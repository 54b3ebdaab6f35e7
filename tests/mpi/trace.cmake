if(TARGET lockstep::trace)
    lockstep_test(trace mpi SOURCES trace_test.cpp LIBRARIES lockstep::trace RANKS 1 2 3 4)
endif()
