// Memory-bound kernels: 16-byte accesses, several in flight per thread.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "kernels/cuda/element.hpp"
#include "kernels/cuda/hardware.hpp"
#include "kernels/cuda/launch.hpp"

namespace lockstep::kernels::cuda {

// n neighbouring elements in one access; n · sizeof(T) is 2, 4, 8 or 16, and the address a multiple of it.
template <class T, int n>
struct alignas(sizeof(T) * n) Pack {
    T at[n];
};
template <int n, class T>
__device__ inline Pack<T, n> load_pack(const T* from) {
    return *reinterpret_cast<const Pack<T, n>*>(from);
}
template <class T, int n>
__device__ inline void store_pack(T* to, const Pack<T, n>& value) {
    *reinterpret_cast<Pack<T, n>*>(to) = value;
}

// Rounded, in accesses of at most 16 bytes; aligned as those. 16-bit elements are joined here: what the compiler joins
// by itself it may also store one by one.
template <class T, int n>
__device__ inline void store_floats(T* to, const float (&values)[n]) {
    if constexpr (sizeof(T) == 2 && n % 2 == 0) {
        Pack<std::uint32_t, n / 2> pairs;
#pragma unroll
        for (int i = 0; i < n / 2; ++i) pairs.at[i] = pack_pair<T>(values[2 * i], values[2 * i + 1]);
        store_pack(reinterpret_cast<std::uint32_t*>(to), pairs);
    } else {
        constexpr int piece = n % 4 == 0 ? 4 : n % 2 == 0 ? 2 : 1;
#pragma unroll
        for (int i = 0; i < n; i += piece) {
            Pack<T, piece> pack;
#pragma unroll
            for (int e = 0; e < piece; ++e) pack.at[e] = from_float<T>(values[i + e]);
            store_pack(to + i, pack);
        }
    }
}

// Elements per pack, whose widest type takes 16 bytes.
template <class... T>
constexpr int pack_width() {
    std::size_t widest = 1;
    for (const std::size_t bytes : {sizeof(T)...}) widest = bytes > widest ? bytes : widest;
    return static_cast<int>(16 / widest);
}

// Whether rows of `width` elements and all pointers allow packs of `pack` elements.
template <class... T>
bool aligned_for(int pack, std::int64_t width, const T*... pointers) {
    bool aligned = width % pack == 0;
    ((aligned =
          aligned && reinterpret_cast<std::uintptr_t>(pointers) % (sizeof(T) * static_cast<std::size_t>(pack)) == 0),
     ...);
    return aligned;
}

// An elementwise operation, outputs[o][i] = operation(inputs[0][i], inputs[1][i], …)[o], in fp32. An output may alias
// an input: each element is written by the thread that read it.
template <class Out, int outputs, class In, int inputs>
struct Operands {
    Out* out[outputs];
    const In* in[inputs];
};

constexpr unsigned map_threads = 256;
template <int inputs>
constexpr int map_pieces() {  // packs of each input loaded before the first is used
    return inputs == 1 ? 4 : 2;
}

template <class Out, int outputs, class In, int inputs, class Operation>
__global__ void __launch_bounds__(map_threads)
    map_kernel(Operands<Out, outputs, In, inputs> at, std::int64_t count, bool aligned, Operation operation) {
    constexpr int width = pack_width<Out, In>(), pieces = map_pieces<inputs>();
    constexpr std::int64_t tile = static_cast<std::int64_t>(map_threads) * width * pieces;
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * tile;
    const int thread = static_cast<int>(threadIdx.x);
    const auto apply = [&](const float(&x)[inputs], float(&y)[outputs]) { operation(x, y); };
    if (aligned && first + tile <= count) {
        Pack<In, width> in[pieces][inputs];
#pragma unroll
        for (int p = 0; p < pieces; ++p)
#pragma unroll
            for (int k = 0; k < inputs; ++k)
                in[p][k] = load_pack<width>(at.in[k] + first + (p * static_cast<int>(map_threads) + thread) * width);
#pragma unroll
        for (int p = 0; p < pieces; ++p) {
            Pack<Out, width> out[outputs];
#pragma unroll
            for (int e = 0; e < width; ++e) {
                float x[inputs], y[outputs];
#pragma unroll
                for (int k = 0; k < inputs; ++k) x[k] = to_float(in[p][k].at[e]);
                apply(x, y);
#pragma unroll
                for (int k = 0; k < outputs; ++k) out[k].at[e] = from_float<Out>(y[k]);
            }
#pragma unroll
            for (int k = 0; k < outputs; ++k)
                store_pack(at.out[k] + first + (p * static_cast<int>(map_threads) + thread) * width, out[k]);
        }
        return;
    }
    const std::int64_t last = first + tile < count ? first + tile : count;
#pragma unroll 2
    for (std::int64_t i = first + thread; i < last; i += map_threads) {
        float x[inputs], y[outputs];
#pragma unroll
        for (int k = 0; k < inputs; ++k) x[k] = to_float(at.in[k][i]);
        apply(x, y);
#pragma unroll
        for (int k = 0; k < outputs; ++k) at.out[k][i] = from_float<Out>(y[k]);
    }
}

template <class Out, int outputs, class In, int inputs, class Operation>
void map(const char* name, cudaStream_t stream, std::int64_t count, const Operands<Out, outputs, In, inputs>& at,
         Operation operation) {
    constexpr int width = pack_width<Out, In>();
    constexpr std::int64_t tile = static_cast<std::int64_t>(map_threads) * width * map_pieces<inputs>();
    bool aligned = true;
    for (const Out* pointer : at.out) aligned = aligned && aligned_for(width, 0, pointer);
    for (const In* pointer : at.in) aligned = aligned && aligned_for(width, 0, pointer);
    launch({name, dim3(blocks_for(count, tile)), map_threads, 0, stream},
           map_kernel<Out, outputs, In, inputs, Operation>, at, count, aligned, operation);
}

}  // namespace lockstep::kernels::cuda
