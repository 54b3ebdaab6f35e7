// Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon): the weight matrices of the blocks step along their
// orthogonalised momentum; every other parameter as with AdamW. Step lengths are those of AdamW, 0.2 √max(rows,
// columns) times the learning rate (Liu et al. 2025, arXiv:2502.16982, section 2.2), or √max(1, rows / columns) times
// it, as Jordan has it.
#pragma once

#include <vector>

#include "optim/optimizer.hpp"
#include "optim/orthogonalize.hpp"
#include "optim/parameter_ranges.hpp"
#include "optim/weight_groups.hpp"

namespace lockstep::optim {

std::unique_ptr<const OptimizerType> make_muon_type();

class Muon final : public Optimizer {
  public:
    explicit Muon(const OptimizerSetup& setup);

  private:
    // What an update works on.
    struct Part {
        Tensor value, working, gradient, groups;
    };
    // How a tensor group divides a matrix: elements before each rank's slice, and of all.
    struct Cuts {
        bool divided;
        std::vector<std::int64_t> at;
    };
    void apply(double learning_rate) override;
    std::size_t other_bytes() const override { return groups_.bytes() + memory_.capacity(); }
    Part part_of(const ParameterRange& range) const;
    Cuts cuts_of(std::size_t parameter) const;
    void step_as_adamw(const ParameterRange& range, double learning_rate);
    void step_orthogonally(const ParameterRange& range, double learning_rate);
    // fp32, flat: where this rank's part of a matrix's direction belongs, and what the whole direction, orthogonalised,
    // has there. Collective over the tensor group if the matrix is divided.
    Tensor own_part(const ParameterRange& range) const;
    Tensor orthogonalized(const ParameterRange& range);

    GroupMap groups_;
    std::vector<ParameterRange> ranges_;
    config::Options own_;  // [optimizer.muon]
    Arena memory_;
    Orthogonalizer orthogonalizer_;
    Tensor whole_, parts_;  // fp32, of the largest matrix: in order, and (unless one rank has all) rank by rank
};

}  // namespace lockstep::optim
