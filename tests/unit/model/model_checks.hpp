// What every mixer must pass: gradients against finite differences, decoding against the parallel form.
#pragma once

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <vector>

#include "model/decoder.hpp"
#include "unit/model/small_models.hpp"

namespace lockstep::test {

// Along the direction of the gradient itself the loss must change by |gradient| per unit: a number far above the
// rounding of fp32 unless the gradient is all but zero.
inline void check_gradients(const config::ModelDescription& model, const model::PassShape& shape) {
    Fixture fixture(model, shape);
    fixture.loss(true);
    for (const auto& parameter : fixture.parameters.descriptions()) {
        const Tensor value = fixture.parameters.value(parameter.name),
                     gradient = fixture.parameters.gradient(parameter.name);
        if (gradient.empty()) continue;  // frozen
        double square = 0;
        for (std::int64_t i = 0; i < gradient.count(); ++i)
            square += static_cast<double>(gradient.fp32()[i]) * gradient.fp32()[i];
        const double norm = std::sqrt(square);
        if (norm < 1e-4) continue;  // a key bias of attention: its true gradient is zero
        const std::vector<float> kept(value.fp32(), value.fp32() + value.count());
        // Four points cancel the third derivative; the step moves the loss by about 1e-2.
        const double step = std::min(0.02, 5e-3 / norm);
        const auto loss_at = [&](double factor) {
            for (std::int64_t i = 0; i < value.count(); ++i)
                value.fp32()[i] =
                    static_cast<float>(kept[static_cast<std::size_t>(i)] + factor * step * gradient.fp32()[i] / norm);
            return fixture.loss(false);
        };
        const double minus2 = loss_at(-2), minus1 = loss_at(-1), plus1 = loss_at(1), plus2 = loss_at(2);
        const double slope = (minus2 - 8 * minus1 + 8 * plus1 - plus2) / (12 * step);
        // fp32 losses near 4 carry about 1e-6; over the step that is 1e-6 / step.
        const double allowed = 5e-3 * norm + 2e-6 / step;
        BOOST_TEST(std::abs(slope - norm) < allowed,
                   parameter.name << ": gradient " << norm << ", finite difference " << slope);
        std::copy(kept.begin(), kept.end(), value.fp32());
    }
}

// As a step does it: cleared but for what the first pass overwrites, which may be anything.
inline void check_first_pass(const config::ModelDescription& model, const model::PassShape& shape) {
    Fixture cleared(model, shape), written(model, shape);
    cleared.loss(true);
    cleared.loss(true);
    const Tensor expected = cleared.parameters.all_gradients(), actual = written.parameters.all_gradients();
    for (int step = 0; step < 2; ++step) {
        if (step == 0) written.backend->fill(actual, std::nanf(""));
        written.parameters.clear_gradients(*written.backend);
        written.parameters.set_first_pass(true);
        written.loss(true);
        written.parameters.set_first_pass(false);
        written.loss(true);
        BOOST_TEST((std::equal(actual.fp32(), actual.fp32() + actual.count(), expected.fp32())), "step " << step);
    }
}

// The largest difference of logits, at the ends of pieces fed one after another.
inline double worst_decoding_difference(const config::ModelDescription& model,
                                        const std::vector<std::int64_t>& pieces) {
    std::int64_t length = 0;
    for (const auto piece : pieces) length += piece;
    Fixture fixture(model, {1, length}, false);
    fixture.stage.forward(0, fixture.id_tensor());
    std::vector<float> expected(static_cast<std::size_t>(length * model.vocabulary));
    fixture.stage.logits(0, Tensor(expected.data(), Type::fp32, {length, model.vocabulary}));

    model::Decoder decoder(*fixture.backend, fixture.parameters, model, length);
    double worst = 0;
    std::int64_t position = 0;
    for (const auto piece : pieces) {
        const auto first = fixture.ids.begin() + position;
        const std::vector<float>& logits = decoder.feed({first, first + piece});
        position += piece;
        for (std::int64_t v = 0; v < model.vocabulary; ++v)
            worst =
                std::max(worst, std::abs(static_cast<double>(logits[static_cast<std::size_t>(v)]) -
                                         expected[static_cast<std::size_t>((position - 1) * model.vocabulary + v)]));
    }
    BOOST_TEST(decoder.position() == length);
    return worst;
}

}  // namespace lockstep::test
