#include "model/column_norm.hpp"

namespace lockstep::model {

ColumnNorm::ColumnNorm(const ParameterSet& parameters, const std::string& name, double epsilon,
                       const TensorGroup& group)
    : group_(group),
      epsilon_(static_cast<float>(epsilon)),
      weight_(parameters.value(name + "/weight")),
      bias_(parameters.value(name + "/bias")),
      dweight_(parameters.gradient_or_spare(name + "/weight")),
      dbias_(parameters.gradient_or_spare(name + "/bias")) {}

void ColumnNorm::plan(Arena& arena, Statistics& statistics, std::int64_t rows) const {
    statistics.mean = arena.allocate(Type::fp32, {rows});
    statistics.inverse = arena.allocate(Type::fp32, {rows});
    if (!group_.alone()) statistics.moments = arena.allocate(Type::fp32, {group_.part().size, rows, 2});
}

void ColumnNorm::forward(Backend& backend, Tensor y, const Statistics& statistics, Tensor x) const {
    if (group_.alone()) {
        backend.layer_norm_forward(y, statistics.mean, statistics.inverse, x, {}, weight_, bias_, epsilon_);
        return;
    }
    const std::int64_t rows = x.rows();
    backend.split_norm_moments(statistics.moments.slice(group_.part().rank, 1).reshaped({rows, 2}), x);
    group_.gather(statistics.moments);
    backend.split_norm_statistics(statistics.mean, statistics.inverse, statistics.moments, x.size(-1), epsilon_);
    backend.split_norm_forward(y, x, statistics.mean, statistics.inverse, weight_, bias_);
}

void ColumnNorm::repeat(Backend& backend, Tensor y, const Statistics& statistics, Tensor x) const {
    if (group_.alone()) return forward(backend, y, statistics, x);
    backend.split_norm_forward(y, x, statistics.mean, statistics.inverse, weight_, bias_);
}

void ColumnNorm::backward(Backend& backend, Tensor dx, Tensor dy, Tensor x, const Statistics& statistics) const {
    if (group_.alone()) {
        backend.layer_norm_backward(dx, dweight_, dbias_, dy, x, weight_, statistics.mean, statistics.inverse,
                                    kernels::Accumulate::no);
        return;
    }
    const Tensor sums = statistics.moments.slice(0, 1).reshaped({x.rows(), 2});  // reuses the moments' memory
    backend.split_norm_backward_sums(sums, dweight_, dbias_, dy, x, weight_, statistics.mean, statistics.inverse);
    group_.sum(sums);
    backend.split_norm_backward(dx, dy, x, weight_, statistics.mean, statistics.inverse, sums,
                                x.size(-1) * group_.part().size);
}

}  // namespace lockstep::model
