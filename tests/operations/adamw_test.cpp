// The decision about an update, and AdamW.
#define BOOST_TEST_MODULE adamw
#include "reference/adamw.hpp"
#include "operations/support.hpp"
#include "unit/kernels/decision_cases.hpp"

using namespace lockstep;
using namespace lockstep::operation_tests;
using kernels::Decision;

namespace {

using Settings = kernels::AdamWSettings;

// Groups of 16 elements decay in turn: 1 yes, 2 no, 3 yes, 4 no …, so that words and bits both vary.
bool decays(std::int64_t element) {
    std::int64_t group = element / 16, length = 1;
    while (group >= length) group -= length++;
    return length % 2 == 1;
}

Values decay_words(std::int64_t count) {
    Values words;
    for (std::int64_t first = 0; first < count; first += 512) {
        std::uint32_t word = 0;
        for (std::uint32_t bit = 0; bit < 32; ++bit)
            if (decays(first + 16 * bit)) word |= 1u << bit;
        words.push_back(static_cast<double>(static_cast<std::int32_t>(word)));
    }
    return words;
}

Values decision_of(double proceed, double factor, double updates) {
    Values decision(8);
    decision[Decision::proceed] = proceed;
    decision[Decision::factor] = factor;
    decision[Decision::updates] = updates;
    return decision;
}

// What an update works on, all from element `start` of their memory; `behind` more elements must stay as they are.
struct State {
    static constexpr std::int64_t behind = 16;
    std::int64_t size, start;
    Values p, g, m, v;
    OnDevice parameter, gradient, first, second, working, decay;

    State(std::int64_t elements, std::int64_t from, Type type)
        : size(elements),
          start(from),
          p(random_rounded(Type::fp32, static_cast<std::size_t>(size + start + behind), "p")),
          g(random_rounded(Type::fp32, p.size(), "g", 0.01)),
          m(p.size()),
          v(p.size()),
          parameter(Type::fp32, {size + start + behind}, p),
          gradient(Type::fp32, {size + start + behind}, g),
          first(Type::fp32, {size + start + behind}, m),
          second(Type::fp32, {size + start + behind}, v),
          working(type, {size + start + behind}),
          decay(Type::int32, {(size + 511) / 512}, decay_words(size)) {
        working.poison();
    }
    void update(const Tensor& decision, const Settings& settings, bool with_working) {
        const auto cut = [&](const OnDevice& x) { return x.tensor().slice(start, size); };
        backend().adamw(cut(parameter), with_working ? cut(working) : Tensor(), cut(gradient), cut(first), cut(second),
                        decay, decision, settings);
    }
    void update_reference(const Settings& s, double factor, int step) {
        const auto d = [](float value) { return static_cast<double>(value); };
        reference::AdamW settings{d(s.learning_rate), d(s.beta1), d(s.beta2), d(s.epsilon),
                                  d(s.weight_decay),  factor,     step};
        for (std::int64_t i = 0; i < size; ++i) {
            const auto at = static_cast<std::size_t>(start + i);
            Values pi{p[at]}, mi{m[at]}, vi{v[at]};
            settings.weight_decay = decays(i) ? d(s.weight_decay) : 0;
            reference::adamw(pi, {g[at]}, mi, vi, settings);
            p[at] = pi[0];
            m[at] = mi[0];
            v[at] = vi[0];
        }
    }
};

constexpr Settings usual{1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f};

}  // namespace

BOOST_AUTO_TEST_CASE(adamw_follows_the_reference_for_several_steps) {
    for_each_type([](Type type) {
        for (const std::int64_t size : {1, 3, 31, 32, 33, 511, 513, 1023, 1025, 5003})
            for (const std::int64_t start : {0, 1})
                for_each_order([&] {
                    State state(size, start, type);
                    for (int step = 1; step <= 4; ++step) {
                        for (double& value : state.g) value *= -0.75;
                        state.gradient.set(state.g);
                        for (double& value : state.g) value = static_cast<double>(static_cast<float>(value));
                        const OnDevice decision(Type::fp64, {8}, decision_of(1, 0.5, step));
                        state.update(decision, usual, true);
                        state.update_reference(usual, 0.5, step);
                    }
                    const std::string what = fmt::format("{}, {} elements from {}, ", type_name(type), size, start);
                    check_close(state.parameter.values(), state.p, Type::fp32, 5, what + "parameter");
                    check_close(state.first.values(), state.m, Type::fp32, 5, what + "first moment");
                    check_close(state.second.values(), state.v, Type::fp32, 5, what + "second moment");
                    const OnDevice rounded(type, state.parameter.tensor().shape(), state.parameter.values());
                    const Values working = state.working.values(), expected = rounded.values();
                    for (std::size_t i = 0; i < working.size(); ++i) {
                        const auto element = static_cast<std::int64_t>(i) - start;
                        const bool inside = element >= 0 && element < size;
                        if (inside ? working[i] != expected[i] : !std::isnan(working[i]))
                            BOOST_ERROR(what << "working copy, element " << element);
                    }
                    return std::vector{state.parameter.bytes(), state.first.bytes(), state.second.bytes()};
                });
    });
}

BOOST_AUTO_TEST_CASE(a_working_copy_may_be_absent) {
    for_each_backend([] {
        State state(1234, 0, Type::fp32);
        state.update(OnDevice(Type::fp64, {8}, decision_of(1, 1, 1)), usual, false);
        state.update_reference(usual, 1, 1);
        check_close(state.parameter.values(), state.p, Type::fp32, 5, "parameter");
    });
}

BOOST_AUTO_TEST_CASE(nothing_is_written_where_the_decision_says_no) {
    for_each_backend([] {
        State state(1025, 0, Type::bf16);
        const auto parameter = state.parameter.bytes(), first = state.first.bytes(), second = state.second.bytes(),
                   working = state.working.bytes();
        state.update(OnDevice(Type::fp64, {8}, decision_of(0, static_cast<double>(kernel_tests::not_a_number), 3)),
                     usual, true);
        BOOST_TEST((state.parameter.bytes() == parameter && state.first.bytes() == first));
        BOOST_TEST((state.second.bytes() == second && state.working.bytes() == working));
    });
}

BOOST_AUTO_TEST_CASE(an_update_is_decided_from_the_loss_and_the_norm) {
    kernel_tests::check_decisions([](Values& decision, double loss, double squares, double zeros, double clip,
                                     const kernels::LossScaling& scaling) {
        const OnDevice on_device(Type::fp64, {8}, decision);
        backend().decide_update(on_device, OnDevice(Type::fp64, {1}, {loss}),
                                OnDevice(Type::fp64, {2}, {squares, zeros}), clip, scaling);
        decision = on_device.values();
    });
}
