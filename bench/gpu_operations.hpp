// The operations of a GPU backend with tensors of random values, for the programs that time them (gpu_kernels.cpp) and
// that count what they execute (tests/ptx/report.cpp).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "device/tensor.hpp"
#include "kernels/backend.hpp"

namespace lockstep::bench {

using Run = std::function<void()>;
using Setup = std::function<Run(Arena&)>;  // cuts the tensors, once measuring and once for good

// FLOP are those of the model (kernels/operation_work.hpp), but attention's backward has 2.5 times the forward; bytes
// are those of every tensor read or written once.
struct GpuOperation {
    std::string name, shape;
    Type type;
    double bytes, flop;
    Setup setup;
};

// Every function adds operations to the list. n rows of width d.
class GpuOperations {
  public:
    explicit GpuOperations(kernels::Backend& backend);
    void products(std::int64_t n, std::int64_t in, std::int64_t out, Type type);
    void norms(std::int64_t n, std::int64_t d, Type type);
    void activations(std::int64_t n, std::int64_t d, Type type);
    void embedding(std::int64_t n, std::int64_t d, std::int64_t vocabulary, Type type);
    void small_operations(std::int64_t n, std::int64_t d, Type type);
    void head(std::int64_t rows, std::int64_t vocabulary, Type type);
    void optimizer(std::int64_t count, Type type);
    void attention(const kernels::AttentionShape& shape, Type type);
    void ttt(const kernels::TttShape& shape, Type type);
    void delta(const kernels::DeltaShape& shape, Type type);
    const std::vector<GpuOperation>& list() const { return list_; }

    // Random values; not zeros, on which products run faster than on data.
    Tensor make(Arena& arena, Type type, const Shape& shape, double deviation = 1);

  private:
    Tensor make_ids(Arena& arena, std::int64_t count, std::int64_t below);
    void add(const std::string& name, const std::string& shape, Type type, double bytes, double flop, Setup setup);

    kernels::Backend& backend_;
    std::vector<float> random_;
    std::vector<GpuOperation> list_;
};

}  // namespace lockstep::bench
