// Learning rate and decay of each weight (optimizer.groups, optimizer.decay), in the form that kernels take.
#pragma once

#include <vector>

#include "config/run_description.hpp"
#include "device/memory.hpp"
#include "kernels/backend.hpp"
#include "model/parameters.hpp"

namespace lockstep::optim {

// Usage error if a pattern of optimizer.groups matches no parameter (it names the nearest), or only frozen ones.
void check_groups(const config::OptimizerSection& settings, const config::ModelDescription& model);

// The first of optimizer.groups whose pattern matches decides; what it leaves out, and every other parameter, is as
// optimizer.weight_decay and optimizer.decay say, at the whole learning rate.
kernels::WeightGroup group_of(const config::OptimizerSection& settings, const model::ParameterDescription& parameter);

// The table, and for each owned piece the words described at kernels::WeightGroups.
class GroupMap {
  public:
    GroupMap(kernels::Backend& backend, const model::ParameterSet& parameters,
             const config::OptimizerSection& settings);
    const kernels::WeightGroups::Table& table() const { return table_; }
    Tensor of_piece(std::size_t piece) const { return words_[piece]; }
    std::size_t bytes() const { return memory_.capacity(); }

  private:
    kernels::WeightGroups::Table table_{};
    Arena memory_;
    std::vector<Tensor> words_;
};

}  // namespace lockstep::optim
