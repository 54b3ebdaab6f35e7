lockstep_test(checkpoint mpi SOURCES checkpoint_test.cpp LIBRARIES lockstep::checkpoint RANKS 1 2 3 4)
