// AdamW (Loshchilov & Hutter 2019): two moments of every element, decoupled weight decay.
#pragma once

#include "optim/optimizer.hpp"
#include "optim/weight_groups.hpp"

namespace lockstep::optim {

std::unique_ptr<const OptimizerType> make_adamw_type();

class AdamW final : public Optimizer {
  public:
    explicit AdamW(const OptimizerSetup& setup);

  private:
    void apply(double learning_rate) override;
    std::size_t other_bytes() const override { return groups_.bytes(); }
    GroupMap groups_;
};

}  // namespace lockstep::optim
