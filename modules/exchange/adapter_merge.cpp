#include "exchange/adapter_merge.hpp"

#include <algorithm>
#include <map>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/stream.hpp"
#include "cluster/agree.hpp"
#include "device/parallel.hpp"
#include "model/adapters.hpp"
#include "model/parameter_description.hpp"

namespace lockstep::exchange {
namespace {

constexpr std::uint64_t bytes_at_once = std::uint64_t{32} << 20;

}  // namespace

AdapterMerge::AdapterMerge(const std::string& checkpoint, const config::ModelDescription& model, bool averages,
                           cluster::HostGroup& group)
    : rank_(model.adapters.rank) {
    if (rank_ == 0) return;
    scale_ = model::adapter_scale(model);
    const std::string prefix = averages ? checkpoint::averages_prefix : checkpoint::parameters_prefix;
    std::vector<checkpoint::TensorInfo> tensors;
    std::map<std::string, std::vector<double>*> values_of;
    for (const auto& parameter : model::describe_parameters(model, model::whole_model(model))) {
        if (!model::is_adapter(parameter.name)) continue;
        const bool is_a = parameter.name.ends_with(model::adapter_a);
        Factors& factors = factors_[model::adapted_layer(parameter.name) + "/weight"];
        if (is_a) factors.in = parameter.shape[1];
        std::vector<double>& values = is_a ? factors.a : factors.b;
        values.assign(static_cast<std::size_t>(element_count(parameter.shape)), 0);
        tensors.push_back({prefix + parameter.name, parameter.shape});
        values_of[tensors.back().path] = &values;
    }
    // Each run of elements is read by one rank.
    const checkpoint::Source source = checkpoint::source_of(checkpoint, prefix, group);
    cluster::together(group, [&] {
        checkpoint::pass_through(
            tensors, source, bytes_at_once,
            [&](const checkpoint::TensorInfo& tensor, std::int64_t first, std::int64_t count, const float* values) {
                checkpoint::check_finite(checkpoint, tensor.path, values, count);
                std::copy_n(values, count, values_of.at(tensor.path)->begin() + first);
            },
            group);
    });
    for (const checkpoint::TensorInfo& tensor : tensors)
        group.all_reduce(*values_of.at(tensor.path), cluster::Reduce::sum);
}

void AdapterMerge::add_to(const std::string& parameter, std::int64_t first, std::int64_t count, float* values) const {
    const auto found = factors_.find(parameter);
    if (found == factors_.end()) return;
    const Factors& factors = found->second;
    const std::int64_t in = factors.in, first_row = first / in, last_row = (first + count - 1) / in;
    parallel_for(last_row + 1 - first_row, 1, [&](std::int64_t from, std::int64_t until, int) {
        std::vector<double> sums(static_cast<std::size_t>(in));
        for (std::int64_t row = first_row + from; row < first_row + until; ++row) {
            std::fill(sums.begin(), sums.end(), 0);
            for (std::int64_t k = 0; k < rank_; ++k) {
                const double factor = scale_ * factors.b[static_cast<std::size_t>(row * rank_ + k)];
                const double* of_a = factors.a.data() + k * in;
                for (std::int64_t column = 0; column < in; ++column)
                    sums[static_cast<std::size_t>(column)] += factor * of_a[column];
            }
            // The run may begin and end within a row.
            const std::int64_t begin = std::max(first, row * in), end = std::min(first + count, (row + 1) * in);
            for (std::int64_t element = begin; element < end; ++element)
                values[element - first] += static_cast<float>(sums[static_cast<std::size_t>(element - row * in)]);
        }
    });
}

}  // namespace lockstep::exchange
