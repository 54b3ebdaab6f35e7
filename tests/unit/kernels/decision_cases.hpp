// The cases of a decision about an update that every backend must pass.
#pragma once

#include <algorithm>

#include "reference/decision.hpp"
#include "unit/kernels/support.hpp"

namespace lockstep::kernel_tests {

// decide(decision, loss, sum of squares, zeros, clip, scaling) changes the decision, a Values of 8.
template <class Decide>
void check_decisions(Decide&& decide) {
    using kernels::Decision;
    using kernels::LossScaling;
    const double nan = static_cast<double>(not_a_number), inf = static_cast<double>(infinity);
    const std::pair<double, double> bad_steps[] = {{nan, 1.0}, {1.0, nan}, {inf, 1.0}, {1.0, inf}};
    const auto fresh = [](double scale) {
        Values d(8);
        d[Decision::loss_scale] = scale;
        return d;
    };

    {  // without scaling, whatever the place of the scale holds
        Values d = fresh(64);
        decide(d, 1, 16, 5, 1, LossScaling{});
        BOOST_TEST((d[Decision::proceed] == 1 && d[Decision::gradient_norm] == 4 && d[Decision::updates] == 1));
        BOOST_TEST((d[Decision::factor] == 1 / (4 + 1e-6) && d[Decision::zeros] == 5));
        decide(d, 1, 16, 0, 8, LossScaling{});  // below the clip
        BOOST_TEST((d[Decision::factor] == 1 && d[Decision::zeros] == 0));
        decide(d, 1, 1e30, 0, 0, LossScaling{});
        BOOST_TEST((d[Decision::factor] == 1 && d[Decision::updates] == 3));
        for (const auto& bad : bad_steps) {
            decide(d, bad.first, bad.second, 7, 1, LossScaling{});
            BOOST_TEST((d[Decision::proceed] == 0 && d[Decision::updates] == 3 && d[Decision::zeros] == 7));
        }
        BOOST_TEST((d[Decision::loss_scale] == 64 && d[Decision::good_steps] == 0 && d[Decision::bad_steps] == 0));
    }

    const LossScaling scaling{3, 2, 4.0};
    {  // the norm and the factor are those of the gradients without the scale
        Values d = fresh(8);
        decide(d, 1, 32.0 * 32.0, 0, 1, scaling);
        BOOST_TEST((d[Decision::gradient_norm] == 4 && d[Decision::factor] == 0.125 * (1 / (4 + 1e-6))));
        decide(d, 1, 32.0 * 32.0, 0, 0, scaling);
        BOOST_TEST((d[Decision::gradient_norm] == 4 && d[Decision::factor] == 0.125));
        BOOST_TEST((d[Decision::loss_scale] == 8 && d[Decision::good_steps] == 2));
        decide(d, 1, 32.0 * 32.0, 0, 0, scaling);  // the third good one: the scale that was used is still 8
        BOOST_TEST((d[Decision::gradient_norm] == 4 && d[Decision::loss_scale] == 16 && d[Decision::good_steps] == 0));
        decide(d, 1, 32.0 * 32.0, 0, 0, scaling);
        BOOST_TEST((d[Decision::gradient_norm] == 2 && d[Decision::factor] == 0.0625 && d[Decision::updates] == 4));
    }
    for (const auto& bad : bad_steps) {
        Values d = fresh(32);
        const auto step = [&](bool good) {
            good ? decide(d, 1, 1, 0, 1, scaling) : decide(d, bad.first, bad.second, 0, 1, scaling);
            return Values{d[Decision::loss_scale], d[Decision::good_steps], d[Decision::bad_steps]};
        };
        BOOST_TEST((step(true) == Values{32, 1, 0}));
        BOOST_TEST((step(false) == Values{32, 0, 1}));  // the first is forgiven
        BOOST_TEST((step(true) == Values{32, 1, 1}));   // a good one does not make up for it
        BOOST_TEST((step(false) == Values{16, 0, 2}));
        BOOST_TEST((step(false) == Values{8, 0, 3}));
        BOOST_TEST((step(false) == Values{4, 0, 4}));
        BOOST_TEST((step(false) == Values{4, 0, 5}));  // not below the minimum
        BOOST_TEST(d[Decision::updates] == 2.0);
        BOOST_TEST((step(true) == Values{4, 1, 5}));
        BOOST_TEST((step(true) == Values{4, 2, 5}));
        BOOST_TEST((step(true) == Values{8, 0, 0}));  // the interval is over: all is forgiven again
        BOOST_TEST((step(false) == Values{8, 0, 1}));
    }

    for (const LossScaling& each : {LossScaling{}, LossScaling{1, 0, 1.0}, LossScaling{2, 1, 0.25}, scaling}) {
        Values d = fresh(2);
        reference::Decision expected;
        expected.loss_scale = 2;
        const RandomStream stream(17, "steps");
        for (std::uint64_t i = 0; i < 60; ++i) {
            const double loss = stream.bits(2 * i) % 3 == 0 ? nan : 1, squares = std::exp2(stream.bits(2 * i + 1) % 9);
            decide(d, loss, squares, static_cast<double>(i), 1.5, each);
            expected = reference::decide_update(expected, loss, squares, static_cast<double>(i), 1.5,
                                                static_cast<double>(each.growth_interval),
                                                static_cast<double>(each.hysteresis), each.minimum);
            const Values all = {expected.proceed,    expected.factor,     expected.gradient_norm, expected.updates,
                                expected.loss_scale, expected.good_steps, expected.bad_steps,     expected.zeros};
            for (std::size_t place = 0; place < 8; ++place)
                BOOST_TEST(std::abs(d[place] - all[place]) <= 1e-14 * std::abs(all[place]),
                           "step " << i << ", place " << place);
        }
    }
}

}  // namespace lockstep::kernel_tests
