// AdamW (Loshchilov & Hutter 2019) over the pieces of the parameters that a rank updates, with clipping of the
// gradient's norm and dynamic loss scaling.
#pragma once

#include <cstdint>
#include <vector>

#include "cluster/communicator.hpp"
#include "config/run_description.hpp"
#include "kernels/backend.hpp"
#include "model/parameters.hpp"

namespace lockstep::optim {

// How the norm of all gradients is put together from those of the ranks.
struct NormPlan {
    std::vector<model::Piece> counted;  // of this rank's flat gradients: every parameter once over all ranks
    cluster::Communicator* communicator = nullptr;  // over which the sums are added; null: this rank alone
    // Ranks that add up the same numbers, each over a communicator of its own; null: none. They agree on one result,
    // since other communicators may add in another order.
    cluster::Communicator* replicas = nullptr;
};

// The pieces that a rank counts: of what it owns, what no other rank counts. Undivided parameters are the first tensor
// rank's; `skip_table`: the embedding's table is counted on another stage.
std::vector<model::Piece> counted_pieces(const model::ParameterSet& parameters, const model::Part& part,
                                         bool skip_table);

class AdamW {
  public:
    // scaling: of the loss, for fp16.
    AdamW(kernels::Backend& backend, model::ParameterSet& parameters, const config::OptimizerSection& settings,
          NormPlan norm, kernels::LossScaling scaling = {});

    // One update of the pieces this rank owns, decided on the device: none where `loss` (fp64 [1]) or the norm of all
    // gradients is not finite; the norm decides the clip factor, clip / (norm + 1e-6), at most 1. Collective over the
    // norm's communicator.
    void update(double learning_rate, Tensor loss);
    // Of the last update, laid out as kernels::Decision.
    Tensor decision() const { return decision_; }
    Tensor loss_scale() const { return decision_.slice(kernels::Decision::loss_scale, 1); }
    // Where a run is begun or resumed.
    struct Progress {
        std::int64_t updates = 0;
        double loss_scale = 1;
        std::int64_t good_steps = 0, bad_steps = 0;
    };
    void set_progress(const Progress& progress);
    // Counted elements that belong to no parameter; they are counted as zero gradients.
    std::int64_t padding() const;

    Tensor first_moment(std::size_t piece) const { return first_moments_[piece]; }  // of the owned piece
    Tensor second_moment(std::size_t piece) const { return second_moments_[piece]; }
    Tensor all_moments() const { return all_moments_; }  // flat
    std::size_t bytes() const { return memory_.capacity() + small_.capacity(); }
    // The same of an optimizer that is not made, for these pieces.
    static std::size_t planned_bytes(Device device, const std::vector<model::Piece>& owned);

  private:
    void mark_decaying(std::size_t piece);
    kernels::Backend& backend_;
    model::ParameterSet& parameters_;
    config::OptimizerSection settings_;
    NormPlan norm_;
    kernels::LossScaling scaling_;
    Arena memory_, small_;
    Tensor all_moments_, decision_, totals_;
    std::vector<Tensor> first_moments_, second_moments_, decays_;
};

}  // namespace lockstep::optim
