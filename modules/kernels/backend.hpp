// The numerical operations: one interface, one class behind it per kind of device (cpu/, cuda/). A layer calls these
// and nothing else. Every operation has a naive double-precision twin in tests/reference.
//
// Shapes: B sequences, L tokens a sequence, N = B·L rows, d width, H heads, G key/value heads, f = width of a head,
// V vocabulary, b TTT mini-batch, g hidden width of the TTT inner model (f for linear, 4f for mlp).
// A tensor of rows [N, d] holds sequence s, token t in row s·L + t; a head is a contiguous slice of f columns.
// Outputs written with += are accumulated, which is how gradients of parameters and of the residual stream are summed;
// all other outputs are overwritten. Optional tensors may be empty.
//
// Types: T is the compute type (fp32, bf16 or fp16), the type of activations and of the weights of matrix products and
// embeddings. Weights of norms, convolutions and the TTT inner model, statistics, losses, step sizes and all gradients
// of parameters are fp32. A tensor whose type is not said is of type T. Sums are made in fp32 or better, results are
// rounded once.
//
// Work may be asynchronous until synchronize(): operations run in the order they are called, after what was uploaded
// before them. All tensors are memory of device().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/memory.hpp"
#include "device/tensor.hpp"

namespace lockstep::kernels {

enum class Transpose { no, yes };
enum class Accumulate { no, yes };
enum class RotaryPairs { interleaved, halves };  // (2i, 2i+1) as in TTT; (i, i + f/2) as in Llama and Qwen

struct AttentionShape {
    std::int64_t batch, query_length, key_length, heads, key_heads, head_width;
    // Query i sees keys j <= i + key_length - query_length. Scores are scaled by 1/sqrt(f).
};

struct TttShape {
    bool mlp;
    std::int64_t batch, length, heads, head_width, mini_batch;
    std::int64_t hidden() const { return mlp ? 4 * head_width : head_width; }
};

// The learned tensors of the inner model, or their gradients.
struct TttInner {
    Tensor weight1, bias1;          // [H, f, g], [H, 1, g]
    Tensor weight2, bias2;          // [H, g, f], [H, 1, f]; mlp only
    Tensor norm_weight, norm_bias;  // [H, f]
};

// The inner model of every sequence at one place of it, fp32: [B, H, f, g], [B, H, 1, g], [B, H, g, f], [B, H, 1, f]
// (the last two: mlp only). Empty tensors where there is none.
struct TttCarry {
    Tensor weight1, bias1, weight2, bias2;
    bool empty() const { return weight1.axes() == 0; }
};

// The inner model as a sequence has changed it, for decoding token by token.
struct TttState {
    Tensor weight1, bias1, weight2, bias2;                  // [H, f, g], …: at the start of the mini-batch
    Tensor weight1_sum, bias1_sum, weight2_sum, bias2_sum;  // Σ λ ∇ since then
};

// The places of a decision about an update, fp64 [8].
struct Decision {
    static constexpr int proceed = 0, factor = 1, gradient_norm = 2, updates = 3, loss_scale = 4, good_steps = 5,
                         bad_steps = 6, zeros = 7;
};

// How the loss scale follows the gradients (Micikevicius et al. 2018): doubled after `growth_interval` good steps,
// halved by each bad step from the hysteresis-th since it was last doubled, never below `minimum`. growth_interval 0:
// the scale stays 1.
struct LossScaling {
    std::int64_t growth_interval = 0, hysteresis = 0;
    double minimum = 1;
};

// Values on their way from the device.
class Later {
  public:
    virtual ~Later() = default;
    virtual const std::vector<double>& get() = 0;  // waits for the work they come from
};

// Work recorded once, to be run again and again on the same tensors.
class Recording {
  public:
    virtual ~Recording() = default;
    virtual void run() = 0;
};

class Backend {
  public:
    Backend() = default;
    Backend(const Backend&) = delete;
    Backend& operator=(const Backend&) = delete;
    virtual ~Backend() = default;
    virtual Device device() const = 0;
    virtual void synchronize() = 0;

    // Between host and device. The host's memory may be reused when upload returns, and holds the values when download
    // does (which waits).
    virtual void upload(Tensor y, const void* source) = 0;
    virtual void download(void* destination, Tensor x) = 0;
    virtual std::unique_ptr<Later> read_later(
        Tensor x) = 0;  // fp64 [n], as it will be when what was called so far is done
    // The operations that `issue` calls, not run but kept; null on devices where that saves nothing. Every operation in
    // it must have run once before with tensors of the same shapes; upload, download and read_later may not be in it.
    virtual std::unique_ptr<Recording> record(const std::function<void()>& issue) = 0;

    // Memory
    virtual void fill(Tensor y, float value) = 0;    // any type
    virtual void copy(Tensor y, Tensor x) = 0;       // same count; between fp32, bf16 and fp16 converts
    virtual void add(Tensor y, Tensor x) = 0;        // y += x
    virtual void scale(Tensor y, float factor) = 0;  // fp32 y *= factor

    // Scalars stay on the device: fp64 [1], sums of fp32 x in a fixed order; fp64 [2], the sum of squares and the
    // number of elements that are exactly zero.
    virtual void sum(Tensor total, Tensor x, Accumulate accumulate) = 0;
    virtual void sum_of_squares(Tensor totals, Tensor x, Accumulate accumulate) = 0;

    // Matrix products, row-major: c [m, n] (+)= op(a) op(b), op(a) is [m, k], op(b) is [k, n]. Tensors of more axes are
    // taken as [all but last, last]. a and b are of one type, c of that or fp32.
    virtual void product(Tensor c, Tensor a, Transpose transpose_a, Tensor b, Transpose transpose_b,
                         Accumulate accumulate) = 0;
    // y [N, out] = x [N, in] weight [out, in]ᵀ + bias [out] + residual [N, out]; the last two may be empty, y may be
    // the residual.
    virtual void linear_forward(Tensor y, Tensor x, Tensor weight, Tensor bias, Tensor residual) = 0;
    // y = gelu(before), before = x weightᵀ + bias; and dbefore = gelu'(before) ⊙ (dy weight) with dy [N, n],
    // weight [n, out] of the layer behind.
    virtual void linear_gelu_forward(Tensor y, Tensor before, Tensor x, Tensor weight, Tensor bias) = 0;
    virtual void linear_gelu_backward(Tensor dbefore, Tensor dy, Tensor weight, Tensor before) = 0;
    virtual void add_bias(Tensor y, Tensor bias) = 0;         // y [N, d] += bias [d] of y's type; fp32 or T
    virtual void bias_backward(Tensor dbias, Tensor dy) = 0;  // fp32 dbias [d] += column sums of dy [N, d]

    // Embedding: ids int32 [N], tables of type T, their gradients fp32. position [context, d] may be empty; row s·L + t
    // adds position[first_position + t]. The table holds the ids first_id, first_id + 1, …: an id outside it adds
    // nothing (a row of zeros, to which `position` is still added) and gets no gradient.
    virtual void embedding_forward(Tensor y, Tensor ids, Tensor table, std::int64_t first_id, Tensor position,
                                   std::int64_t length, std::int64_t first_position) = 0;
    virtual void embedding_backward(Tensor dtable, Tensor dposition, Tensor ids, Tensor dy, std::int64_t first_id,
                                    std::int64_t length) = 0;  // both +=

    // Norms over the last axis. Statistics are fp32 [N], kept for backward. dx, dweight, dbias are +=. Forward, where
    // `residual` is given: x becomes x + residual first (rounded to T), in one pass.
    // RMSNorm (Zhang & Sennrich 2019): y = w x / sqrt(mean x² + ε).
    virtual void rms_norm_forward(Tensor y, Tensor inverse_rms, Tensor x, Tensor residual, Tensor weight,
                                  float epsilon) = 0;
    virtual void rms_norm_backward(Tensor dx, Tensor dweight, Tensor dy, Tensor x, Tensor weight,
                                   Tensor inverse_rms) = 0;
    // LayerNorm (Ba et al. 2016), population variance.
    virtual void layer_norm_forward(Tensor y, Tensor mean, Tensor inverse_deviation, Tensor x, Tensor residual,
                                    Tensor weight, Tensor bias, float epsilon) = 0;
    virtual void layer_norm_backward(Tensor dx, Tensor dweight, Tensor dbias, Tensor dy, Tensor x, Tensor weight,
                                     Tensor mean, Tensor inverse_deviation) = 0;
    // LayerNorm over columns divided among R ranks: x, y and their gradients [N, d'], weight and bias [d'] are a rank's
    // d' of the d columns, mean and inverse_deviation those of the whole rows. Between these operations the caller
    // gathers the moments of all ranks and adds up their sums.
    //
    // fp32 moments [N, 2]: the mean of the d' columns, and the sum of the squared distances from it.
    virtual void split_norm_moments(Tensor moments, Tensor x) = 0;
    // moments fp32 [R, N, 2] of all ranks, of `width` = d' columns each, are merged (Chan et al. 1979).
    virtual void split_norm_statistics(Tensor mean, Tensor inverse_deviation, Tensor moments, std::int64_t width,
                                       float epsilon) = 0;
    virtual void split_norm_forward(Tensor y, Tensor x, Tensor mean, Tensor inverse_deviation, Tensor weight,
                                    Tensor bias) = 0;
    // fp32 sums [N, 2] = Σ u, Σ u x̂ over these columns, u = weight ⊙ dy, x̂ the normalised x; dweight, dbias +=.
    virtual void split_norm_backward_sums(Tensor sums, Tensor dweight, Tensor dbias, Tensor dy, Tensor x, Tensor weight,
                                          Tensor mean, Tensor inverse_deviation) = 0;
    // dx (overwritten) = inverse_deviation (u - sums₀/all_width - x̂ sums₁/all_width), with the sums over all ranks and
    // all_width = d.
    virtual void split_norm_backward(Tensor dx, Tensor dy, Tensor x, Tensor weight, Tensor mean,
                                     Tensor inverse_deviation, Tensor sums, std::int64_t all_width) = 0;

    // Rotary positions in place on x [N, heads·f]; cosine, sine fp32 [period, f/2]; row s·L + t uses table row
    // (first_position + t) mod period. `inverse` rotates back, which is the backward.
    virtual void rotate(Tensor x, Tensor cosine, Tensor sine, std::int64_t length, std::int64_t first_position,
                        RotaryPairs pairs, bool inverse) = 0;

    // Activations. GELU is the tanh form everywhere. dx outputs are overwritten.
    virtual void gelu_forward(Tensor y, Tensor x) = 0;
    virtual void gelu_backward(Tensor dx, Tensor dy, Tensor x) = 0;
    virtual void swiglu_forward(Tensor y, Tensor gate, Tensor up) = 0;  // silu(gate) ⊙ up
    virtual void swiglu_backward(Tensor dgate, Tensor dup, Tensor dy, Tensor gate, Tensor up) = 0;
    virtual void gelu_gate_forward(Tensor y, Tensor gate, Tensor x) = 0;  // gelu(gate) ⊙ x
    virtual void gelu_gate_backward(Tensor dgate, Tensor dx, Tensor dy, Tensor gate, Tensor x) = 0;

    // Depthwise causal convolution: y[t] = bias + Σ_{j<k} w[:,0,j] x[t-(k-1)+j]; x, y [N, d], weight [d, 1, k], bias
    // [d]. history [B, k-1, d] (may be empty: zeros) holds the inputs before t = 0. dx (overwritten), dweight +=, dbias
    // +=.
    virtual void convolution_forward(Tensor y, Tensor x, Tensor weight, Tensor bias, Tensor history,
                                     std::int64_t length) = 0;
    virtual void convolution_backward(Tensor dx, Tensor dweight, Tensor dbias, Tensor dy, Tensor x, Tensor weight,
                                      std::int64_t length) = 0;

    // Causal attention, never storing the score matrix (Dao et al. 2022). q, y [B·query_length, H·f],
    // k, v [B·key_length, G·f], log_sum_exp fp32 [B, H, query_length]. Backward needs query_length == key_length.
    virtual void attention_forward(Tensor y, Tensor log_sum_exp, Tensor q, Tensor k, Tensor v,
                                   const AttentionShape& shape) = 0;
    virtual void attention_backward(Tensor dq, Tensor dk, Tensor dv, Tensor dy, Tensor q, Tensor k, Tensor v, Tensor y,
                                    Tensor log_sum_exp, const AttentionShape& shape) = 0;

    // TTT (Sun et al. 2024), equations as in docs/ttt.md.
    // Learned step: fp32 step_size [N, H] = scale · sigmoid(fp32 logit [N, H]), may be in place; dlogit (type T) =
    // dstep · step (1 - step/scale).
    virtual void step_size_forward(Tensor step_size, Tensor logit, float scale) = 0;
    virtual void step_size_backward(Tensor dlogit, Tensor dstep_size, Tensor step_size, float scale) = 0;
    // fp32 token_scale [b] = max(1/i + delta_i, 0), i = 1..b; ddelta += dtoken_scale where 1/i + delta_i >= 0.
    virtual void token_scale_forward(Tensor token_scale, Tensor delta) = 0;
    virtual void token_scale_backward(Tensor ddelta, Tensor dtoken_scale, Tensor delta) = 0;
    // The scan over mini-batches; q, k, v, y [N, H·f] after rotation, y before the post norm. The last mini-batch may
    // be short. `saved` is fp32 scratch of ttt_saved_count() elements that backward reads; it may be empty when no
    // backward follows. Every sequence starts from `initial`, or from the learned model where that is empty;
    // `final_state` (may be empty) becomes the model behind the last token. shape.length must then be a multiple of the
    // mini-batch, as the sequence goes on elsewhere.
    virtual std::int64_t ttt_saved_count(const TttShape& shape) const = 0;
    virtual void ttt_forward(Tensor y, Tensor saved, Tensor q, Tensor k, Tensor v, Tensor step_size, Tensor token_scale,
                             const TttInner& inner, const TttCarry& initial, const TttCarry& final_state,
                             const TttShape& shape) = 0;
    // dq, dk, dv, dstep_size are overwritten; dtoken_scale [b] and the gradients of the norm are +=. dfinal (may be
    // empty: zero) is the gradient of `final_state`. Without `initial` the gradients of the learned model are +=. With
    // it, dinitial (given exactly where `initial` is) is overwritten by its gradient, and dinner's weight1, bias1,
    // weight2 and bias2 are left alone.
    virtual void ttt_backward(Tensor dq, Tensor dk, Tensor dv, Tensor dstep_size, Tensor dtoken_scale,
                              const TttInner& dinner, const TttCarry& dinitial, Tensor dy, Tensor saved, Tensor q,
                              Tensor k, Tensor v, Tensor step_size, Tensor token_scale, const TttInner& inner,
                              const TttCarry& initial, const TttCarry& dfinal, const TttShape& shape) = 0;
    // Token by token: shape.length tokens of one sequence (batch 1), the first at `position` of the sequence; `state`
    // starts as a copy of the learned weights with zero sums and is updated.
    virtual void ttt_decode(Tensor y, const TttState& state, Tensor q, Tensor k, Tensor v, Tensor step_size,
                            Tensor token_scale, const TttInner& inner, const TttShape& shape,
                            std::int64_t position) = 0;

    // Softmax cross-entropy, one loss per row: losses fp32 [N] = -log softmax(logits)[target]; rows whose target is
    // negative lose 0. With gradient_scale != 0 the logits [N, V] are overwritten by gradient_scale ·
    // d(loss)/d(logits), multiplied by loss_scale too: fp64 [1], read when the operation runs; empty: 1.
    virtual void cross_entropy(Tensor losses, Tensor logits, Tensor targets, float gradient_scale,
                               Tensor loss_scale) = 0;
    // The same over a vocabulary divided among ranks: the logits [N, V'] are the columns first_id, first_id + 1, … of
    // the whole, a target must lie in the columns of one rank. In three parts, between which the caller takes the
    // maxima of all ranks and adds up their sums.
    virtual void cross_entropy_maxima(Tensor maxima, Tensor logits) = 0;  // fp32 [N], the highest logit
    // fp32 sums [N, 2]: Σ exp(x - maximum) over these columns; x[target] - maximum where they hold the target, else 0.
    virtual void cross_entropy_sums(Tensor sums, Tensor logits, Tensor maxima, Tensor targets,
                                    std::int64_t first_id) = 0;
    // Losses and, in place of the logits, gradients, as cross_entropy.
    virtual void cross_entropy_finish(Tensor losses, Tensor logits, Tensor maxima, Tensor sums, Tensor targets,
                                      std::int64_t first_id, float gradient_scale, Tensor loss_scale) = 0;

    // Whether this step's gradients are used, and how strongly, decided on the device; `decision` is laid out as
    // Decision. The gradients are loss_scale times too large (where scaling is off: 1 time); totals are those of
    // sum_of_squares. proceed = 1 where loss (fp64 [1]) and totals[0] are finite, else 0; gradient_norm =
    // sqrt(totals[0]) / loss_scale; factor = min(1, clip / (gradient_norm + 1e-6)) / loss_scale, without the minimum
    // where clip is 0; updates += proceed; zeros = totals[1]. Then, where scaling is on, for the next step:
    //     not proceeding: good_steps = 0, bad_steps += 1; at bad_steps >= hysteresis: loss_scale = max(loss_scale / 2,
    //                     minimum)
    //     proceeding:     good_steps += 1; at growth_interval: loss_scale *= 2, good_steps = bad_steps = 0
    virtual void decide_update(Tensor decision, Tensor loss, Tensor totals, double clip,
                               const LossScaling& scaling) = 0;
    // AdamW with decoupled decay (Loshchilov & Hutter 2019), elementwise over flat fp32 tensors, nothing where
    // `decision` says not to proceed: the gradient is multiplied by the decision's factor, its updates are the step
    // that counts from
    // 1. `working` (type T, may be empty) becomes the new parameter, rounded. decays: int32 words, bit i of word j says
    // whether weights decay in elements [16 (32 j + i), 16 (32 j + i + 1)).
    struct AdamW {
        float learning_rate, beta1, beta2, epsilon, weight_decay;
    };
    virtual void adamw(Tensor parameter, Tensor working, Tensor gradient, Tensor first_moment, Tensor second_moment,
                       Tensor decays, Tensor decision, const AdamW& settings) = 0;
};

// The backend of this machine's processor; the instruction set is chosen here, at run time.
// LOCKSTEP_INSTRUCTION_SET=baseline|avx2|avx512 overrides the choice.
std::unique_ptr<Backend> make_cpu_backend();
const char* cpu_instruction_set();  // what make_cpu_backend chooses: "baseline", "avx2", "avx512"
// Whether oneDNN multiplies bf16 with instructions of this processor (AVX512-BF16 or AMX), so that bf16 is worth its
// while: the backend computes in it on every processor, elsewhere slowly. LOCKSTEP_CPU_BF16=0|1 overrides the answer.
bool cpu_multiplies_bf16();

}  // namespace lockstep::kernels
