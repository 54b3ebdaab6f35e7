#pragma once

#include <algorithm>
#include <cmath>

#include "reference/values.hpp"

namespace lockstep::reference {

struct Decision {
    double proceed = 0, factor = 0, gradient_norm = 0, updates = 0, loss_scale = 1, good_steps = 0, bad_steps = 0,
           zeros = 0;
};

// growth_interval 0: the gradients are not scaled.
inline Decision decide_update(Decision d, double loss, double sum_of_squares, double zeros, double clip,
                              double growth_interval, double hysteresis, double minimum) {
    const double scale = growth_interval > 0 ? d.loss_scale : 1;
    d.gradient_norm = std::sqrt(sum_of_squares) / scale;
    d.factor = (clip > 0 ? std::min(1.0, clip / (d.gradient_norm + 1e-6)) : 1) / scale;
    d.zeros = zeros;
    const bool good = std::isfinite(loss) && std::isfinite(sum_of_squares);
    d.proceed = good ? 1 : 0;
    d.updates += d.proceed;
    if (growth_interval == 0) return d;
    if (good && ++d.good_steps == growth_interval) {
        d.loss_scale *= 2;
        d.good_steps = d.bad_steps = 0;
    }
    if (!good) {
        d.good_steps = 0;
        if (++d.bad_steps >= hysteresis) d.loss_scale = std::max(minimum, d.loss_scale / 2);
    }
    return d;
}

}  // namespace lockstep::reference
