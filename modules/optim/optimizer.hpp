// An optimizer at work on the pieces of the parameters that a rank updates. What all have in common is here: the norm
// of all gradients, clipping, skipping, loss scaling, the memory of the state. One optimizer is a class derived from
// this, which says how its pieces change, and an OptimizerType.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "optim/optimizer_type.hpp"
#include "optim/state_memory.hpp"
#include "optim/update_decision.hpp"

namespace lockstep::optim {

class Optimizer {
  public:
    Optimizer(const Optimizer&) = delete;
    Optimizer& operator=(const Optimizer&) = delete;
    virtual ~Optimizer() = default;

    // One update of the pieces this rank owns, decided on the device: none where `loss` (fp64 [1]) or the norm of all
    // gradients is not finite; the norm decides the clip factor, clip / (norm + 1e-6), at most 1. Collective over the
    // norm's communicators.
    void update(double learning_rate, Tensor loss);
    Tensor decision() const { return decision_.values(); }  // about the last update, laid out as kernels::Decision
    Tensor loss_scale() const { return decision().slice(kernels::Decision::loss_scale, 1); }
    void set_progress(const Progress& progress) { decision_.set_progress(setup_.backend, progress); }
    // Elements counted in the norm that belong to no parameter; they are counted as zero gradients.
    std::int64_t padding() const { return counted_padding(setup_.parameters.layout(), setup_.norm); }

    const OptimizerType& type() const { return type_; }
    const StateMemory& state() const { return state_; }
    std::size_t bytes() const { return state_.bytes() + decision_.bytes() + other_bytes(); }  // of the device

  protected:
    // The type outlives the optimizer.
    Optimizer(const OptimizerType& type, const OptimizerSetup& setup);

    kernels::Backend& backend() const { return setup_.backend; }
    const model::ParameterSet& parameters() const { return setup_.parameters; }
    const config::OptimizerSection& settings() const { return setup_.settings; }
    // Flat, of an owned piece: what the next step computes with, in the compute type, empty where that is the value
    // itself; the gradient as the step left it, to be multiplied by the decision's factor.
    Tensor owned_working(std::size_t piece) const;
    Tensor owned_gradient(std::size_t piece) const;

  private:
    // Changes value, working copy and state of all owned pieces; nothing where decision()[proceed] is 0, which is known
    // on the device only. Gradients count times decision()[factor]. The values of exact parameters kept beside follow
    // by themselves.
    virtual void apply(double learning_rate) = 0;
    virtual std::size_t other_bytes() const { return 0; }  // memory of the device beside state and decision

    const OptimizerType& type_;
    OptimizerSetup setup_;
    StateMemory state_;
    UpdateDecision decision_;
};

// Bytes of the device that such an optimizer takes, on a backend that may be imaginary.
std::size_t optimizer_bytes(const OptimizerType& type, const OptimizerSetup& setup);

}  // namespace lockstep::optim
