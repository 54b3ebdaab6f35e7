// One operation on the sources of all lanes. Inlined into functions that are compiled for several instruction sets.
#pragma once

#include "ptx/state.hpp"

#define LOCKSTEP_PTX_INLINE __attribute__((always_inline)) inline

namespace lockstep::ptx {

template <class T, class F>
LOCKSTEP_PTX_INLINE void one_source(Lanes& x, const Instruction& i, F f) {
    const T* const a = x.in<T>(i.a);
    T result[lane_count];
    for (int lane = 0; lane < lane_count; ++lane) result[lane] = f(a[lane]);
    x.put(i.d, result);
}
template <class T, class F>
LOCKSTEP_PTX_INLINE void two_sources(Lanes& x, const Instruction& i, F f) {
    const T *const a = x.in<T>(i.a), *const b = x.in<T>(i.b);
    T result[lane_count];
    for (int lane = 0; lane < lane_count; ++lane) result[lane] = f(a[lane], b[lane]);
    x.put(i.d, result);
}
template <class T, class F>
LOCKSTEP_PTX_INLINE void three_sources(Lanes& x, const Instruction& i, F f) {
    const T *const a = x.in<T>(i.a), *const b = x.in<T>(i.b), *const c = x.in<T>(i.c);
    T result[lane_count];
    for (int lane = 0; lane < lane_count; ++lane) result[lane] = f(a[lane], b[lane], c[lane]);
    x.put(i.d, result);
}

}  // namespace lockstep::ptx
