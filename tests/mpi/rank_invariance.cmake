if(TARGET lockstep::model AND TARGET lockstep::cluster)
    lockstep_test(rank-invariance mpi SOURCES rank_invariance_test.cpp LIBRARIES lockstep::model lockstep::cluster
                  RANKS 1 2 3 4)
endif()
