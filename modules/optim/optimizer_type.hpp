// An optimizer before it is built: name, tensors of its state, where it may be divided, bytes moved per update.
// Checkpoints, memory plans, prices and `inspect` ask this; none of them knows an optimizer by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/registry.hpp"
#include "config/run_description.hpp"
#include "kernels/backend.hpp"
#include "kernels/operation_work.hpp"
#include "model/parameters.hpp"
#include "optim/gradient_norm.hpp"

namespace lockstep::optim {

class Optimizer;

// A tensor of optimizer state for one parameter, fp32.
struct StateDescription {
    std::string name;  // "first_moment"; in checkpoints /optimizer/<name>/<parameter>
    Shape shape;       // of the whole tensor
    // The axis that tensor parallelism divides if it divides the parameter; as long as the parameter's axis. none: each
    // rank of the tensor group has the whole tensor, and all must compute the same.
    model::Split split = model::Split::none;
};

// Where ZeRO may cut a parameter, or rather the rank's slice of it: with tensor parallelism, `matrix` keeps this rank's
// slice of the matrix whole.
struct Granularity {
    enum class Unit {
        element,  // anywhere: elementwise updates
        matrix,   // nowhere
        block     // at multiples of `block` elements of the slice, in row-major order
    };
    Unit unit = Unit::element;
    std::int64_t block = 1;
};

// What an optimizer is built from. The parameters outlive it.
struct OptimizerSetup {
    OptimizerSetup(kernels::Backend& on, model::ParameterSet& of, config::OptimizerSection with = {},
                   NormPlan norm_plan = {}, kernels::LossScaling loss_scaling = {},
                   cluster::Communicator* tensor_group = nullptr, kernels::Backend* of_the_cpu = nullptr)
        : backend(on),
          parameters(of),
          settings(std::move(with)),
          norm(std::move(norm_plan)),
          scaling(loss_scaling),
          tensor(tensor_group),
          host(of_the_cpu) {}
    kernels::Backend& backend;
    model::ParameterSet& parameters;
    config::OptimizerSection settings;
    NormPlan norm;
    kernels::LossScaling scaling;             // of the loss, for fp16
    cluster::Communicator* tensor = nullptr;  // the ranks that have the other slices of the parameters; null: none
    kernels::Backend* host = nullptr;         // of the CPU, which updates parameters that are offloaded
    kernels::Backend& updating() const { return parameters.offloaded() ? *host : backend; }
};

// Its name is the value of optimizer.kind, its keys those of [optimizer.SECTION].
class OptimizerType : public config::Kind {
  public:
    using Kind::Kind;
    // The state of a trained parameter. A state of another shape than the parameter's needs granularity `matrix`: the
    // rank that updates the parameter keeps it whole.
    virtual std::vector<StateDescription> states(const model::ParameterDescription& parameter) const = 0;
    virtual Granularity granularity(const model::ParameterDescription& parameter) const = 0;
    // Bytes moved by updating a whole parameter, without the working copy. Default: the gradient is read, value and
    // state are read and written, once each.
    virtual double bytes_moved(const model::ParameterDescription& parameter) const;
    // Whether replicas must divide the optimizer's work (ZeRO): where each repeated it, as with matrix products,
    // another processor or another number of threads could give one of them other bits.
    virtual bool needs_division() const { return false; }
    // Whether the update is by for_each_owned() alone, so that the CPU can do it for a GPU (parallel.offload).
    virtual bool can_offload() const { return false; }
    // Issues the matrix products of an update of a whole parameter, in the type of the working copies, to have them
    // priced and tuned. Default: none.
    virtual void issue_products(kernels::Backend&, const config::OptimizerSection&, const model::ParameterDescription&,
                                Type) const {}
    // Also built on an imaginary device, to plan memory: the constructor only allocates from arenas and uploads.
    virtual std::unique_ptr<Optimizer> make(const OptimizerSetup& setup) const = 0;
};

// The state in which an optimizer of any type keeps the average of a parameter (optimizer.ema).
inline constexpr const char* average_state = "ema";
// With the average, where there is one.
std::vector<StateDescription> states_of(const OptimizerType& type, bool averages,
                                        const model::ParameterDescription& parameter);
// The matrix products of one update of all these parameters. Those of a parameter must depend on its shape and
// granularity alone.
std::vector<kernels::Operation> products_of_update(const config::OptimizerSection& settings, const OptimizerType& type,
                                                   const std::vector<model::ParameterDescription>& parameters,
                                                   Type of_products, DeviceKind device);
// Elements of all states of the trained parameters.
std::int64_t state_count(const OptimizerType& type, const std::vector<model::ParameterDescription>& parameters,
                         bool averages = false);
// Tensor bytes of a run's checkpoint: parameter values (with checkpoint.adapters_alone the adapters' only), and state.
std::int64_t checkpoint_bytes(const config::RunDescription& run);

}  // namespace lockstep::optim
