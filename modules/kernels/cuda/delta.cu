// CudaBackend's gated delta rule: three kernels forward and backward. (I + A)⁻¹ of all chunks at once; the scan over
// the chunks, which only passes the state on; the gradients of all chunks at once. Chunks are solved as in Yang et al.
// 2024 (arXiv:2406.06484), with decays.
#include "kernels/cuda/delta.hpp"

#include "base/error.hpp"
#include "kernels/cuda/cuda_backend.hpp"

namespace lockstep::kernels::cuda {
namespace {

std::int64_t rounded_up(std::size_t bytes) {
    return static_cast<std::int64_t>((bytes + 255) / 256 * 256);
}

float* floats_of(const Tensor& tensor) {
    return tensor.empty() ? nullptr : tensor.fp32();
}

DeltaArguments common_arguments(const DeltaShape& shape, const Tensor& q, const Tensor& k, const Tensor& v,
                                const Tensor& log_decay, const Tensor& strength, const Tensor& initial) {
    LOCKSTEP_ASSERT(shape.valid() && shape.key_width <= delta_widest_key_on_gpu);
    const std::int64_t rows = shape.batch * shape.length,
                       states = shape.batch * shape.heads * shape.key_width * shape.value_width;
    for (const Tensor& tensor : {q, k})
        LOCKSTEP_ASSERT(tensor.type() == q.type() && tensor.rows() == rows &&
                        tensor.size(-1) == shape.key_heads * shape.key_width);
    LOCKSTEP_ASSERT(v.type() == q.type() && v.rows() == rows && v.size(-1) == shape.heads * shape.value_width);
    LOCKSTEP_ASSERT(log_decay.count() == rows * shape.heads && strength.count() == log_decay.count());
    LOCKSTEP_ASSERT(initial.empty() || initial.count() == states);
    DeltaArguments arguments{};
    arguments.shape = shape;
    arguments.q = q;
    arguments.k = k;
    arguments.v = v;
    arguments.log_decay = log_decay.fp32();
    arguments.strength = strength.fp32();
    arguments.initial = floats_of(initial);
    return arguments;
}

}  // namespace

std::int64_t CudaBackend::delta_saved_count(const DeltaShape& shape, Type type) const {
    return delta_gpu_saved_count(shape, type);
}

void CudaBackend::delta_forward(Tensor y, Tensor saved, Tensor q, Tensor k, Tensor v, Tensor log_decay, Tensor strength,
                                Tensor initial, Tensor final_state, const DeltaShape& shape) {
    DeltaArguments arguments = common_arguments(shape, q, k, v, log_decay, strength, initial);
    LOCKSTEP_ASSERT(y.type() == q.type() && y.shape() == v.shape());
    if (!saved.empty()) LOCKSTEP_ASSERT(saved.count() >= delta_saved_count(shape, q.type()));
    arguments.y = y;
    arguments.saved = floats_of(saved);
    arguments.final_state = floats_of(final_state);
    arguments.stream = stream();
    arguments.inverses = scratch(delta_inverse_bytes(shape, q.type()));
    delta_invert(arguments, q.type());
    delta_scan(arguments, q.type());
}

void CudaBackend::delta_backward(Tensor dq, Tensor dk, Tensor dv, Tensor dlog_decay, Tensor dstrength, Tensor dinitial,
                                 Tensor dy, Tensor saved, Tensor q, Tensor k, Tensor v, Tensor log_decay,
                                 Tensor strength, Tensor initial, Tensor dfinal, const DeltaShape& shape) {
    DeltaArguments arguments = common_arguments(shape, q, k, v, log_decay, strength, initial);
    for (const Tensor& tensor : {dq, dk}) LOCKSTEP_ASSERT(tensor.type() == q.type() && tensor.shape() == q.shape());
    for (const Tensor& tensor : {dv, dy}) LOCKSTEP_ASSERT(tensor.type() == q.type() && tensor.shape() == v.shape());
    LOCKSTEP_ASSERT(dlog_decay.count() == log_decay.count() && dstrength.count() == log_decay.count() &&
                    saved.count() >= delta_saved_count(shape, q.type()) && dinitial.empty() == initial.empty());
    arguments.dq = dq;
    arguments.dk = dk;
    arguments.dv = dv;
    arguments.dy = dy;
    arguments.dlog_decay = dlog_decay.fp32();
    arguments.dstrength = dstrength.fp32();
    arguments.dinitial = floats_of(dinitial);
    arguments.dfinal = floats_of(dfinal);
    arguments.saved = saved.fp32();
    arguments.stream = stream();
    const bool shares_keys = shape.heads > shape.key_heads;
    const std::int64_t inverses = rounded_up(delta_inverse_bytes(shape, q.type()));
    const std::int64_t states = rounded_up(static_cast<std::size_t>(delta_gpu_state_bytes(shape, q.type())));
    const std::int64_t heads = shape.batch * shape.length * shape.heads * shape.key_width;
    char* const memory =
        scratch_of<char>(inverses + states + (shares_keys ? 2 * heads * static_cast<std::int64_t>(sizeof(float)) : 0));
    arguments.inverses = memory;
    arguments.dstates = memory + inverses;
    if (shares_keys) {
        arguments.head_dq = reinterpret_cast<float*>(memory + inverses + states);
        arguments.head_dk = arguments.head_dq + heads;
    }
    delta_invert(arguments, q.type());
    delta_scan_back(arguments, q.type());
    cuda::delta_gradients(arguments, q.type());
    if (shares_keys) delta_add_heads(arguments, q.type());
}

}  // namespace lockstep::kernels::cuda
