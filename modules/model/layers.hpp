// Small layers of which blocks are made. A layer owns no memory: it holds views of its parameters and is given the
// rest. forward reads x and writes y; backward takes dy, writes or adds to dx, and accumulates the gradients of trained
// parameters. If ranks share a layer, each has its part of the parameters, and y or dx are partial sums.
#pragma once

#include <optional>
#include <string>

#include "config/model_description.hpp"
#include "kernels/backend.hpp"
#include "model/context_chain.hpp"
#include "model/low_rank_update.hpp"
#include "model/parameters.hpp"
#include "model/recompute.hpp"
#include "model/tensor_group.hpp"

namespace lockstep::model {

using kernels::Accumulate;
using kernels::Backend;

// y [N, out] = x [N, in] weightᵀ + bias + residual (may be empty or y). Its gradients are overwritten in a step's first
// backward pass and added to in the others, so each pass must compute them exactly once.
class Linear {
  public:
    Linear(const ParameterSet& parameters, const std::string& name);
    // Gradients of frozen tensors are empty. `coming_pass` is that of the parameters, which registered them.
    Linear(Tensor weight, Tensor bias, Tensor dweight, Tensor dbias, const Accumulate& coming_pass)
        : weight_(weight), bias_(bias), dweight_(dweight), dbias_(dbias), coming_pass_(&coming_pass) {}
    void forward(Backend& backend, Tensor y, Tensor x, Tensor residual = {}) const;
    // The bias belongs to the sum over ranks: one of them adds it.
    void forward_part(Backend& backend, Tensor y, Tensor x, Tensor residual, bool with_bias) const;
    // dx may be empty if nothing below needs it.
    void backward_input(Backend& backend, Tensor dx, Tensor dy, Accumulate accumulate) const;
    void backward_parameters(Backend& backend, Tensor dy, Tensor x) const;
    std::int64_t outputs() const { return weight_.size(0); }
    Tensor weight() const { return weight_; }  // in the compute type, like the bias
    Tensor bias() const { return bias_; }
    Tensor weight_gradient() const { return dweight_; }
    Tensor bias_gradient() const { return dbias_; }
    const Accumulate& coming_pass() const { return *coming_pass_; }
    // The layer's adapter, if it has one. Callers that use weight() must apply it themselves.
    const std::optional<LowRankUpdate>& adapter() const { return adapter_; }

  private:
    Tensor weight_, bias_, dweight_, dbias_;
    std::optional<LowRankUpdate> adapter_;
    const Accumulate* coming_pass_;  // of the parameters; they outlive the layer
};

// RMSNorm or LayerNorm over the last axis.
class Norm {
  public:
    struct Statistics {
        Tensor mean, inverse;  // [N]; mean of LayerNorm only
        void plan(Arena& arena, std::int64_t rows, bool with_mean);
    };
    Norm(const ParameterSet& parameters, const std::string& name, double epsilon);  // LayerNorm if it has a bias
    void plan(Arena& arena, Statistics& statistics, std::int64_t rows) const { statistics.plan(arena, rows, centred_); }
    // With a residual, x becomes x + residual first.
    void forward(Backend& backend, Tensor y, const Statistics& statistics, Tensor x, Tensor residual = {}) const;
    void backward(Backend& backend, Tensor dx, Tensor dy, Tensor x, const Statistics& statistics,
                  Accumulate accumulate) const;

  private:
    bool centred_;
    float epsilon_;
    Tensor weight_, bias_, dweight_, dbias_;
};

// Depthwise causal convolution, kernel 4.
class Convolution {
  public:
    Convolution(const ParameterSet& parameters, const std::string& name);
    Convolution(Tensor weight, Tensor bias, Tensor dweight, Tensor dbias)
        : weight_(weight), bias_(bias), dweight_(dweight), dbias_(dbias) {}
    std::int64_t kernel() const { return weight_.size(2); }
    std::int64_t width() const { return weight_.size(0); }
    void forward(Backend& backend, Tensor y, Tensor x, Tensor history, std::int64_t length,
                 const kernels::Documents& documents) const;
    void backward(Backend& backend, Tensor dx, Tensor dy, Tensor x, std::int64_t length,
                  const kernels::Documents& documents, Accumulate accumulate) const;

    // For sequences that continue from another rank: `history` hands over the last inputs [B, k-1, d] of each sequence.
    void plan_handover(Arena& arena, Handover& history, Type type, std::int64_t batch, const ContextChain& chain,
                       int tag) const;
    // recompute: no handover, `history` is still valid
    void hand_over(Backend& backend, Handover& history, Tensor x, std::int64_t length, bool recompute) const;
    // Backward in two parts, between history.receive_gradient() and history.send_gradient(): dx without the next rank's
    // contribution and the history's gradient, both overwritten or added to; then the next rank's contribution.
    void backward_part(Backend& backend, Arena& workspace, Tensor dx, Tensor dy, Tensor x, Handover& history,
                       Accumulate accumulate, std::int64_t length, const kernels::Documents& documents) const;
    // Temporaries of backward_part.
    void plan_workspace(Arena& arena, Type type, std::int64_t batch, std::int64_t length,
                        const ContextChain& chain) const;
    void add_from_next_rank(Backend& backend, Tensor dx, const Handover& history, std::int64_t length) const;

  private:
    // Sequences with their history in front.
    struct Longer {
        Tensor x, dy, dx;
    };
    Longer allocate_longer(Arena& arena, Type type, std::int64_t batch, std::int64_t length) const;
    Tensor weight_, bias_, dweight_, dbias_;
};

// For decoding: history [1, k-1, d] becomes the last k-1 rows of (history, inputs [n, d]).
void move_convolution_history(Backend& backend, Tensor history, Tensor inputs);

// down(silu(gate x) ⊙ up x) or down(gelu(up x))
class Mlp {
  public:
    struct Saved {
        Tensor gate, up, activated;  // [N, mlp_width], this rank's columns
    };
    Mlp(const ParameterSet& parameters, const std::string& prefix, const config::ModelDescription& model,
        const TensorGroup& group);
    Saved plan(Arena& arena, std::int64_t rows, Recompute recompute) const;
    // The rest of what a pass fills, for one pass.
    Saved complete(Arena& workspace, const Saved& kept, std::int64_t rows) const;
    void plan_rest(Arena& workspace, std::int64_t rows, Recompute recompute) const;  // what complete() allocates
    void plan_workspace(Arena& arena, std::int64_t rows) const;                      // temporaries of backward
    void widen(Backend& backend, const Saved& saved, Tensor x) const;                // fills all of saved
    // Fills again what was not kept.
    void recompute(Backend& backend, const Saved& saved, const Saved& kept, Tensor x) const;
    // y = residual + this rank's part of mlp(x); the residual may be empty or y
    void narrow(Backend& backend, Tensor y, Tensor residual, const Saved& saved) const;
    void backward(Backend& backend, Arena& workspace, InputGradient& dx, Tensor dh, const Saved& saved, Tensor x) const;
    std::int64_t width() const { return width_; }

  private:
    struct Gradients {
        Tensor dup, dactivated, dgate;  // dgate: swiglu only; dactivated: swiglu, or if down has an adapter
    };
    Gradients allocate_gradients(Arena& arena, std::int64_t rows) const;
    void allocate(Arena& arena, Saved& saved, std::int64_t rows, bool widened, bool activated) const;
    bool swiglu_, adds_bias_;
    std::int64_t width_;
    Type type_;
    std::vector<Linear> gate_;  // one; none for gelu
    Linear up_, down_;
};

}  // namespace lockstep::model
