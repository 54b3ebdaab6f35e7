// An optimizer at run time, working on the pieces of parameters that a rank updates. Common parts are here: gradient
// norm, clipping, skipping, loss scaling, memory of the state. Each optimizer derives a class from this, which updates
// its pieces, and an OptimizerType.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "optim/offloaded_gradients.hpp"
#include "optim/optimizer_type.hpp"
#include "optim/state_memory.hpp"
#include "optim/update_decision.hpp"

namespace lockstep::optim {

class Optimizer {
  public:
    Optimizer(const Optimizer&) = delete;
    Optimizer& operator=(const Optimizer&) = delete;
    virtual ~Optimizer() = default;

    // Sets the averages of such parameters, where there are averages, to their values now.
    void begin_averages(const std::function<bool(const model::ParameterDescription&)>& of);
    // One update of the pieces this rank owns, decided on the device: none if `loss` (fp64 [1]) or the norm of all
    // gradients is not finite; gradients are scaled by clip / (norm + 1e-6), at most 1. Collective over the norm's
    // communicators. Averages of parameters move towards them, whether they were updated or not.
    void update(double learning_rate, Tensor loss);
    // On the device, of the last update, laid out as kernels::Decision.
    Tensor decision() const { return decision_.values(); }
    Tensor loss_scale() const { return decision().slice(kernels::Decision::loss_scale, 1); }
    void set_progress(const Progress& progress) { decision_.set_progress(setup_.backend, progress); }
    // Counted elements of padding; they appear as zero gradients.
    std::int64_t padding() const { return norm_.padding(); }

    const OptimizerType& type() const { return type_; }
    const StateMemory& state() const { return state_; }
    std::size_t bytes() const;       // of device memory
    std::size_t host_bytes() const;  // of host memory, where the update is offloaded

  protected:
    // The type outlives the optimizer.
    Optimizer(const OptimizerType& type, const OptimizerSetup& setup);

    kernels::Backend& backend() const { return setup_.updating(); }  // what updates
    const model::ParameterSet& parameters() const { return setup_.parameters; }
    const config::OptimizerSection& settings() const { return setup_.settings; }
    cluster::Communicator* tensor_group() const { return setup_.tensor; }
    // update(piece) for each owned piece that has elements. If offloaded: as soon as its gradient is in host memory,
    // and what it wrote goes to the device while the next piece is updated.
    void for_each_owned(const std::function<void(std::size_t)>& update) const;
    // Flat, of an owned piece: the working copy in the compute type, empty if that is the value itself; and the raw
    // gradient, to be multiplied by the decision's factor.
    Tensor owned_working(std::size_t piece) const;
    Tensor owned_gradient(std::size_t piece) const;
    Tensor decision_here() const;  // where it is updated

  private:
    // Updates value, working copy and state of all owned pieces, unless decision_here()[proceed] is 0, which the host
    // may not know. Gradients count times decision_here()[factor]. Separate values of exact parameters are updated by
    // the caller.
    virtual void apply(double learning_rate) = 0;
    virtual std::size_t other_bytes() const { return 0; }  // besides state and decision, where it is updated

    const OptimizerType& type_;
    OptimizerSetup setup_;
    StateMemory state_;
    UpdateDecision decision_;
    GradientNorm norm_;
    std::unique_ptr<OffloadedGradients> offloaded_;  // null: not offloaded
};

}  // namespace lockstep::optim
