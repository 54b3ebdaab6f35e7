#include "kernels/counting_backend.hpp"

#include <utility>

#include "kernels/cpu/scratch_sizes.hpp"
#include "kernels/delta_gpu_sizes.hpp"
#include "kernels/ttt_gpu_saved.hpp"

namespace lockstep::kernels {
namespace {

using Kind = OperationKind;

double bytes_of(const Tensor& tensor) {
    return tensor.axes() == 0 ? 0 : static_cast<double>(tensor.bytes());
}

class Nothing final : public Later {
  public:
    explicit Nothing(std::size_t count) : values_(count, 0) {}
    const std::vector<double>& get() override { return values_; }

  private:
    std::vector<double> values_;
};

}  // namespace

std::vector<Operation> CountingBackend::take() {
    return std::exchange(operations_, {});
}

// A tensor that is read and written is listed twice.
void CountingBackend::moves(Kind kind, Type type, std::initializer_list<Tensor> tensors) {
    double bytes = 0;
    for (const Tensor& tensor : tensors) bytes += bytes_of(tensor);
    operations_.push_back(moved_work(kind, type, bytes));
}

Device CountingBackend::device() const {
    Device device;
    device.kind = kind_;
    device.imaginary = true;
    return device;
}

void CountingBackend::synchronize() {}
void CountingBackend::upload(Tensor, const void*) {}
void CountingBackend::download(void*, Tensor) {
    throw fault_error("an imaginary device has no values");
}
std::unique_ptr<Later> CountingBackend::read_later(Tensor x) {
    return std::make_unique<Nothing>(static_cast<std::size_t>(x.count()));
}
std::unique_ptr<Recording> CountingBackend::record(const std::function<void()>&) {
    return nullptr;
}

void CountingBackend::fill(Tensor y, float) {
    moves(Kind::copy, y.type(), {y});
}
void CountingBackend::clear(const std::vector<Tensor>& tensors) {
    for (const Tensor& tensor : tensors) fill(tensor, 0);
}
void CountingBackend::copy(Tensor y, Tensor x) {
    if (y.strided_data() == x.strided_data()) return;  // as the others do
    moves(Kind::copy, y.type(), {y, x});
}
void CountingBackend::add(Tensor y, Tensor x) {
    moves(Kind::copy, y.type(), {y, y, x});
}
void CountingBackend::scale(Tensor y, float) {
    moves(Kind::copy, y.type(), {y, y});
}
void CountingBackend::sum(Tensor, Tensor x, Accumulate) {
    moves(Kind::copy, x.type(), {x});
}
void CountingBackend::sum_of_squares(Tensor, Tensor x, Accumulate) {
    moves(Kind::copy, x.type(), {x});
}
void CountingBackend::block_sums_of_squares(Tensor, Tensor x, std::int64_t) {
    moves(Kind::copy, x.type(), {x});
}
void CountingBackend::sum_rows(Tensor, Tensor rows) {
    moves(Kind::copy, rows.type(), {rows});
}

void CountingBackend::product(Tensor c, Tensor a, Transpose transpose_a, Tensor b, Transpose transpose_b,
                              Accumulate accumulate) {
    const bool first = transpose_a == Transpose::yes, second = transpose_b == Transpose::yes;
    const std::int64_t columns = c.size(-1), rows = columns == 0 ? 0 : c.rows();
    if (rows == 0 || columns == 0) return;
    const Kind kind = first    ? Kind::product_weight_gradient
                      : second ? Kind::product_forward
                               : Kind::product_input_gradient;
    Operation work = product_work(kind, a.type(), rows, columns, first ? a.rows() : a.size(-1));
    work.accumulates = accumulate == Accumulate::yes;
    work.bytes = bytes_of(a) + bytes_of(b) + (work.accumulates ? 2 : 1) * bytes_of(c);
    operations_.push_back(work);
}

void CountingBackend::linear_forward(Tensor y, Tensor x, Tensor weight, Tensor, Tensor residual) {
    const bool adds = !residual.empty();
    // oneDNN only accumulates into the result, so the residual is copied there first.
    if (adds && kind_ == DeviceKind::cpu && residual.data() != y.data()) copy(y, residual);
    product(y, x, Transpose::no, weight, Transpose::yes, adds ? Accumulate::yes : Accumulate::no);
}

void CountingBackend::linear_gelu_forward(Tensor y, Tensor before, Tensor x, Tensor weight, Tensor bias) {
    linear_forward(before, x, weight, bias, {});
    gelu_forward(y, before);
}

void CountingBackend::linear_gelu_backward(Tensor dbefore, Tensor dy, Tensor weight, Tensor before) {
    product(dbefore, dy, Transpose::no, weight, Transpose::no, Accumulate::no);
    gelu_backward(dbefore, dbefore, before);
}

void CountingBackend::add_bias(Tensor y, Tensor) {
    moves(Kind::copy, y.type(), {y, y});
}
void CountingBackend::bias_backward(Tensor, Tensor dy) {
    moves(Kind::bias_gradient, dy.type(), {dy});
}
void CountingBackend::linear_backward_parameters(Tensor dweight, Tensor dbias, Tensor dy, Tensor x,
                                                 Accumulate accumulate) {
    product(dweight, dy, Transpose::yes, x, Transpose::no, accumulate);
    if (!dbias.empty()) bias_backward(dbias, dy);
}

void CountingBackend::embedding_forward(Tensor y, Tensor, Tensor, std::int64_t, Tensor position, std::int64_t,
                                        std::int64_t) {
    moves(Kind::embedding_forward, y.type(), {y, y, position.empty() ? Tensor() : y});
}
void CountingBackend::embedding_backward(Tensor dtable, Tensor dposition, Tensor, Tensor dy, std::int64_t,
                                         std::int64_t) {
    const Tensor rows(dy.data(), dtable.type(), dy.shape());  // rows of the table, one per token
    moves(Kind::embedding_backward, dy.type(), {dy, rows, rows, dposition, dposition});
}

void CountingBackend::rms_norm_forward(Tensor y, Tensor, Tensor x, Tensor residual, Tensor, float) {
    moves(Kind::norm_forward, x.type(), {y, x, residual, residual.empty() ? Tensor() : x});
}
void CountingBackend::rms_norm_backward(Tensor dx, Tensor, Tensor dy, Tensor x, Tensor, Tensor, Accumulate accumulate) {
    moves(Kind::norm_backward, x.type(), {dx, dy, x, accumulate == Accumulate::yes ? dx : Tensor()});
}
void CountingBackend::layer_norm_forward(Tensor y, Tensor, Tensor, Tensor x, Tensor residual, Tensor, Tensor, float) {
    moves(Kind::norm_forward, x.type(), {y, x, residual, residual.empty() ? Tensor() : x});
}
void CountingBackend::layer_norm_backward(Tensor dx, Tensor, Tensor, Tensor dy, Tensor x, Tensor, Tensor, Tensor,
                                          Accumulate accumulate) {
    moves(Kind::norm_backward, x.type(), {dx, dy, x, accumulate == Accumulate::yes ? dx : Tensor()});
}
void CountingBackend::split_norm_moments(Tensor, Tensor x) {
    moves(Kind::norm_forward, x.type(), {x});
}
void CountingBackend::split_norm_statistics(Tensor, Tensor, Tensor moments, std::int64_t, float) {
    moves(Kind::norm_forward, moments.type(), {moments});
}
void CountingBackend::split_norm_forward(Tensor y, Tensor x, Tensor, Tensor, Tensor, Tensor) {
    moves(Kind::norm_forward, x.type(), {y, x});
}
void CountingBackend::split_norm_backward_sums(Tensor, Tensor, Tensor, Tensor dy, Tensor x, Tensor, Tensor, Tensor) {
    moves(Kind::norm_backward, x.type(), {dy, x});
}
void CountingBackend::split_norm_backward(Tensor dx, Tensor dy, Tensor x, Tensor, Tensor, Tensor, Tensor,
                                          std::int64_t) {
    moves(Kind::norm_backward, x.type(), {dx, dy, x});
}

void CountingBackend::rotate(Tensor x, Tensor, Tensor, std::int64_t, std::int64_t, RotaryPairs, bool) {
    moves(Kind::rotate, x.type(), {x, x});
}

void CountingBackend::gelu_forward(Tensor y, Tensor x) {
    moves(Kind::activation_forward, x.type(), {y, x});
}
void CountingBackend::gelu_backward(Tensor dx, Tensor dy, Tensor x) {
    moves(Kind::activation_backward, x.type(), {dx, dy, x});
}
void CountingBackend::silu_forward(Tensor y, Tensor x) {
    moves(Kind::activation_forward, x.type(), {y, x});
}
void CountingBackend::silu_backward(Tensor dx, Tensor dy, Tensor x) {
    moves(Kind::activation_backward, x.type(), {dx, dy, x});
}
void CountingBackend::swiglu_forward(Tensor y, Tensor gate, Tensor up) {
    moves(Kind::gated_forward, y.type(), {y, gate, up});
}
void CountingBackend::swiglu_backward(Tensor dgate, Tensor dup, Tensor dy, Tensor gate, Tensor up) {
    moves(Kind::gated_backward, dy.type(), {dgate, dup, dy, gate, up});
}
void CountingBackend::gelu_gate_forward(Tensor y, Tensor gate, Tensor x) {
    moves(Kind::gated_forward, y.type(), {y, gate, x});
}
void CountingBackend::gelu_gate_backward(Tensor dgate, Tensor dx, Tensor dy, Tensor gate, Tensor x) {
    moves(Kind::gated_backward, dy.type(), {dgate, dx, dy, gate, x});
}

void CountingBackend::convolution_forward(Tensor y, Tensor x, Tensor, Tensor, Tensor, std::int64_t, const Documents&) {
    moves(Kind::convolution_forward, x.type(), {y, x});
}
void CountingBackend::convolution_backward(Tensor dx, Tensor, Tensor, Tensor dy, Tensor x, Tensor, std::int64_t,
                                           const Documents&, Accumulate accumulate) {
    moves(Kind::convolution_backward, x.type(), {dx, dy, x, accumulate == Accumulate::yes ? dx : Tensor()});
}

void CountingBackend::attention_forward(Tensor, Tensor, Tensor q, Tensor, Tensor, const AttentionShape& shape) {
    operations_.push_back(attention_work(shape, q.type(), false));
}
void CountingBackend::attention_backward(Tensor, Tensor, Tensor, Tensor, Tensor q, Tensor, Tensor, Tensor, Tensor,
                                         const AttentionShape& shape) {
    operations_.push_back(attention_work(shape, q.type(), true));
}
void CountingBackend::attention_join(Tensor sum, Tensor, Tensor y, Tensor, std::int64_t, const AttentionShape&) {
    const Tensor rows(sum.data(), sum.type(), y.shape());  // of the sum, as many as y has
    moves(Kind::copy, y.type(), {rows, rows, y});
}

void CountingBackend::step_size_forward(Tensor step_size, Tensor logit, Tensor, float) {
    moves(Kind::copy, step_size.type(), {step_size, logit});
}
void CountingBackend::step_size_backward(Tensor dlogit, Tensor dstep_size, Tensor step_size, float) {
    moves(Kind::copy, dlogit.type(), {dlogit, dstep_size, step_size});
}
void CountingBackend::token_scale_forward(Tensor token_scale, Tensor delta) {
    moves(Kind::copy, delta.type(), {token_scale, delta});
}
void CountingBackend::token_scale_backward(Tensor ddelta, Tensor dtoken_scale, Tensor delta) {
    moves(Kind::copy, delta.type(), {ddelta, ddelta, dtoken_scale, delta});
}
std::int64_t CountingBackend::ttt_saved_count(const TttShape& shape, Type type) const {
    return kind_ == DeviceKind::cuda ? ttt_gpu_saved_count(shape, type) : cpu::ttt_saved_count(shape);
}
void CountingBackend::ttt_forward(Tensor, Tensor, Tensor q, Tensor, Tensor, Tensor, Tensor, const TttInner&,
                                  const TttCarry&, const TttCarry&, const TttShape& shape) {
    operations_.push_back(ttt_work(shape, q.type(), false));
}
void CountingBackend::ttt_backward(Tensor, Tensor, Tensor, Tensor, Tensor, const TttInner&, const TttCarry&, Tensor,
                                   Tensor, Tensor q, Tensor, Tensor, Tensor, Tensor, const TttInner&, const TttCarry&,
                                   const TttCarry&, const TttShape& shape) {
    operations_.push_back(ttt_work(shape, q.type(), true));
}
void CountingBackend::ttt_decode(Tensor, const TttState&, Tensor q, Tensor, Tensor, Tensor, Tensor, const TttInner&,
                                 const TttShape& shape, std::int64_t) {
    operations_.push_back(ttt_work(shape, q.type(), false));
}

void CountingBackend::delta_gates_forward(Tensor log_decay, Tensor strength, Tensor decay_logit, Tensor strength_logit,
                                          Tensor, Tensor, std::int64_t, const Documents&) {
    moves(Kind::copy, log_decay.type(), {log_decay, strength, decay_logit, strength_logit});
}
void CountingBackend::delta_gates_backward(Tensor ddecay_logit, Tensor dstrength_logit, Tensor, Tensor,
                                           Tensor dlog_decay, Tensor dstrength, Tensor decay_logit, Tensor strength,
                                           Tensor, Tensor, std::int64_t, const Documents&) {
    moves(Kind::copy, dlog_decay.type(), {ddecay_logit, dstrength_logit, dlog_decay, dstrength, decay_logit, strength});
}
std::int64_t CountingBackend::delta_saved_count(const DeltaShape& shape, Type type) const {
    return kind_ == DeviceKind::cuda ? delta_gpu_saved_count(shape, type) : cpu::delta_saved_count(shape);
}
void CountingBackend::delta_forward(Tensor, Tensor, Tensor q, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor,
                                    const DeltaShape& shape) {
    operations_.push_back(delta_work(shape, q.type(), false));
}
void CountingBackend::delta_backward(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor q, Tensor,
                                     Tensor, Tensor, Tensor, Tensor, Tensor, const DeltaShape& shape) {
    operations_.push_back(delta_work(shape, q.type(), true));
}

void CountingBackend::dropout(Tensor y, Tensor x, const Dropout&, Accumulate accumulate) {
    if (accumulate == Accumulate::yes)
        moves(Kind::copy, x.type(), {y, y, x});
    else
        moves(Kind::copy, x.type(), {y, x});
}

void CountingBackend::cap_logits(Tensor logits, float) {
    moves(Kind::cross_entropy, logits.type(), {logits, logits});
}
void CountingBackend::cross_entropy(Tensor, Tensor logits, Tensor, const LossGradient&, Tensor) {
    moves(Kind::cross_entropy, logits.type(), {logits, logits});
}
void CountingBackend::cross_entropy_maxima(Tensor, Tensor logits) {
    moves(Kind::cross_entropy, logits.type(), {logits});
}
void CountingBackend::cross_entropy_sums(Tensor, Tensor logits, Tensor, Tensor, std::int64_t) {
    moves(Kind::cross_entropy, logits.type(), {logits});
}
void CountingBackend::cross_entropy_finish(Tensor, Tensor logits, Tensor, Tensor, Tensor, std::int64_t,
                                           const LossGradient&, Tensor) {
    moves(Kind::cross_entropy, logits.type(), {logits, logits});
}

void CountingBackend::decide_update(Tensor decision, Tensor, Tensor, double, const LossScaling&) {
    moves(Kind::optimizer, decision.type(), {decision, decision});
}
void CountingBackend::adamw(Tensor parameter, Tensor working, Tensor gradient, Tensor first_moment,
                            Tensor second_moment, Tensor, Tensor, const AdamWSettings&) {
    moves(Kind::optimizer, working.axes() == 0 ? parameter.type() : working.type(),
          {parameter, parameter, working, gradient, first_moment, first_moment, second_moment, second_moment});
}

void CountingBackend::momentum(Tensor parameter, Tensor working, Tensor gradient, Tensor velocity, Tensor, Tensor,
                               const MomentumSettings&) {
    moves(Kind::optimizer, working.axes() == 0 ? parameter.type() : working.type(),
          {parameter, parameter, working, gradient, velocity, velocity});
}

void CountingBackend::step(Tensor parameter, Tensor working, Tensor direction, Tensor, Tensor, const StepSettings&) {
    moves(Kind::optimizer, working.axes() == 0 ? parameter.type() : working.type(),
          {parameter, parameter, working, direction});
}
void CountingBackend::momentum_direction(Tensor direction, Tensor gradient, Tensor velocity, Tensor, float, bool) {
    moves(Kind::optimizer, Type::fp32, {direction, gradient, velocity, velocity});
}
void CountingBackend::normalize(Tensor y, Tensor x, Tensor) {
    moves(Kind::optimizer, y.type(), {y, x});
}
void CountingBackend::blend(Tensor y, Tensor x, float, float) {
    moves(Kind::optimizer, y.type(), {y, y, x});
}

void CountingBackend::custom(const CustomWork& work, const std::function<void()>&) {
    Operation operation = moved_work(Kind::custom, Type::fp32, work.bytes);
    operation.flop = work.flop;
    operation.name = work.name;
    operations_.push_back(operation);
}

Work work_of(DeviceKind kind, const std::function<void(Backend&)>& issue) {
    CountingBackend backend(kind);
    issue(backend);
    Work work;
    for (const Operation& operation : backend.operations()) {
        work.flop += operation.flop;
        work.bytes += operation.bytes;
    }
    return work;
}

}  // namespace lockstep::kernels
