// LayerNorm of rows whose columns are divided over a tensor group: row statistics are combined from the ranks' parts.
#pragma once

#include <cstdint>
#include <string>

#include "model/parameters.hpp"
#include "model/tensor_group.hpp"

namespace lockstep::model {

class ColumnNorm {
  public:
    struct Statistics {
        Tensor mean, inverse;  // [N], of whole rows
        Tensor moments;        // [R, N, 2], of every rank; only with several ranks
    };
    ColumnNorm(const ParameterSet& parameters, const std::string& name, double epsilon, const TensorGroup& group);
    void plan(Arena& arena, Statistics& statistics, std::int64_t rows) const;
    // y, x [N, d'], this rank's columns
    void forward(Backend& backend, Tensor y, const Statistics& statistics, Tensor x) const;
    // y once more, from x and the statistics that forward has left.
    void repeat(Backend& backend, Tensor y, const Statistics& statistics, Tensor x) const;
    // dx is overwritten
    void backward(Backend& backend, Tensor dx, Tensor dy, Tensor x, const Statistics& statistics) const;

  private:
    const TensorGroup& group_;
    float epsilon_;
    Tensor weight_, bias_, dweight_, dbias_;
};

}  // namespace lockstep::model
