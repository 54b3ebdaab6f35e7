// The CPU's operations, spread over the files of this folder by family. T is fp32 or bf16; threads by
// device/parallel.hpp; inner loops in vector/.
#pragma once

#include <memory>

#include "kernels/backend.hpp"
#include "kernels/cpu/vector/vector.hpp"

namespace lockstep::kernels::cpu {

class CpuBackend : public Backend {
  public:
    CpuBackend();
    ~CpuBackend() override;
    Device device() const override;
    void synchronize() override;
    void upload(Tensor y, const void* source) override;
    void download(void* destination, Tensor x) override;
    std::unique_ptr<Later> read_later(Tensor x) override;
    std::unique_ptr<Recording> record(const std::function<void()>& issue) override;
    void fill(Tensor y, float value) override;
    void copy(Tensor y, Tensor x) override;
    void add(Tensor y, Tensor x) override;
    void scale(Tensor y, float factor) override;
    void sum(Tensor total, Tensor x, Accumulate accumulate) override;
    void sum_of_squares(Tensor totals, Tensor x, Accumulate accumulate) override;
    void product(Tensor c, Tensor a, Transpose transpose_a, Tensor b, Transpose transpose_b,
                 Accumulate accumulate) override;
    void linear_forward(Tensor y, Tensor x, Tensor weight, Tensor bias, Tensor residual) override;
    void linear_gelu_forward(Tensor y, Tensor before, Tensor x, Tensor weight, Tensor bias) override;
    void linear_gelu_backward(Tensor dbefore, Tensor dy, Tensor weight, Tensor before) override;
    void add_bias(Tensor y, Tensor bias) override;
    void bias_backward(Tensor dbias, Tensor dy) override;
    void embedding_forward(Tensor y, Tensor ids, Tensor table, std::int64_t first_id, Tensor position,
                           std::int64_t length, std::int64_t first_position) override;
    void embedding_backward(Tensor dtable, Tensor dposition, Tensor ids, Tensor dy, std::int64_t first_id,
                            std::int64_t length) override;
    void rms_norm_forward(Tensor y, Tensor inverse_rms, Tensor x, Tensor residual, Tensor weight,
                          float epsilon) override;
    void rms_norm_backward(Tensor dx, Tensor dweight, Tensor dy, Tensor x, Tensor weight, Tensor inverse_rms) override;
    void layer_norm_forward(Tensor y, Tensor mean, Tensor inverse_deviation, Tensor x, Tensor residual, Tensor weight,
                            Tensor bias, float epsilon) override;
    void layer_norm_backward(Tensor dx, Tensor dweight, Tensor dbias, Tensor dy, Tensor x, Tensor weight, Tensor mean,
                             Tensor inverse_deviation) override;
    void split_norm_moments(Tensor moments, Tensor x) override;
    void split_norm_statistics(Tensor mean, Tensor inverse_deviation, Tensor moments, std::int64_t width,
                               float epsilon) override;
    void split_norm_forward(Tensor y, Tensor x, Tensor mean, Tensor inverse_deviation, Tensor weight,
                            Tensor bias) override;
    void split_norm_backward_sums(Tensor sums, Tensor dweight, Tensor dbias, Tensor dy, Tensor x, Tensor weight,
                                  Tensor mean, Tensor inverse_deviation) override;
    void split_norm_backward(Tensor dx, Tensor dy, Tensor x, Tensor weight, Tensor mean, Tensor inverse_deviation,
                             Tensor sums, std::int64_t all_width) override;
    void rotate(Tensor x, Tensor cosine, Tensor sine, std::int64_t length, std::int64_t first_position,
                RotaryPairs pairs, bool inverse) override;
    void gelu_forward(Tensor y, Tensor x) override;
    void gelu_backward(Tensor dx, Tensor dy, Tensor x) override;
    void swiglu_forward(Tensor y, Tensor gate, Tensor up) override;
    void swiglu_backward(Tensor dgate, Tensor dup, Tensor dy, Tensor gate, Tensor up) override;
    void gelu_gate_forward(Tensor y, Tensor gate, Tensor x) override;
    void gelu_gate_backward(Tensor dgate, Tensor dx, Tensor dy, Tensor gate, Tensor x) override;
    void convolution_forward(Tensor y, Tensor x, Tensor weight, Tensor bias, Tensor history,
                             std::int64_t length) override;
    void convolution_backward(Tensor dx, Tensor dweight, Tensor dbias, Tensor dy, Tensor x, Tensor weight,
                              std::int64_t length) override;
    void attention_forward(Tensor y, Tensor log_sum_exp, Tensor q, Tensor k, Tensor v,
                           const AttentionShape& shape) override;
    void attention_backward(Tensor dq, Tensor dk, Tensor dv, Tensor dy, Tensor q, Tensor k, Tensor v, Tensor y,
                            Tensor log_sum_exp, const AttentionShape& shape) override;
    void step_size_forward(Tensor step_size, Tensor logit, float scale) override;
    void step_size_backward(Tensor dlogit, Tensor dstep_size, Tensor step_size, float scale) override;
    void token_scale_forward(Tensor token_scale, Tensor delta) override;
    void token_scale_backward(Tensor ddelta, Tensor dtoken_scale, Tensor delta) override;
    std::int64_t ttt_saved_count(const TttShape& shape) const override;
    void ttt_forward(Tensor y, Tensor saved, Tensor q, Tensor k, Tensor v, Tensor step_size, Tensor token_scale,
                     const TttInner& inner, const TttCarry& initial, const TttCarry& final_state,
                     const TttShape& shape) override;
    void ttt_backward(Tensor dq, Tensor dk, Tensor dv, Tensor dstep_size, Tensor dtoken_scale, const TttInner& dinner,
                      const TttCarry& dinitial, Tensor dy, Tensor saved, Tensor q, Tensor k, Tensor v, Tensor step_size,
                      Tensor token_scale, const TttInner& inner, const TttCarry& initial, const TttCarry& dfinal,
                      const TttShape& shape) override;
    void ttt_decode(Tensor y, const TttState& state, Tensor q, Tensor k, Tensor v, Tensor step_size, Tensor token_scale,
                    const TttInner& inner, const TttShape& shape, std::int64_t position) override;
    void cross_entropy(Tensor losses, Tensor logits, Tensor targets, float gradient_scale, Tensor loss_scale) override;
    void cross_entropy_maxima(Tensor maxima, Tensor logits) override;
    void cross_entropy_sums(Tensor sums, Tensor logits, Tensor maxima, Tensor targets, std::int64_t first_id) override;
    void cross_entropy_finish(Tensor losses, Tensor logits, Tensor maxima, Tensor sums, Tensor targets,
                              std::int64_t first_id, float gradient_scale, Tensor loss_scale) override;
    void decide_update(Tensor decision, Tensor loss, Tensor totals, double clip, const LossScaling& scaling) override;
    void adamw(Tensor parameter, Tensor working, Tensor gradient, Tensor first_moment, Tensor second_moment,
               Tensor decays, Tensor decision, const AdamW& settings) override;

  private:
    // c (+)= op(a) op(b) + bias, the last may be empty.
    void multiply(Tensor c, Tensor a, bool transpose_a, Tensor b, bool transpose_b, bool accumulate, Tensor bias);

    class Scratch;   // per-thread memory, grown on demand and kept (scratch.hpp)
    class Products;  // the matrix-product primitives made so far, by shape (product.cpp)
    const VectorFunctions& vector_;
    std::unique_ptr<Scratch> scratch_;
    std::unique_ptr<Products> products_;
};

}  // namespace lockstep::kernels::cpu
