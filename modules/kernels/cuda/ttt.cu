// CudaBackend's TTT operations: the part common to the linear and mlp inner models.
#include "kernels/cuda/ttt.hpp"

#include "base/error.hpp"
#include "kernels/cuda/cuda_backend.hpp"

namespace lockstep::kernels::cuda {
namespace {

void check_models(const TttCarry& models, const TttShape& shape, std::int64_t count) {
    const std::int64_t narrow = count * shape.head_width, wide = count * shape.hidden();
    LOCKSTEP_ASSERT(models.weight1.count() == narrow * shape.hidden() && models.bias1.count() == wide);
    if (shape.mlp) LOCKSTEP_ASSERT(models.weight2.count() == narrow * shape.hidden() && models.bias2.count() == narrow);
}

void check_learned(const TttInner& inner, const TttShape& shape) {
    check_models({inner.weight1, inner.bias1, inner.weight2, inner.bias2}, shape, shape.heads);
}

void check_norm(const TttInner& inner, const TttShape& shape) {
    const std::int64_t narrow = shape.heads * shape.head_width;
    LOCKSTEP_ASSERT(inner.norm_weight.count() == narrow && inner.norm_bias.count() == narrow);
}

void check_carry(const TttCarry& carry, const TttShape& shape) {
    if (!carry.empty()) check_models(carry, shape, shape.batch * shape.heads);
}

// Of final_state or its gradient: the sequence continues.
void check_final(const TttCarry& carry, const TttShape& shape) {
    check_carry(carry, shape);
    LOCKSTEP_ASSERT(carry.empty() || !shape.documents.joined() || shape.length % shape.mini_batch == 0);
}

// q and what is shaped like it: rows of all heads, side by side.
void check_rows(const Tensor& tensor, Type type, const TttShape& shape) {
    LOCKSTEP_ASSERT(tensor.type() == type && tensor.size(-1) == shape.heads * shape.head_width &&
                    tensor.rows() == shape.batch * shape.length);
}

// Arguments common to all three operations; checks their shapes.
TttArguments common_arguments(const TttShape& shape, const Tensor& q, const Tensor& k, const Tensor& v,
                              const Tensor& step_size, const Tensor& token_scale, const TttInner& inner) {
    LOCKSTEP_ASSERT(shape.batch > 0 && shape.length > 0 && shape.heads > 0 && shape.head_width > 0 &&
                    shape.mini_batch > 0);
    for (const Tensor& tensor : {q, k, v}) check_rows(tensor, q.type(), shape);
    LOCKSTEP_ASSERT(step_size.count() == shape.batch * shape.length * shape.heads &&
                    token_scale.count() == shape.mini_batch);
    check_learned(inner, shape);
    check_norm(inner, shape);
    LOCKSTEP_ASSERT(shape.documents.cover(shape.batch, shape.length));
    TttArguments arguments{};
    arguments.shape = shape;
    arguments.q = q;
    arguments.k = k;
    arguments.v = v;
    arguments.step_size = step_size.fp32();
    arguments.token_scale = token_scale.fp32();
    arguments.inner = inner;
    return arguments;
}

}  // namespace

std::int64_t CudaBackend::ttt_saved_count(const TttShape& shape, Type type) const {
    return ttt_gpu_saved_count(shape, type);
}

void CudaBackend::ttt_forward(Tensor y, Tensor saved, Tensor q, Tensor k, Tensor v, Tensor step_size,
                              Tensor token_scale, const TttInner& inner, const TttCarry& initial,
                              const TttCarry& final_state, const TttShape& shape) {
    TttArguments arguments = common_arguments(shape, q, k, v, step_size, token_scale, inner);
    check_rows(y, q.type(), shape);
    if (!saved.empty()) LOCKSTEP_ASSERT(saved.count() >= ttt_saved_count(shape, q.type()));
    check_carry(initial, shape);
    check_final(final_state, shape);
    arguments.y = y;
    arguments.initial = initial;
    arguments.final_state = final_state;
    arguments.saved = saved.empty() ? nullptr : saved.fp32();
    arguments.stream = stream();
    arguments.multiprocessors = multiprocessors();
    arguments.scratch = [this](std::size_t bytes) { return scratch(bytes); };
    (shape.mlp ? ttt_mlp_forward : ttt_linear_forward)(arguments, q.type());
}

void CudaBackend::ttt_backward(Tensor dq, Tensor dk, Tensor dv, Tensor dstep_size, Tensor dtoken_scale,
                               const TttInner& dinner, const TttCarry& dinitial, Tensor dy, Tensor saved, Tensor q,
                               Tensor k, Tensor v, Tensor step_size, Tensor token_scale, const TttInner& inner,
                               const TttCarry& initial, const TttCarry& dfinal, const TttShape& shape) {
    TttArguments arguments = common_arguments(shape, q, k, v, step_size, token_scale, inner);
    for (const Tensor& tensor : {dq, dk, dv, dy}) check_rows(tensor, q.type(), shape);
    LOCKSTEP_ASSERT(dstep_size.count() == step_size.count() && dtoken_scale.count() == token_scale.count() &&
                    saved.count() >= ttt_saved_count(shape, q.type()));
    check_norm(dinner, shape);
    LOCKSTEP_ASSERT(dinitial.empty() == initial.empty());
    if (initial.empty() || !shape.documents.joined()) check_learned(dinner, shape);
    check_carry(initial, shape);
    check_carry(dinitial, shape);
    check_final(dfinal, shape);
    arguments.dy = dy;
    arguments.dq = dq;
    arguments.dk = dk;
    arguments.dv = dv;
    arguments.dstep_size = dstep_size.fp32();
    arguments.dtoken_scale = dtoken_scale.fp32();
    arguments.dinner = dinner;
    arguments.initial = initial;
    arguments.dinitial = dinitial;
    arguments.dfinal = dfinal;
    arguments.saved = saved.fp32();
    arguments.stream = stream();
    arguments.multiprocessors = multiprocessors();
    arguments.shared_memory = context_->properties().sharedMemPerBlockOptin;
    arguments.scratch = [this](std::size_t bytes) { return scratch(bytes); };
    (shape.mlp ? ttt_mlp_backward : ttt_linear_backward)(arguments, q.type());
}

void CudaBackend::ttt_decode(Tensor y, const TttState& state, Tensor q, Tensor k, Tensor v, Tensor step_size,
                             Tensor token_scale, const TttInner& inner, const TttShape& shape, std::int64_t position) {
    TttArguments arguments = common_arguments(shape, q, k, v, step_size, token_scale, inner);
    LOCKSTEP_ASSERT(shape.batch == 1 && position >= 0);
    check_rows(y, q.type(), shape);
    arguments.y = y;
    arguments.stream = stream();
    arguments.multiprocessors = multiprocessors();
    arguments.scratch = [this](std::size_t bytes) { return scratch(bytes); };
    cuda::ttt_decode(arguments, q.type(), state, position);
}

}  // namespace lockstep::kernels::cuda
