// What the cases of communicator_test.cpp and divided_attention_test.cpp run on: host memory and MPI, or a GPU and what
// carries its tensors.
#pragma once

#include <memory>
#include <vector>

#include "cluster/communicator.hpp"
#include "cluster/session.hpp"
#include "device/memory.hpp"
#include "device/tensor.hpp"
#include "kernels/backend.hpp"

namespace lockstep::test {

class Carrier {
  public:
    Carrier() = default;
    Carrier(const Carrier&) = delete;
    Carrier& operator=(const Carrier&) = delete;
    virtual ~Carrier() = default;
    virtual Device device() const = 0;
    // Both ordered with the backend's work, as a backend would issue them.
    virtual void put(Tensor to, const void* from) = 0;
    virtual void get(void* to, Tensor from) = 0;
    virtual cluster::CommunicatorSource& source() = 0;
    virtual std::unique_ptr<kernels::Backend> make_backend() = 0;
};

// Collective; of the program's kind.
std::unique_ptr<Carrier> make_carrier(const cluster::Session& session);

}  // namespace lockstep::test
