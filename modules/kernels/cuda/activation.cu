// Activations. All are memory-bound.
#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/functions.hpp"
#include "kernels/cuda/pack.hpp"

namespace lockstep::kernels::cuda {
namespace {

struct GeluForward {
    __device__ void operator()(const float (&x)[1], float (&y)[1]) const { y[0] = gelu(x[0]); }
};
struct GeluBackward {  // of (dy, x)
    __device__ void operator()(const float (&x)[2], float (&y)[1]) const {
        y[0] = x[0] * gelu_with_derivative(x[1]).derivative;
    }
};
struct SiluForward {
    __device__ void operator()(const float (&x)[1], float (&y)[1]) const { y[0] = silu(x[0]); }
};
struct SiluBackward {  // of (dy, x)
    __device__ void operator()(const float (&x)[2], float (&y)[1]) const {
        y[0] = x[0] * silu_with_derivative(x[1]).derivative;
    }
};
struct Swiglu {  // of (gate, up)
    static constexpr const char *forward = "swiglu_forward", *backward = "swiglu_backward";
    __device__ static WithDerivative function(float gate) { return silu_with_derivative(gate); }
    __device__ void operator()(const float (&x)[2], float (&y)[1]) const { y[0] = silu(x[0]) * x[1]; }
};
struct GeluGate {
    static constexpr const char *forward = "gelu_gate_forward", *backward = "gelu_gate_backward";
    __device__ static WithDerivative function(float gate) { return gelu_with_derivative(gate); }
    __device__ void operator()(const float (&x)[2], float (&y)[1]) const { y[0] = gelu(x[0]) * x[1]; }
};
template <class Gated>
struct GatedBackward {  // (dgate, dup) of (dy, gate, up)
    __device__ void operator()(const float (&x)[3], float (&y)[2]) const {
        const WithDerivative f = Gated::function(x[1]);
        y[0] = x[0] * x[2] * f.derivative;
        y[1] = x[0] * f.value;
    }
};

bool alike(const Tensor& a, const Tensor& b) {
    return a.type() == b.type() && a.count() == b.count();
}

template <class Curve>
void curve_forward(const char* name, cudaStream_t stream, const Tensor& y, const Tensor& x, Curve curve) {
    LOCKSTEP_ASSERT(alike(y, x));
    dispatch(x.type(), [&](auto element) {
        using T = decltype(element);
        map(name, stream, x.count(), Operands<T, 1, T, 1>{{elements<T>(y)}, {elements<T>(x)}}, curve);
    });
}

template <class Curve>
void curve_backward(const char* name, cudaStream_t stream, const Tensor& dx, const Tensor& dy, const Tensor& x,
                    Curve curve) {
    LOCKSTEP_ASSERT(alike(dx, x) && alike(dy, x));
    dispatch(x.type(), [&](auto element) {
        using T = decltype(element);
        map(name, stream, x.count(), Operands<T, 1, T, 2>{{elements<T>(dx)}, {elements<T>(dy), elements<T>(x)}}, curve);
    });
}

template <class Gated>
void gated_forward(cudaStream_t stream, const Tensor& y, const Tensor& gate, const Tensor& up) {
    LOCKSTEP_ASSERT(alike(y, gate) && alike(y, up));
    dispatch(y.type(), [&](auto element) {
        using T = decltype(element);
        map(Gated::forward, stream, y.count(),
            Operands<T, 1, T, 2>{{elements<T>(y)}, {elements<T>(gate), elements<T>(up)}}, Gated());
    });
}

template <class Gated>
void gated_backward(cudaStream_t stream, const Tensor& dgate, const Tensor& dup, const Tensor& dy, const Tensor& gate,
                    const Tensor& up) {
    LOCKSTEP_ASSERT(alike(dgate, dy) && alike(dup, dy) && alike(gate, dy) && alike(up, dy));
    dispatch(dy.type(), [&](auto element) {
        using T = decltype(element);
        map(Gated::backward, stream, dy.count(),
            Operands<T, 2, T, 3>{{elements<T>(dgate), elements<T>(dup)},
                                 {elements<T>(dy), elements<T>(gate), elements<T>(up)}},
            GatedBackward<Gated>());
    });
}

}  // namespace

void CudaBackend::gelu_forward(Tensor y, Tensor x) {
    curve_forward("gelu_forward", stream(), y, x, GeluForward());
}

void CudaBackend::gelu_backward(Tensor dx, Tensor dy, Tensor x) {
    curve_backward("gelu_backward", stream(), dx, dy, x, GeluBackward());
}

void CudaBackend::silu_forward(Tensor y, Tensor x) {
    curve_forward("silu_forward", stream(), y, x, SiluForward());
}

void CudaBackend::silu_backward(Tensor dx, Tensor dy, Tensor x) {
    curve_backward("silu_backward", stream(), dx, dy, x, SiluBackward());
}

void CudaBackend::swiglu_forward(Tensor y, Tensor gate, Tensor up) {
    gated_forward<Swiglu>(stream(), y, gate, up);
}

void CudaBackend::swiglu_backward(Tensor dgate, Tensor dup, Tensor dy, Tensor gate, Tensor up) {
    gated_backward<Swiglu>(stream(), dgate, dup, dy, gate, up);
}

void CudaBackend::gelu_gate_forward(Tensor y, Tensor gate, Tensor x) {
    gated_forward<GeluGate>(stream(), y, gate, x);
}

void CudaBackend::gelu_gate_backward(Tensor dgate, Tensor dx, Tensor dy, Tensor gate, Tensor x) {
    gated_backward<GeluGate>(stream(), dgate, dx, dy, gate, x);
}

}  // namespace lockstep::kernels::cuda
