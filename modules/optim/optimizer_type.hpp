// What is known of an optimizer before one is built: its name, the tensors of its state, where it may be divided, what
// an update moves. Checkpoints, memory plans, prices and `inspect` ask this and know no optimizer by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/registry.hpp"
#include "config/run_description.hpp"
#include "kernels/backend.hpp"
#include "model/parameters.hpp"
#include "optim/gradient_norm.hpp"

namespace lockstep::optim {

class Optimizer;

// One tensor that an optimizer keeps of a parameter, fp32.
struct StateDescription {
    std::string name;  // "first_moment"; in checkpoints /optimizer/<name>/<parameter>
    Shape shape;       // of the whole tensor
    // Which axis tensor parallelism cuts where it cuts the parameter; as long as the parameter's cut axis. none: each
    // rank of the tensor group has the whole tensor, and all must compute the same.
    model::Split split = model::Split::none;
};

// Where replicas that divide the optimizer (ZeRO) may cut a parameter. What is cut is the rank's slice of it: where
// tensor parallelism divides a matrix, `matrix` means this rank's slice of the matrix, kept whole.
struct Granularity {
    enum class Unit {
        element,  // anywhere: every element is updated by itself
        matrix,   // nowhere
        block     // at multiples of `block` elements of the slice, in row-major order
    };
    Unit unit = Unit::element;
    std::int64_t block = 1;
};

// What an optimizer is built of. The parameters outlive it.
struct OptimizerSetup {
    OptimizerSetup(kernels::Backend& on, model::ParameterSet& of, config::OptimizerSection with = {},
                   NormPlan norm_plan = {}, kernels::LossScaling loss_scaling = {})
        : backend(on), parameters(of), settings(std::move(with)), norm(std::move(norm_plan)), scaling(loss_scaling) {}
    kernels::Backend& backend;
    model::ParameterSet& parameters;
    config::OptimizerSection settings;
    NormPlan norm;
    kernels::LossScaling scaling;  // of the loss, for fp16
};

// Its name is the value of optimizer.kind, its keys those of [optimizer.SECTION].
class OptimizerType : public config::Kind {
  public:
    using Kind::Kind;
    // The tensors kept of a trained parameter. One of another shape than the parameter's needs the granularity
    // `matrix`: whoever updates the parameter keeps it whole.
    virtual std::vector<StateDescription> states(const model::ParameterDescription& parameter) const = 0;
    virtual Granularity granularity(const model::ParameterDescription& parameter) const = 0;
    // Bytes that the update of the whole parameter moves to and from memory, without the working copy. As given here:
    // the gradient is read, value and state are read and written, once each.
    virtual double bytes_moved(const model::ParameterDescription& parameter) const;
    // Built on an imaginary device too, to know its bytes: the constructor allocates from arenas and uploads, no more.
    virtual std::unique_ptr<Optimizer> make(const OptimizerSetup& setup) const = 0;
};

// Elements of all states of the parameters that are trained.
std::int64_t state_count(const OptimizerType& type, const std::vector<model::ParameterDescription>& parameters);
// Bytes of the tensors of a checkpoint: the parameters' values and the state.
std::int64_t checkpoint_bytes(const OptimizerType& type, const config::ModelDescription& model);

}  // namespace lockstep::optim
