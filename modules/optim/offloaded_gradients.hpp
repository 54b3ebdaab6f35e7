// Where the CPU updates parameters for a GPU: gradients and the decision, copied to host memory piece by piece. A few
// buffers take turns, so that pieces go both ways while the CPU updates others.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "device/memory.hpp"
#include "kernels/backend.hpp"
#include "model/parameters.hpp"

namespace lockstep::optim {

class OffloadedGradients {
  public:
    // The parameters, which are offloaded, outlive it.
    OffloadedGradients(kernels::Backend& backend, const model::ParameterSet& parameters);

    // Begins to copy what the device has computed. Pieces must then be waited for in their order, those without
    // elements left out.
    void fetch(Tensor decision);
    // Until the piece's gradient, and the decision, are in host memory. The piece before it is no longer needed.
    void wait(std::size_t piece);
    Tensor gradient(std::size_t piece) const;      // fp32, flat
    Tensor decision() const { return decision_; }  // fp64, laid out as kernels::Decision
    std::size_t bytes() const { return memory_.capacity(); }

  private:
    static constexpr std::size_t buffer_count = 3;
    void begin(std::size_t place);

    kernels::Backend& backend_;
    const model::ParameterSet& parameters_;
    std::vector<std::size_t> pieces_;  // with elements
    std::vector<std::size_t> places_;  // of each piece among these
    Arena memory_;
    Tensor decision_, device_decision_;
    std::array<Tensor, buffer_count> buffers_;
    std::vector<std::unique_ptr<kernels::Later>> copied_;  // by place: the decision, read behind the piece's gradient
};

}  // namespace lockstep::optim
