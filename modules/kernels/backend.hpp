// The numerical operations: one interface, implemented once per kind of device (cpu/, cuda/). Layers call nothing else.
// Every operation has a naive double-precision twin in tests/reference.
//
// Shapes: B sequences, L tokens a sequence, N = B·L rows, d width, H heads, G key/value heads, f = width of a head,
// V vocabulary, b TTT mini-batch, g hidden width of the TTT inner model (f for linear, 4f for mlp).
// A tensor of rows [N, d] holds sequence s, token t in row s·L + t; a head is a contiguous slice of f columns.
// Outputs written with += are accumulated, which is how gradients of parameters and of the residual stream are summed;
// all other outputs are overwritten. Optional tensors may be empty.
//
// Types: T is the compute type (fp32, bf16 or fp16), the type of activations and of the weights of matrix products and
// embeddings. Weights of norms, convolutions and the TTT inner model, statistics, losses, step sizes and all gradients
// of parameters are fp32. Tensors are of type T unless stated otherwise. Sums are in fp32 or better, results are
// rounded once.
//
// Work may be asynchronous until synchronize(): operations run in the order they are called, after what was uploaded
// before them. All tensors are memory of device().
#pragma once

#include <algorithm>
#include <array>
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

// Documents that share a sequence, where a token is to see only its own. P: positions of the whole sequences, of which
// an operation may have a part.
struct Documents {
    Tensor starts, ends;              // int32 [B, P], ascending: of each position, where its document begins and ends
    std::int64_t first_position = 0;  // of the operation's first token

    // Whether each sequence is one document. Then nothing else is read here.
    bool joined() const { return starts.empty(); }
    // Whether they are there for `length` tokens from first_position on of so many sequences.
    bool cover(std::int64_t sequences, std::int64_t length) const {
        return joined() || (starts.axes() == 2 && ends.shape() == starts.shape() && starts.size(0) == sequences &&
                            starts.type() == Type::int32 && ends.type() == Type::int32 && first_position >= 0 &&
                            first_position + length <= starts.size(1));
    }
};

// Dropout of a layer's input (Srivastava et al. 2014). Which elements it clears is a function of the token, the layer
// and the column alone: the same on any layout, and in a pass that is computed again. Column c takes 16 bits, number
// c mod 8, of Philox4x32-10 (base/random.hpp) with the token's bits as key and the counter (c / 8, 0, layer).
struct Dropout {
    Tensor tokens;                  // int32 [N, 2]: 64 random bits of each row, the lower half first
    std::uint64_t layer = 0;        // any number of its own
    std::int64_t first_column = 0;  // of this rank's columns of the layer's input
    float probability = 0;          // that an element is cleared, below 1; in steps of 1/65536

    // Elements whose bits are below this are cleared.
    std::uint32_t threshold() const {
        return std::min(static_cast<std::uint32_t>(probability * 65536 + 0.5f), std::uint32_t{65535});
    }
    float factor() const { return 65536 / static_cast<float>(65536 - threshold()); }  // on the others
};

struct AttentionShape {
    std::int64_t batch, query_length, key_length, heads, key_heads, head_width;
    // The first query's position, counted from the first key. Query i sees keys j <= i + query_position; the last query
    // sees all of them, but for the window.
    std::int64_t query_position = 0;
    // Sliding window (Beltagy et al. 2020, arXiv:2004.05150): query i sees only keys j > i + query_position - window.
    // 0: no window. Every query must see a key.
    std::int64_t window = 0;
    // Scores s become cap · tanh(s / cap) (Gemma 2, arXiv:2408.00118, section 2). 0: no cap.
    float score_cap = 0;
    // first_position: of the first query. A query that sees none of the keys then gets y = 0, log_sum_exp = -∞.
    Documents documents = {};

    std::int64_t first_seen(std::int64_t query) const {  // key
        return window > 0 ? std::max<std::int64_t>(query + query_position - window + 1, 0) : 0;
    }
    bool valid() const {
        return key_heads > 0 && heads % key_heads == 0 && head_width > 0 && query_position >= 0 &&
               query_position + query_length >= key_length && window >= 0 && score_cap >= 0 &&
               first_seen(query_length - 1) < key_length && documents.cover(batch, query_length) &&
               (documents.joined() || query_position <= documents.first_position);
    }
};

struct TttShape {
    bool mlp;
    std::int64_t batch, length, heads, head_width, mini_batch;
    // Mini-batches begin anew in each document, with the learned model. Of a sequence, `initial` is read and its
    // gradient not zero only if the first token is not the first of its document, and the last document's rest, if it
    // has one elsewhere, begins with a mini-batch.
    Documents documents = {};
    std::int64_t hidden() const { return mlp ? 4 * head_width : head_width; }
};

// What makes the gated delta rule forget its state: exp of it is 0, and sums with it are still exact enough.
constexpr float forgetting_log_decay = -1e4f;

struct DeltaShape {
    std::int64_t batch, length, heads, key_heads, key_width, value_width;  // B, L, H, G, fk, fv
    bool valid() const {
        return batch > 0 && length > 0 && key_heads > 0 && heads > 0 && heads % key_heads == 0 && key_width > 0 &&
               value_width > 0;
    }
};

// The learned tensors of the inner model, or their gradients.
struct TttInner {
    Tensor weight1, bias1;          // [H, f, g], [H, 1, g]
    Tensor weight2, bias2;          // [H, g, f], [H, 1, f]; mlp only
    Tensor norm_weight, norm_bias;  // [H, f]
};

// The inner model of each sequence at one position, fp32: [B, H, f, g], [B, H, 1, g], [B, H, g, f], [B, H, 1, f] (the
// last two: mlp only). Empty tensors if there is none.
struct TttCarry {
    Tensor weight1, bias1, weight2, bias2;
    bool empty() const { return weight1.axes() == 0; }
};

// A sequence's updated inner model, for decoding token by token.
struct TttState {
    Tensor weight1, bias1, weight2, bias2;                  // [H, f, g], …: at the start of the mini-batch
    Tensor weight1_sum, bias1_sum, weight2_sum, bias2_sum;  // Σ λ ∇ since then
};

// What takes the place of logits x: scale · d(loss + z_loss · log² Z)/dx with Z = Σ exp(x), of each row (Chowdhery et
// al. 2022, arXiv:2204.02311, section 5). With scale 0 they stay as they are.
// With a cap (of cap_logits) it is multiplied by d capped / d uncapped.
struct LossGradient {
    float scale = 0, z_loss = 0;
    float inverse_cap = 0;  // 0: none

    // Of a capped logit x.
    constexpr float slope(float x) const {
        const float share = x * inverse_cap;
        return inverse_cap == 0 ? 1.0f : 1.0f - share * share;
    }
};

// The slots of an update decision, fp64 [places].
struct Decision {
    static constexpr int places = 8;
    static constexpr int proceed = 0, factor = 1, gradient_norm = 2, updates = 3, loss_scale = 4, good_steps = 5,
                         bad_steps = 6, zeros = 7;
};

// Dynamic loss scaling (Micikevicius et al. 2018): doubled after `growth_interval` good steps, halved by each bad step
// from the hysteresis-th since the last doubling, never below `minimum`. growth_interval 0: the scale stays 1.
struct LossScaling {
    std::int64_t growth_interval = 0, hysteresis = 0;
    double minimum = 1;
};

// Values being transferred from the device.
class Later {
  public:
    virtual ~Later() = default;
    virtual const std::vector<double>& get() = 0;  // waits for the work that produces them
};

// Work recorded once, to be replayed on the same tensors.
class Recording {
  public:
    virtual ~Recording() = default;
    virtual void run() = 0;
};

// What an update does to some of the weights.
struct WeightGroup {
    float rate_factor = 1;  // of the learning rate
    float decay = 0;        // decoupled, times the learning rate so scaled
};

// Which weights belong to which group, for updates: int32 words, `bits` for each run of weights, lowest bits first.
struct WeightGroups {
    static constexpr std::int64_t most = 16, bits = 4, elements = 16;  // elements per run
    static constexpr std::int64_t runs_a_word = 32 / bits, elements_a_word = elements * runs_a_word;
    static constexpr std::int64_t words_for(std::int64_t count) {
        return (count + elements_a_word - 1) / elements_a_word;
    }
    using Table = std::array<WeightGroup, most>;
};

struct AdamWSettings {
    float learning_rate, beta1, beta2, epsilon;
    WeightGroups::Table groups;
};

struct MomentumSettings {
    float learning_rate, momentum;
    bool nesterov;
    WeightGroups::Table groups;
};

struct StepSettings {
    float learning_rate;
    float scale;  // of the direction, not of the decay
    WeightGroups::Table groups;
};

// The cost of an operation that a mixer or an optimizer defines itself.
struct CustomWork {
    const char* name;  // "ema_forward"
    double flop = 0;   // arithmetic that counts as the model's
    double bytes = 0;  // bytes moved
};

class Backend {
  public:
    Backend() = default;
    Backend(const Backend&) = delete;
    Backend& operator=(const Backend&) = delete;
    virtual ~Backend() = default;
#define LOCKSTEP_OPERATION(result, name, ...) virtual result name __VA_ARGS__ = 0;
#include "kernels/operations.inc"
};

// The backend of this machine's processor; selects the instruction set at run time.
// LOCKSTEP_INSTRUCTION_SET=baseline|avx2|avx512|avx512_bf16|amx overrides the choice.
std::unique_ptr<Backend> make_cpu_backend();
const char* cpu_instruction_set();  // what make_cpu_backend selects, such as "avx2"
// Whether oneDNN has native bf16 products on this processor (AVX512-BF16 or AMX), so that bf16 pays off: the backend
// computes in bf16 on every processor, but slowly elsewhere. LOCKSTEP_CPU_BF16=0|1 overrides the answer.
bool cpu_multiplies_bf16();

}  // namespace lockstep::kernels
