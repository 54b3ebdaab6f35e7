#include "optim/muon.hpp"

#include <algorithm>
#include <cmath>

#include "optim/registry.hpp"

namespace lockstep::optim {
namespace {

constexpr const char *muon_name = "muon", *velocity = "velocity", *first_moment = "first_moment",
                     *second_moment = "second_moment";
constexpr double most_momentum = 0.9999;
constexpr std::int64_t most_iterations = 20;

// Not embeddings, the head, vectors, and the inner models of TTT, which are matrices of many heads.
bool is_orthogonalized(const model::ParameterDescription& parameter) {
    return parameter.matrix && parameter.shape.size() == 2 && parameter.name.starts_with("blocks/");
}

std::int64_t shorter_side(const Shape& shape) {
    return std::min(shape[0], shape[1]);
}

Tensor columns_or_rows(const Tensor& matrix, const model::Slice& slice) {
    return slice.axis == 0 ? matrix.slice(slice.offset, slice.extent) : matrix.columns(slice.offset, slice.extent);
}

class MuonType final : public OptimizerType {
  public:
    MuonType()
        : OptimizerType(
              muon_name, muon_name,
              {{"momentum", 0.95, "Momentum coefficient.", 0, most_momentum},
               {"nesterov", true, "Nesterov momentum: step along g + momentum · v."},
               {"iterations", std::int64_t{5}, "Newton–Schulz iterations.", 1, most_iterations},
               {"match_adamw", true,
                "Scale the update by 0.2 √max(rows, columns) to match AdamW's, so that AdamW's learning rate and decay "
                "can be reused; false: by √max(1, rows / columns)."}}) {}
    std::vector<StateDescription> states(const model::ParameterDescription& parameter) const override {
        if (is_orthogonalized(parameter)) return {{velocity, parameter.shape, parameter.split}};
        return {{first_moment, parameter.shape, parameter.split}, {second_moment, parameter.shape, parameter.split}};
    }
    Granularity granularity(const model::ParameterDescription& parameter) const override {
        return {is_orthogonalized(parameter) ? Granularity::Unit::matrix : Granularity::Unit::element};
    }
    bool needs_division() const override { return true; }
    // Besides the products' own: the direction is written, normalised and copied back, and the step taken along it.
    double bytes_moved(const model::ParameterDescription& parameter) const override {
        constexpr double elements = 4 + 2 + 2 + 3;
        if (!is_orthogonalized(parameter)) return OptimizerType::bytes_moved(parameter);
        return elements * sizeof(float) * static_cast<double>(element_count(parameter.shape));
    }
    void issue_products(kernels::Backend& counting, const config::OptimizerSection& settings,
                        const model::ParameterDescription& parameter, Type type) const override {
        if (!is_orthogonalized(parameter)) return;
        Tensor x;
        Orthogonalizer orthogonalizer;
        const Arena memory = planned(counting.device(), "a matrix", [&](Arena& arena) {
            x = arena.allocate(Type::fp32, parameter.shape);
            orthogonalizer = Orthogonalizer(arena, type, element_count(parameter.shape), shorter_side(parameter.shape));
        });
        orthogonalizer(counting, x, settings.options.at(muon_name).integer("iterations"));
    }
    std::unique_ptr<Optimizer> make(const OptimizerSetup& setup) const override {
        return std::make_unique<Muon>(setup);
    }
};

}  // namespace

std::unique_ptr<const OptimizerType> make_muon_type() {
    return std::make_unique<MuonType>();
}

Muon::Muon(const OptimizerSetup& setup)
    : Optimizer(optimizer_named(muon_name), setup),
      groups_(setup.backend, setup.parameters, setup.settings),
      ranges_(ranges_of(setup.parameters.layout(), setup.parameters.owned())),
      own_(setup.settings.options.at(muon_name)) {
    std::int64_t most = 0, side = 0;
    for (const ParameterRange& range : ranges_) {
        const model::ParameterDescription& parameter = parameters().descriptions()[range.parameter];
        if (!is_orthogonalized(parameter)) continue;
        most = std::max(most, element_count(parameter.shape));
        side = std::max(side, shorter_side(parameter.shape));
    }
    if (most == 0) return;
    memory_ = planned(setup.backend.device(), "Muon's directions", [&](Arena& arena) {
        whole_ = arena.allocate(Type::fp32, {most});
        if (parameters().layout().part().size > 1) parts_ = arena.allocate(Type::fp32, {most});
        orthogonalizer_ = Orthogonalizer(arena, parameters().compute_type(), most, side);
    });
}

void Muon::apply(double learning_rate) {
    // The ranks of a tensor group own the same matrices, in the same order.
    for (const ParameterRange& range : ranges_)
        if (is_orthogonalized(parameters().descriptions()[range.parameter]))
            step_orthogonally(range, learning_rate);
        else if (range.count > 0)  // not padding alone
            step_as_adamw(range, learning_rate);
}

Muon::Part Muon::part_of(const ParameterRange& range) const {
    using kernels::WeightGroups;
    static_assert(model::ParameterLayout::alignment % WeightGroups::elements_a_word == 0);
    const auto cut = [&](Tensor piece) { return piece.empty() ? piece : piece.slice(range.begin, range.count); };
    return {cut(parameters().owned_value(range.piece)), cut(owned_working(range.piece)),
            cut(owned_gradient(range.piece)),
            groups_.of_piece(range.piece)
                .slice(range.begin / WeightGroups::elements_a_word, WeightGroups::words_for(range.count))};
}

void Muon::step_as_adamw(const ParameterRange& range, double learning_rate) {
    const kernels::AdamWSettings factors{static_cast<float>(learning_rate), static_cast<float>(settings().beta1),
                                         static_cast<float>(settings().beta2), static_cast<float>(settings().epsilon),
                                         groups_.table()};
    const Part part = part_of(range);
    backend().adamw(part.value, part.working, part.gradient, state().of_range(first_moment, range),
                    state().of_range(second_moment, range), part.groups, decision(), factors);
}

void Muon::step_orthogonally(const ParameterRange& range, double learning_rate) {
    const Shape& shape = parameters().descriptions()[range.parameter].shape;
    const Part part = part_of(range);
    backend().momentum_direction(own_part(range), part.gradient, state().of_range(velocity, range), decision(),
                                 static_cast<float>(own_.number("momentum")), own_.flag("nesterov"));
    const auto rows = static_cast<double>(shape[0]), columns = static_cast<double>(shape[1]);
    const double scale =
        own_.flag("match_adamw") ? 0.2 * std::sqrt(std::max(rows, columns)) : std::sqrt(std::max(1.0, rows / columns));
    const kernels::StepSettings factors{static_cast<float>(learning_rate), static_cast<float>(scale), groups_.table()};
    backend().step(part.value, part.working, orthogonalized(range), part.groups, decision(), factors);
}

Muon::Cuts Muon::cuts_of(std::size_t parameter) const {
    const model::ParameterDescription& description = parameters().descriptions()[parameter];
    const model::Part& own = parameters().layout().part();
    Cuts cuts{description.split != model::Split::none && own.size > 1, {0}};
    for (std::int64_t rank = 0; cuts.divided && rank < own.size; ++rank)
        cuts.at.push_back(cuts.at.back() +
                          element_count(model::slice_of(description, model::Part{rank, own.size}).shape));
    return cuts;
}

Tensor Muon::own_part(const ParameterRange& range) const {
    const Cuts cuts = cuts_of(range.parameter);
    if (!cuts.divided) return whole_.slice(0, range.count);
    return parts_.slice(cuts.at[static_cast<std::size_t>(parameters().layout().part().rank)], range.count);
}

Tensor Muon::orthogonalized(const ParameterRange& range) {
    const model::ParameterDescription& parameter = parameters().descriptions()[range.parameter];
    const model::Slice& slice = parameters().layout().slice(range.parameter);
    const Cuts cuts = cuts_of(range.parameter);
    const Tensor whole = whole_.slice(0, element_count(parameter.shape)).reshaped(parameter.shape);
    if (cuts.divided) {
        tensor_group()->begin_all_gather(parts_.slice(0, whole.count()), cuts.at);
        tensor_group()->finish_collectives();
        for (std::int64_t rank = 0; rank < parameters().layout().part().size; ++rank) {
            const model::Slice of_rank = model::slice_of(parameter, {rank, parameters().layout().part().size});
            backend().copy(columns_or_rows(whole, of_rank),
                           parts_.slice(cuts.at[static_cast<std::size_t>(rank)], element_count(of_rank.shape))
                               .reshaped(of_rank.shape));
        }
    }
    backend().copy(whole, orthogonalizer_(backend(), whole, own_.integer("iterations")));
    if (!cuts.divided) return whole.reshaped({range.count});
    backend().copy(own_part(range).reshaped(slice.shape), columns_or_rows(whole, slice));
    return own_part(range);
}

}  // namespace lockstep::optim
