// Gradient descent with momentum, with Nesterov's look-ahead or without it (Sutskever et al. 2013, ICML, equations 1
// to 4, as PyTorch's torch.optim.SGD writes them), and decoupled weight decay.
#pragma once

#include "optim/optimizer.hpp"
#include "optim/weight_groups.hpp"

namespace lockstep::optim {

std::unique_ptr<const OptimizerType> make_sgd_type();

class Sgd final : public Optimizer {
  public:
    explicit Sgd(const OptimizerSetup& setup);

  private:
    void apply(double learning_rate) override;
    std::size_t other_bytes() const override { return groups_.bytes(); }
    GroupMap groups_;
};

}  // namespace lockstep::optim
