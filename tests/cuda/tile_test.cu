// The test for the GPU itself: its kernels need nvcc.
#include "cuda/tile_test.cpp"
