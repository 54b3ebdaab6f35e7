// A backend that computes nothing and keeps the operations with matrix products, to be repeated on scratch memory. An
// operation with a product that is missing here is not timed.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

#include "kernels/counting_backend.hpp"

namespace lockstep::kernels::cuda {

struct ProductCall {
    std::string name;  // of the operation, with all that is no tensor
    std::vector<Tensor> tensors;
    std::function<void(Backend&, const std::vector<Tensor>&)> repeat;  // with tensors of the same layout
};

class ProductLister final : public CountingBackend {
  public:
    ProductLister() : CountingBackend(DeviceKind::cuda) {}
    const std::vector<ProductCall>& calls() const { return calls_; }

    void product(Tensor c, Tensor a, Transpose transpose_a, Tensor b, Transpose transpose_b,
                 Accumulate accumulate) override {
        calls_.push_back({fmt::format("product {}{}{}", transpose_a == Transpose::yes, transpose_b == Transpose::yes,
                                      accumulate == Accumulate::yes),
                          {c, a, b},
                          [=](Backend& backend, const std::vector<Tensor>& at) {
                              backend.product(at[0], at[1], transpose_a, at[2], transpose_b, accumulate);
                          }});
    }
    void linear_forward(Tensor y, Tensor x, Tensor weight, Tensor bias, Tensor residual) override {
        calls_.push_back(
            {"linear_forward", {y, x, weight, bias, residual}, [](Backend& backend, const std::vector<Tensor>& at) {
                 backend.linear_forward(at[0], at[1], at[2], at[3], at[4]);
             }});
    }
    void linear_gelu_forward(Tensor y, Tensor before, Tensor x, Tensor weight, Tensor bias) override {
        calls_.push_back(
            {"linear_gelu_forward", {y, before, x, weight, bias}, [](Backend& backend, const std::vector<Tensor>& at) {
                 backend.linear_gelu_forward(at[0], at[1], at[2], at[3], at[4]);
             }});
    }
    void linear_gelu_backward(Tensor dbefore, Tensor dy, Tensor weight, Tensor before) override {
        calls_.push_back({"linear_gelu_backward",
                          {dbefore, dy, weight, before},
                          [](Backend& backend, const std::vector<Tensor>& at) {
                              backend.linear_gelu_backward(at[0], at[1], at[2], at[3]);
                          }});
    }
    void linear_backward_parameters(Tensor dweight, Tensor dbias, Tensor dy, Tensor x, Accumulate accumulate) override {
        calls_.push_back({fmt::format("linear_backward_parameters {}", accumulate == Accumulate::yes),
                          {dweight, dbias, dy, x},
                          [=](Backend& backend, const std::vector<Tensor>& at) {
                              backend.linear_backward_parameters(at[0], at[1], at[2], at[3], accumulate);
                          }});
    }

  private:
    std::vector<ProductCall> calls_;
};

}  // namespace lockstep::kernels::cuda
