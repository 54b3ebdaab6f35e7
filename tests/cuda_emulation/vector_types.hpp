// CUDA's short vectors and dim3, with CUDA's sizes and alignments.
#pragma once

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_size = 1, unsigned y_size = 1, unsigned z_size = 1) : x(x_size), y(y_size), z(z_size) {}
};

// LOCKSTEP_VECTORS(float, float, 4): float2, float3, float4 and their make_ functions; the last is the alignment of 4.
#define LOCKSTEP_VECTORS(name, element, alignment4)                                \
    struct alignas(2 * sizeof(element)) name##2 {                                  \
        element x, y;                                                              \
    };                                                                             \
    struct name##3 {                                                               \
        element x, y, z;                                                           \
    };                                                                             \
    struct alignas(alignment4) name##4 {                                           \
        element x, y, z, w;                                                        \
    };                                                                             \
    constexpr name##2 make_##name##2(element x, element y) {                       \
        return {x, y};                                                             \
    }                                                                              \
    constexpr name##3 make_##name##3(element x, element y, element z) {            \
        return {x, y, z};                                                          \
    }                                                                              \
    constexpr name##4 make_##name##4(element x, element y, element z, element w) { \
        return {x, y, z, w};                                                       \
    }                                                                              \
    static_assert(alignof(name##4) == (alignment4))

LOCKSTEP_VECTORS(char, signed char, 4);
LOCKSTEP_VECTORS(uchar, unsigned char, 4);
LOCKSTEP_VECTORS(short, short, 8);
LOCKSTEP_VECTORS(ushort, unsigned short, 8);
LOCKSTEP_VECTORS(int, int, 16);
LOCKSTEP_VECTORS(uint, unsigned, 16);
LOCKSTEP_VECTORS(longlong, long long, 16);
LOCKSTEP_VECTORS(ulonglong, unsigned long long, 16);
LOCKSTEP_VECTORS(float, float, 16);
LOCKSTEP_VECTORS(double, double, 16);
#undef LOCKSTEP_VECTORS
