#include "exchange/adapter_merge.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/stream.hpp"
#include "model/adapters.hpp"
#include "model/parameter_description.hpp"

namespace lockstep::exchange {
namespace {

constexpr std::uint64_t bytes_at_once = std::uint64_t{32} << 20;

// A stream gives each run of elements to one rank.
std::vector<double> read_on_all(const std::string& checkpoint, const std::string& tensor, const Shape& shape,
                                cluster::HostGroup& group) {
    std::vector<double> all(static_cast<std::size_t>(element_count(shape)), 0);
    checkpoint::read_through(
        checkpoint, tensor, bytes_at_once,
        [&](const checkpoint::TensorInfo& found, std::int64_t first, std::int64_t count, const float* values) {
            LOCKSTEP_ASSERT(found.path == tensor);
            std::copy_n(values, count, all.begin() + first);
        },
        group);
    group.all_reduce(all, cluster::Reduce::sum);
    return all;
}

}  // namespace

AdapterMerge::AdapterMerge(const std::string& checkpoint, const config::ModelDescription& model, bool averages,
                           cluster::HostGroup& group)
    : rank_(model.adapters.rank) {
    if (rank_ == 0) return;
    scale_ = model::adapter_scale(model);
    const std::string prefix = averages ? checkpoint::averages_prefix : checkpoint::parameters_prefix;
    for (const auto& parameter : model::describe_parameters(model, model::whole_model(model))) {
        if (!model::is_adapter(parameter.name)) continue;
        const bool is_a = parameter.name.ends_with(model::adapter_a);
        const std::string layer = parameter.name.substr(0, parameter.name.rfind('/'));
        Factors& factors = factors_[layer + "/weight"];
        if (is_a) factors.in = parameter.shape[1];
        (is_a ? factors.a : factors.b) = read_on_all(checkpoint, prefix + parameter.name, parameter.shape, group);
    }
}

const float* AdapterMerge::apply(const std::string& parameter, std::int64_t first, std::int64_t count,
                                 const float* values, std::vector<float>& merged) const {
    const auto found = factors_.find(parameter);
    if (found == factors_.end()) return values;
    const Factors& factors = found->second;
    merged.assign(values, values + count);
    for (std::int64_t element = 0; element < count; ++element) {
        const std::int64_t row = (first + element) / factors.in, column = (first + element) % factors.in;
        double sum = 0;
        for (std::int64_t k = 0; k < rank_; ++k)
            sum += factors.b[static_cast<std::size_t>(row * rank_ + k)] *
                   factors.a[static_cast<std::size_t>(k * factors.in + column)];
        merged[static_cast<std::size_t>(element)] += static_cast<float>(scale_ * sum);
    }
    return merged.data();
}

}  // namespace lockstep::exchange
