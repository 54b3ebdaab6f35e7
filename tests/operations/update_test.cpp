// The decision about an update, AdamW, and momentum.
#define BOOST_TEST_MODULE update
#include "reference/update.hpp"
#include "operations/support.hpp"
#include "unit/kernels/decision_cases.hpp"

using namespace lockstep;
using namespace lockstep::operation_tests;
using kernels::Decision;
using kernels::WeightGroup;
using kernels::WeightGroups;

namespace {

// Runs of 16 elements: one of group 0, two of group 1, three of group 2 …, so that words and places in them vary.
std::size_t group_of(std::int64_t element) {
    std::int64_t run = element / 16, length = 1;
    while (run >= length) run -= length++;
    return static_cast<std::size_t>((length - 1) % WeightGroups::most);
}

Values group_words(std::int64_t count) {
    Values words;
    for (std::int64_t first = 0; first < count; first += 128) {
        std::uint32_t word = 0;
        for (std::uint32_t run = 0; run < 8; ++run)
            word |= static_cast<std::uint32_t>(group_of(first + 16 * run)) << (4 * run);
        words.push_back(static_cast<double>(static_cast<std::int32_t>(word)));
    }
    return words;
}

// Every group its own rate and decay; the first is plain, the second does not decay.
WeightGroups::Table different_groups() {
    WeightGroups::Table groups;
    for (std::size_t i = 0; i < groups.size(); ++i)
        groups[i] = {1 - 0.05f * static_cast<float>(i), i == 1 ? 0.0f : 0.1f + 0.02f * static_cast<float>(i)};
    return groups;
}

Values decision_of(double proceed, double factor, double updates) {
    Values decision(8);
    decision[Decision::proceed] = proceed;
    decision[Decision::factor] = factor;
    decision[Decision::updates] = updates;
    return decision;
}

double d(float value) {
    return static_cast<double>(value);
}

// What an update works on, all from element `start` of their memory; `behind` more elements must stay as they are.
struct State {
    static constexpr std::int64_t behind = 16;
    std::int64_t size, start;
    Values p, g, m, v;
    OnDevice parameter, gradient, first, second, working, groups;

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
          groups(Type::int32, {WeightGroups::words_for(size)}, group_words(size)) {
        working.poison();
    }
    Tensor cut(const OnDevice& x) const { return x.tensor().slice(start, size); }
    void next_gradient() {
        for (double& value : g) value *= -0.75;
        gradient.set(g);
        for (double& value : g) value = d(static_cast<float>(value));
    }
    // update(p, g, m, v, group) of each element, all of them single numbers.
    template <class Update>
    void each(const Update& update) {
        for (std::int64_t i = 0; i < size; ++i) {
            const auto at = static_cast<std::size_t>(start + i);
            Values pi{p[at]}, mi{m[at]}, vi{v[at]};
            update(pi, {g[at]}, mi, vi, group_of(i));
            p[at] = pi[0];
            m[at] = mi[0];
            v[at] = vi[0];
        }
    }
    void check(const std::string& what) const {
        check_close(parameter.values(), p, Type::fp32, 5, what + "parameter");
        check_close(first.values(), m, Type::fp32, 5, what + "first state");
        check_close(second.values(), v, Type::fp32, 5, what + "second state");
        const OnDevice rounded(working.tensor().type(), parameter.tensor().shape(), parameter.values());
        const Values found = working.values(), expected = rounded.values();
        for (std::size_t i = 0; i < found.size(); ++i) {
            const auto element = static_cast<std::int64_t>(i) - start;
            const bool inside = element >= 0 && element < size;
            if (inside ? found[i] != expected[i] : !std::isnan(found[i]))
                BOOST_ERROR(what << "working copy, element " << element);
        }
    }
};

struct AdamWCase {
    kernels::AdamWSettings settings{1e-2f, 0.9f, 0.95f, 1e-8f, different_groups()};
    void update(State& state, const Tensor& decision, bool with_working) const {
        backend().adamw(state.cut(state.parameter), with_working ? state.cut(state.working) : Tensor(),
                        state.cut(state.gradient), state.cut(state.first), state.cut(state.second), state.groups,
                        decision, settings);
    }
    void update_reference(State& state, double factor, int step) const {
        state.each([&](Values& p, const Values& g, Values& m, Values& v, std::size_t number) {
            const WeightGroup& group = settings.groups[number];
            reference::adamw(p, g, m, v,
                             {d(settings.learning_rate) * d(group.rate_factor), d(settings.beta1), d(settings.beta2),
                              d(settings.epsilon), d(group.decay), factor, step});
        });
    }
};

struct MomentumCase {
    kernels::MomentumSettings settings{1e-1f, 0.9f, false, different_groups()};
    explicit MomentumCase(bool nesterov) { settings.nesterov = nesterov; }
    void update(State& state, const Tensor& decision, bool with_working) const {
        backend().momentum(state.cut(state.parameter), with_working ? state.cut(state.working) : Tensor(),
                           state.cut(state.gradient), state.cut(state.first), state.groups, decision, settings);
    }
    void update_reference(State& state, double factor, int) const {
        state.each([&](Values& p, const Values& g, Values& m, Values&, std::size_t number) {
            const WeightGroup& group = settings.groups[number];
            reference::momentum(p, g, m,
                                {d(settings.learning_rate) * d(group.rate_factor), d(settings.momentum), d(group.decay),
                                 factor, settings.nesterov});
        });
    }
};

template <class Case>
void follow_the_reference(const Case& rule) {
    for_each_type([&](Type type) {
        for (const std::int64_t size : {1, 3, 15, 16, 17, 127, 129, 511, 1025, 5003})
            for (const std::int64_t start : {0, 1})
                for_each_order([&] {
                    State state(size, start, type);
                    for (int step = 1; step <= 4; ++step) {
                        state.next_gradient();
                        const OnDevice decision(Type::fp64, {8}, decision_of(1, 0.5, step));
                        rule.update(state, decision, true);
                        rule.update_reference(state, 0.5, step);
                    }
                    state.check(fmt::format("{}, {} elements from {}, ", type_name(type), size, start));
                    return std::vector{state.parameter.bytes(), state.first.bytes(), state.second.bytes()};
                });
    });
}

template <class Case>
void leave_out_the_working_copy(const Case& rule) {
    for_each_backend([&] {
        State state(1234, 0, Type::fp32);
        rule.update(state, OnDevice(Type::fp64, {8}, decision_of(1, 1, 1)), false);
        rule.update_reference(state, 1, 1);
        check_close(state.parameter.values(), state.p, Type::fp32, 5, "parameter");
    });
}

template <class Case>
void write_nothing_where_the_decision_says_no(const Case& rule) {
    for_each_backend([&] {
        State state(1025, 0, Type::bf16);
        const auto parameter = state.parameter.bytes(), first = state.first.bytes(), second = state.second.bytes(),
                   working = state.working.bytes();
        rule.update(
            state, OnDevice(Type::fp64, {8}, decision_of(0, static_cast<double>(kernel_tests::not_a_number), 3)), true);
        BOOST_TEST((state.parameter.bytes() == parameter && state.first.bytes() == first));
        BOOST_TEST((state.second.bytes() == second && state.working.bytes() == working));
    });
}

// Muon's step, without what makes the direction orthogonal.
struct DirectionCase {
    kernels::StepSettings settings{1e-1f, 3.0f, different_groups()};
    void update(State& state, const Tensor& decision, bool with_working) const {
        backend().momentum_direction(state.cut(state.second), state.cut(state.gradient), state.cut(state.first),
                                     decision, 0.9f, true);
        backend().step(state.cut(state.parameter), with_working ? state.cut(state.working) : Tensor(),
                       state.cut(state.second), state.groups, decision, settings);
    }
    void update_reference(State& state, double factor, int) const {
        state.each([&](Values& p, const Values& g, Values& m, Values& v, std::size_t number) {
            const WeightGroup& group = settings.groups[number];
            const double rate = d(settings.learning_rate) * d(group.rate_factor);
            m[0] = d(0.9f) * m[0] + g[0] * factor;
            v[0] = g[0] * factor + d(0.9f) * m[0];
            p[0] -= rate * (d(settings.scale) * v[0] + d(group.decay) * p[0]);
        });
    }
};

}  // namespace

BOOST_AUTO_TEST_CASE(adamw_follows_the_reference_for_several_steps) {
    follow_the_reference(AdamWCase());
}

BOOST_AUTO_TEST_CASE(momentum_follows_the_reference_for_several_steps) {
    for (const bool nesterov : {false, true}) follow_the_reference(MomentumCase(nesterov));
}

BOOST_AUTO_TEST_CASE(a_step_along_a_direction_follows_the_reference) {
    follow_the_reference(DirectionCase());
}

BOOST_AUTO_TEST_CASE(no_direction_where_the_decision_says_no) {
    for_each_backend([] {
        const OnDevice gradient(Type::fp32, {77}, Values(77, 2.0)), velocity(Type::fp32, {77}, Values(77, 3.0));
        const OnDevice direction(Type::fp32, {77}, Values(77, 4.0));
        backend().momentum_direction(direction, gradient, velocity, OnDevice(Type::fp64, {8}, decision_of(0, 1, 3)),
                                     0.9f, false);
        BOOST_TEST((direction.values() == Values(77) && velocity.values() == Values(77, 3.0)));
    });
}

BOOST_AUTO_TEST_CASE(vectors_are_normalized_and_blended) {
    for_each_type([](Type type) {
        for (const std::int64_t size : {1, 7, 1024, 5003})
            for_each_order([&] {
                const std::string what = fmt::format("{}, {} elements, ", type_name(type), size);
                const auto count = static_cast<std::size_t>(size);
                const Values x = random_rounded(Type::fp32, count, "x"), y = random_rounded(type, count, "y"),
                             z = random_rounded(type, count, "z");
                const double square = 12.25;
                const OnDevice normal(type, {size}), in(Type::fp32, {size}, x), totals(Type::fp64, {2}, {square, 0});
                backend().normalize(normal, in, totals);
                Values expected = x;
                for (double& value : expected) value /= 3.5 + 1e-7;
                check_close(normal.values(), expected, type, 5, what + "normalized");
                const OnDevice blended(type, {size}, y), other(type, {size}, z);
                backend().blend(blended, other, 2.5f, -0.75f);
                for (std::size_t i = 0; i < count; ++i) expected[i] = 2.5 * y[i] - 0.75 * z[i];
                check_close(blended.values(), expected, type, 5, what + "blended");
                return std::vector{normal.bytes(), blended.bytes()};
            });
    });
}

BOOST_AUTO_TEST_CASE(a_working_copy_may_be_absent) {
    leave_out_the_working_copy(AdamWCase());
    leave_out_the_working_copy(MomentumCase(true));
    leave_out_the_working_copy(DirectionCase());
}

BOOST_AUTO_TEST_CASE(nothing_is_written_where_the_decision_says_no) {
    write_nothing_where_the_decision_says_no(AdamWCase());
    write_nothing_where_the_decision_says_no(MomentumCase(false));
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
