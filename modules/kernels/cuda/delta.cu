// CudaBackend's gated delta rule. Forward: (I + A)⁻¹ of all chunks at once, then the scan over them. Backward: the
// inverses again, the scan back, which only passes the state's gradient on, then all other gradients at once. Chunks
// are solved as in Yang et al. 2024 (arXiv:2406.06484), with decays.
#include "kernels/cuda/delta.hpp"

#include "base/error.hpp"
#include "kernels/cuda/cuda_backend.hpp"

namespace lockstep::kernels::cuda {
namespace {

float* floats_of(const Tensor& tensor) {
    return tensor.empty() ? nullptr : tensor.fp32();
}

void check_states(const Tensor& states, const DeltaShape& shape) {  // may be empty
    LOCKSTEP_ASSERT(states.empty() ||
                    states.count() == shape.batch * shape.heads * shape.key_width * shape.value_width);
}

DeltaArguments common_arguments(const DeltaShape& shape, const Tensor& q, const Tensor& k, const Tensor& v,
                                const Tensor& log_decay, const Tensor& strength, const Tensor& initial) {
    LOCKSTEP_ASSERT(shape.valid() && shape.key_width <= delta_widest_key_on_gpu);
    const std::int64_t rows = shape.batch * shape.length;
    for (const Tensor& tensor : {q, k})
        LOCKSTEP_ASSERT(tensor.type() == q.type() && tensor.rows() == rows &&
                        tensor.size(-1) == shape.key_heads * shape.key_width);
    LOCKSTEP_ASSERT(v.type() == q.type() && v.rows() == rows && v.size(-1) == shape.heads * shape.value_width);
    LOCKSTEP_ASSERT(log_decay.count() == rows * shape.heads && strength.count() == log_decay.count());
    check_states(initial, shape);
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
    check_states(final_state, shape);
    LOCKSTEP_ASSERT(saved.empty() || final_state.empty() || initial.empty() || final_state.data() != initial.data());
    if (!saved.empty()) LOCKSTEP_ASSERT(saved.count() >= delta_saved_count(shape, q.type()));
    arguments.y = y;
    arguments.saved = floats_of(saved);
    arguments.final_state = floats_of(final_state);
    arguments.stream = stream();
    // At once what backward takes, since memory that was too small is kept too.
    const DeltaGpuScratch bytes = delta_gpu_scratch(shape, q.type());
    arguments.inverses = scratch(static_cast<std::size_t>(saved.empty() ? bytes.inverses : bytes.all()));
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
    check_states(dinitial, shape);
    check_states(dfinal, shape);
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
    const DeltaGpuScratch bytes = delta_gpu_scratch(shape, q.type());
    char* const memory = scratch_of<char>(bytes.all());
    arguments.inverses = memory;
    arguments.dstates = memory + bytes.inverses;
    if (shares_keys) {
        arguments.head_dq = reinterpret_cast<float*>(memory + bytes.inverses + bytes.dstates);
        arguments.head_dk = reinterpret_cast<float*>(memory + bytes.inverses + bytes.dstates + bytes.dkeys);
    }
    delta_invert(arguments, q.type());
    delta_scan_back(arguments, q.type());
    cuda::delta_gradients(arguments, q.type());
    if (shares_keys) delta_add_heads(arguments, q.type());
}

}  // namespace lockstep::kernels::cuda
