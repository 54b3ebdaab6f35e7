lockstep_test(kernels_ttt unit SOURCES ttt_test.cpp LIBRARIES lockstep::kernels)
