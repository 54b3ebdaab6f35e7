// Gated DeltaNet in double precision, token by token: its gates, and the gated delta rule forward and backward.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "reference/activation.hpp"

namespace lockstep::reference {

inline double softplus(double x) {
    return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}

// decay_logit, strength_logit [N, H]; log_rate, decay_bias [H].
struct DeltaGates {
    Values decay_logit, strength_logit, log_rate, decay_bias;
};
struct DeltaGated {
    Values log_decay, strength;  // [N, H]
};

inline DeltaGated delta_gates_forward(const DeltaGates& gates) {
    DeltaGated out;
    for (std::size_t i = 0; i < gates.decay_logit.size(); ++i) {
        const std::size_t head = i % gates.log_rate.size();
        out.log_decay.push_back(-std::exp(gates.log_rate[head]) *
                                softplus(gates.decay_logit[i] + gates.decay_bias[head]));
        out.strength.push_back(sigmoid(gates.strength_logit[i]));
    }
    return out;
}

// The gradients in the places of the inputs; `d`: of the outputs.
inline DeltaGates delta_gates_backward(const DeltaGates& gates, const DeltaGated& d) {
    const std::size_t heads = gates.log_rate.size();
    DeltaGates out{{}, {}, Values(heads), Values(heads)};
    for (std::size_t i = 0; i < gates.decay_logit.size(); ++i) {
        const std::size_t head = i % heads;
        const double sum = gates.decay_logit[i] + gates.decay_bias[head], rate = -std::exp(gates.log_rate[head]);
        const double strength = sigmoid(gates.strength_logit[i]), dsum = d.log_decay[i] * rate * sigmoid(sum);
        out.decay_logit.push_back(dsum);
        out.strength_logit.push_back(d.strength[i] * strength * (1 - strength));
        out.log_rate[head] += d.log_decay[i] * rate * softplus(sum);
        out.decay_bias[head] += dsum;
    }
    return out;
}

struct DeltaProblem {
    std::size_t batch = 1, length = 1, heads = 1, key_heads = 1, key_width = 1, value_width = 1;
    // q, k [B·L, G·fk]; v [B·L, H·fv]; log_decay, strength [B·L, H]; initial [B, H, fk, fv], or empty: zeros.
    Values q, k, v, log_decay, strength, initial;

    std::size_t state_size() const { return key_width * value_width; }
    std::size_t gate(std::size_t b, std::size_t t, std::size_t h) const { return (b * length + t) * heads + h; }
    std::size_t value(std::size_t b, std::size_t t, std::size_t h) const { return gate(b, t, h) * value_width; }
    std::size_t key(std::size_t b, std::size_t t, std::size_t h) const {
        return ((b * length + t) * key_heads + h / (heads / key_heads)) * key_width;
    }
};

inline std::vector<Values*> arrays_of(DeltaProblem& p) {
    return {&p.q, &p.k, &p.v, &p.log_decay, &p.strength, &p.initial};
}

namespace delta {

// One head of one sequence: what a token does to the state S [fk, fv].
struct Step {
    Values decayed, error, update, state;  // exp(log_decay) S, v - (decayed)ᵀ k, strength error, and S after the token
};

// sᵀ x and s x.
inline Values from_keys(const Values& s, const double* x, std::size_t keys, std::size_t values) {
    Values y(values);
    for (std::size_t r = 0; r < keys; ++r)
        for (std::size_t c = 0; c < values; ++c) y[c] += s[r * values + c] * x[r];
    return y;
}
inline Values from_values(const Values& s, const double* x, std::size_t keys, std::size_t values) {
    Values y(keys);
    for (std::size_t r = 0; r < keys; ++r)
        for (std::size_t c = 0; c < values; ++c) y[r] += s[r * values + c] * x[c];
    return y;
}
// s += sign a bᵀ
inline void add_outer(Values& s, double sign, const double* a, const double* b, std::size_t keys, std::size_t values) {
    for (std::size_t r = 0; r < keys; ++r)
        for (std::size_t c = 0; c < values; ++c) s[r * values + c] += sign * a[r] * b[c];
}
inline void add(Values& x, std::size_t at, double sign, const Values& part) {
    for (std::size_t i = 0; i < part.size(); ++i) x[at + i] += sign * part[i];
}
inline Values scaled(double factor, Values x) {
    for (double& value : x) value *= factor;
    return x;
}

inline Values initial_state(const DeltaProblem& p, const Values& states, std::size_t sequence, std::size_t head) {
    if (states.empty()) return Values(p.state_size());
    const auto first = states.begin() + static_cast<std::ptrdiff_t>((sequence * p.heads + head) * p.state_size());
    return {first, first + static_cast<std::ptrdiff_t>(p.state_size())};
}

// All tokens of a head; y receives its rows.
inline std::vector<Step> scan(const DeltaProblem& p, std::size_t sequence, std::size_t head, Values& y) {
    std::vector<Step> steps;
    Values state = initial_state(p, p.initial, sequence, head);
    for (std::size_t t = 0; t < p.length; ++t) {
        const std::size_t gate = p.gate(sequence, t, head), value = p.value(sequence, t, head);
        const double *q = &p.q[p.key(sequence, t, head)], *k = &p.k[p.key(sequence, t, head)];
        Step step;
        step.decayed = scaled(std::exp(p.log_decay[gate]), state);
        step.error = scaled(-1, from_keys(step.decayed, k, p.key_width, p.value_width));
        for (std::size_t c = 0; c < p.value_width; ++c) step.error[c] += p.v[value + c];
        step.update = scaled(p.strength[gate], step.error);
        step.state = step.decayed;
        add_outer(step.state, 1, k, step.update.data(), p.key_width, p.value_width);
        add(y, value, 1, from_keys(step.state, q, p.key_width, p.value_width));
        state = step.state;
        steps.push_back(std::move(step));
    }
    return steps;
}

}  // namespace delta

// `final_state`, where given, becomes the states behind the last tokens [B, H, fk, fv].
inline Values delta_forward(const DeltaProblem& p, Values* final_state = nullptr) {
    Values y(p.v.size());
    if (final_state) final_state->clear();
    for (std::size_t sequence = 0; sequence < p.batch; ++sequence)
        for (std::size_t head = 0; head < p.heads; ++head) {
            const Values last = delta::scan(p, sequence, head, y).back().state;
            if (final_state) final_state->insert(final_state->end(), last.begin(), last.end());
        }
    return y;
}

// The gradients of Σ y⊙dy + Σ final⊙dfinal, in the places of the inputs; dfinal may be empty.
inline DeltaProblem delta_backward(const DeltaProblem& p, const Values& dy, const Values& dfinal = {}) {
    using namespace delta;
    DeltaProblem d = p;
    for (Values* x : arrays_of(d)) x->assign(x->size(), 0.0);
    const std::size_t fk = p.key_width, fv = p.value_width;
    Values y(p.v.size());
    for (std::size_t sequence = 0; sequence < p.batch; ++sequence)
        for (std::size_t head = 0; head < p.heads; ++head) {
            const std::vector<Step> steps = scan(p, sequence, head, y);
            Values dstate = initial_state(p, dfinal, sequence, head);  // of the state after the token
            for (std::size_t t = p.length; t-- > 0;) {
                const Step& step = steps[t];
                const std::size_t gate = p.gate(sequence, t, head), value = p.value(sequence, t, head);
                const std::size_t key = p.key(sequence, t, head);
                const double *q = &p.q[key], *k = &p.k[key], *dout = &dy[value];
                // y = Sᵀ q
                add(d.q, key, 1, from_values(step.state, dout, fk, fv));
                add_outer(dstate, 1, q, dout, fk, fv);
                // S = decayed + k updateᵀ
                add(d.k, key, 1, from_values(dstate, step.update.data(), fk, fv));
                const Values dupdate = from_keys(dstate, k, fk, fv);
                // update = strength error
                d.strength[gate] = dot(dupdate, step.error);
                const Values derror = scaled(p.strength[gate], dupdate);
                // error = v - decayedᵀ k
                add(d.v, value, 1, derror);
                add(d.k, key, -1, from_values(step.decayed, derror.data(), fk, fv));
                add_outer(dstate, -1, k, derror.data(), fk, fv);
                // decayed = exp(log_decay) S
                d.log_decay[gate] = dot(dstate, step.decayed);
                dstate = scaled(std::exp(p.log_decay[gate]), dstate);
            }
            if (!p.initial.empty()) add(d.initial, (sequence * p.heads + head) * p.state_size(), 1, dstate);
        }
    return d;
}

}  // namespace lockstep::reference
