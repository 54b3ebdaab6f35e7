// The small layers blocks are made of. A layer owns no memory: it holds views of its parameters and is given all else.
// forward reads x and writes y; backward is given dy, writes or adds to dx, and adds to the gradients of its
// parameters.
#pragma once

#include <string>

#include "kernels/backend.hpp"
#include "model/parameters.hpp"

namespace lockstep::model {

using kernels::Accumulate;
using kernels::Backend;

// y [N, out] = x [N, in] weightᵀ + bias + residual (may be empty, may be y)
class Linear {
  public:
    Linear(const ParameterSet& parameters, const std::string& name);
    void forward(Backend& backend, Tensor y, Tensor x, Tensor residual = {}) const;
    void backward(Backend& backend, Tensor dx, Tensor dy, Tensor x, Accumulate accumulate) const;
    void backward_parameters(Backend& backend, Tensor dy, Tensor x) const;  // backward without dx
    std::int64_t outputs() const { return weight_.size(0); }
    Tensor weight() const { return weight_; }  // of the compute type, like the bias
    Tensor bias() const { return bias_; }

  private:
    Tensor weight_, bias_, dweight_, dbias_;
};

// RMSNorm or LayerNorm over the last axis.
class Norm {
  public:
    struct Statistics {
        Tensor mean, inverse;  // [N]; mean of LayerNorm only
        void plan(Arena& arena, std::int64_t rows, bool with_mean);
    };
    Norm(const ParameterSet& parameters, const std::string& name, double epsilon);  // LayerNorm where it has a bias
    void plan(Arena& arena, Statistics& statistics, std::int64_t rows) const { statistics.plan(arena, rows, centred_); }
    // Where a residual is given, x becomes x + residual first.
    void forward(Backend& backend, Tensor y, const Statistics& statistics, Tensor x, Tensor residual = {}) const;
    void backward(Backend& backend, Tensor dx, Tensor dy, Tensor x, const Statistics& statistics) const;  // dx is +=

  private:
    bool centred_;
    float epsilon_;
    Tensor weight_, bias_, dweight_, dbias_;
};

// Depthwise causal convolution, kernel 4.
class Convolution {
  public:
    Convolution(const ParameterSet& parameters, const std::string& name);
    std::int64_t kernel() const { return weight_.size(2); }
    void forward(Backend& backend, Tensor y, Tensor x, Tensor history, std::int64_t length) const;
    void backward(Backend& backend, Tensor dx, Tensor dy, Tensor x, std::int64_t length) const;  // dx overwritten

  private:
    Tensor weight_, bias_, dweight_, dbias_;
};

// While decoding: history [1, k-1, d] becomes the last k-1 rows of (history, inputs [n, d]).
void move_convolution_history(Backend& backend, Tensor history, Tensor inputs);

// down(silu(gate x) ⊙ up x) or down(gelu(up x))
class Mlp {
  public:
    struct Saved {
        Tensor gate, up, activated;  // [N, mlp_width]
    };
    Mlp(const ParameterSet& parameters, const std::string& prefix, const config::ModelDescription& model);
    void plan(Arena& arena, Saved& saved, std::int64_t rows) const;
    // y = residual + mlp(x); y may be the residual
    void forward(Backend& backend, Tensor y, Tensor residual, const Saved& saved, Tensor x) const;
    void backward(Backend& backend, Arena& workspace, Tensor dx, Tensor dh, const Saved& saved,
                  Tensor x) const;  // dx overwritten

  private:
    bool swiglu_;
    std::int64_t width_;
    Type type_;
    std::vector<Linear> gate_;  // one, or none for gelu
    Linear up_, down_;
};

}  // namespace lockstep::model
