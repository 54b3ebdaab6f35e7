// Documents that share a sequence get the losses and the gradients that each gets alone.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <map>

#include "model/mixers/registry.hpp"
#include "unit/model/small_models.hpp"

using namespace lockstep;

namespace {

struct Packed {
    std::vector<std::int32_t> starts, ends, places;
    explicit Packed(const std::vector<std::int64_t>& lengths) {
        for (const std::int64_t length : lengths) {
            const auto begin = static_cast<std::int32_t>(starts.size());
            starts.insert(starts.end(), static_cast<std::size_t>(length), begin);
            ends.insert(ends.end(), static_cast<std::size_t>(length), begin + static_cast<std::int32_t>(length));
            for (std::int32_t place = 0; place < length; ++place) places.push_back(place);
        }
    }
    std::int64_t length() const { return static_cast<std::int64_t>(starts.size()); }
    Tensor tensor(std::vector<std::int32_t>& list, const Shape& shape) const {
        return {list.data(), Type::int32, shape};
    }
    void set(model::Stage& stage, bool restarts) {
        const Shape rows = {1, length()};
        stage.set_documents(0, {tensor(starts, rows), tensor(ends, rows), 0},
                            restarts ? tensor(places, {length()}) : Tensor());
    }
};

// Of several lengths, within a model's 64 positions; those with TTT begin with a mini-batch.
std::vector<std::int64_t> lengths_for(const config::ModelDescription& model) {
    const std::int64_t alignment = model::document_alignment(model);
    if (alignment == 1) return {7, 1, 30, 12, 3};
    if (alignment > 8) return {alignment, 2 * alignment, alignment};
    return {2 * alignment, alignment, 5 * alignment, alignment};
}

using Gradients = std::map<std::string, std::vector<double>>;

void add_gradients(Gradients& sums, const model::ParameterSet& parameters, double share) {
    for (const auto& parameter : parameters.descriptions()) {
        const Tensor gradient = parameters.gradient(parameter.name);
        std::vector<double>& sum = sums[parameter.name];
        sum.resize(static_cast<std::size_t>(gradient.count()));
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += share * static_cast<double>(gradient.fp32()[i]);
    }
}

void compare(const config::ModelDescription& model, model::Recompute recompute) {
    const bool learned = model.position == config::Position::learned;
    const std::vector<std::int64_t> lengths = lengths_for(model);
    Packed packed(lengths);
    test::Fixture together(model, {1, packed.length()}, true, recompute, learned);
    packed.set(together.stage, learned);
    together.loss(true);
    Gradients expected, actual;
    add_gradients(actual, together.parameters, 1);
    std::int64_t first = 0;
    for (const std::int64_t length : lengths) {
        test::Fixture alone(model, {1, length}, true, recompute, learned);
        std::copy_n(together.ids.begin() + first, length, alone.ids.begin());
        std::copy_n(together.targets.begin() + first, length, alone.targets.begin());
        alone.loss(true);
        for (std::int64_t t = 0; t < length; ++t) {
            const auto at = static_cast<std::size_t>(t);
            BOOST_TEST(std::abs(together.losses[at + static_cast<std::size_t>(first)] - alone.losses[at]) < 2e-5,
                       "token " << t << " of the document at " << first << ": "
                                << together.losses[at + static_cast<std::size_t>(first)] << ", alone "
                                << alone.losses[at]);
        }
        add_gradients(expected, alone.parameters, static_cast<double>(length) / static_cast<double>(packed.length()));
        first += length;
    }
    double all = 0;
    for (const auto& [name, values] : expected)
        for (const double value : values) all += value * value;
    for (const auto& [name, values] : expected) {
        double distance = 0;
        for (std::size_t i = 0; i < values.size(); ++i) distance += std::pow(values[i] - actual[name][i], 2);
        BOOST_TEST(std::sqrt(distance / all) < 1e-5, name << " is off by " << std::sqrt(distance / all));
    }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(documents)

BOOST_AUTO_TEST_CASE(share_a_sequence_as_if_alone) {
    for (const auto& [name, model] : test::all_kinds()) BOOST_TEST_CONTEXT(name) {
            compare(model, model::Recompute::none);
            compare(model, model::Recompute::full);
        }
}

// A slot's documents are those that were set last.
BOOST_AUTO_TEST_CASE(are_joined_again_when_none_are_set) {
    test::Fixture fixture(test::small_model("attention"), {1, 20});
    const double joined = fixture.loss(false);
    Packed packed({8, 12});
    packed.set(fixture.stage, false);
    BOOST_TEST(std::abs(fixture.loss(false) - joined) > 1e-3);
    fixture.stage.set_documents(0, {}, {});
    BOOST_TEST(fixture.loss(false) == joined);
}

BOOST_AUTO_TEST_SUITE_END()
