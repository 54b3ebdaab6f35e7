// TTT scans that begin from and end in given states, on the device, and their comparison with the reference.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "operations/ttt_support.hpp"
#include "reference/ttt_parts.hpp"

namespace lockstep::operation_tests {

using reference::TttModels;
using reference::TttScan;

// Models of all sequences and heads on the device; one element each where there are none.
struct TttModelsOnDevice {
    OnDevice weight1, bias1, weight2, bias2;
    bool given;

    TttModelsOnDevice(const TttProblem& p, const TttModels& models)
        : TttModelsOnDevice(p, models, static_cast<std::int64_t>(p.batch), static_cast<std::int64_t>(p.heads),
                            static_cast<std::int64_t>(p.width), static_cast<std::int64_t>(p.hidden())) {}
    kernels::TttCarry carry(bool mlp) const {
        if (!given) return {};
        return {weight1, bias1, mlp ? weight2.tensor() : Tensor(), mlp ? bias2.tensor() : Tensor()};
    }
    TttModels values(bool mlp) const {
        if (!given) return {};
        return {weight1.values(), bias1.values(), mlp ? weight2.values() : Values(), mlp ? bias2.values() : Values()};
    }
    void poison() {
        for (OnDevice* tensor : {&weight1, &bias1, &weight2, &bias2}) tensor->poison();
    }

  private:
    TttModelsOnDevice(const TttProblem& p, const TttModels& m, std::int64_t b, std::int64_t h, std::int64_t f,
                      std::int64_t g)
        : weight1(Type::fp32, m.empty() ? Shape{1} : Shape{b, h, f, g}, m.empty() ? Values(1) : m.weight1),
          bias1(Type::fp32, m.empty() ? Shape{1} : Shape{b, h, 1, g}, m.empty() ? Values(1) : m.bias1),
          weight2(Type::fp32, m.empty() || !p.mlp ? Shape{1} : Shape{b, h, g, f},
                  m.empty() || !p.mlp ? Values(1) : m.weight2),
          bias2(Type::fp32, m.empty() || !p.mlp ? Shape{1} : Shape{b, h, 1, f},
                m.empty() || !p.mlp ? Values(1) : m.bias2),
          given(!m.empty()) {}
};

inline TttModels ttt_models(const TttProblem& p, const std::string& purpose, double deviation) {
    TttModels models = reference::ttt::zero_models(p);
    const auto draw = [&](Values& x, const char* name) {
        x = random_rounded(Type::fp32, x.size(), purpose + name, deviation);
    };
    draw(models.weight1, " weight1");
    draw(models.bias1, " bias1");
    draw(models.weight2, " weight2");
    draw(models.bias2, " bias2");
    return models;
}

// One scan as ttt_in_parts wants it. Outputs that are overwritten start as NaN; what has to be left alone is checked.
inline TttScan scan_ttt(const TttProblem& p, Type type, const Values& dy_values, bool goes_on,
                        const TttModels& dfinal_values) {
    const double left_alone = 0.75;
    const TttDocumentsOnDevice documents(p);
    kernels::TttShape shape = ttt_shape(p);
    shape.documents = documents.documents();
    const TttTensors in(type, p);
    TttProblem start = p;
    for (Values* x : {&start.token_scale, &start.norm_weight, &start.norm_bias}) x->assign(x->size(), 0);
    for (Values* x : {&start.weight1, &start.bias1, &start.weight2, &start.bias2})
        x->assign(x->size(), p.initial.empty() || !p.joined() ? 0 : left_alone);
    TttTensors out(type, start);
    const TttModelsOnDevice initial(p, p.initial), dfinal(p, dfinal_values);
    TttModelsOnDevice final_state(p, goes_on ? reference::ttt::zero_models(p) : TttModels()), dinitial(p, p.initial);
    OnDevice y(type, in.q.tensor().shape()), saved(Type::fp32, {backend().ttt_saved_count(shape, type)});
    for (OnDevice* tensor : {&y, &saved, &out.q, &out.k, &out.v, &out.step_size}) tensor->poison();
    final_state.poison();
    dinitial.poison();
    backend().ttt_forward(y, saved, in.q, in.k, in.v, in.step_size, in.token_scale, in.inner(p.mlp),
                          initial.carry(p.mlp), final_state.carry(p.mlp), shape);
    TttScan scan{y.values(), final_state.values(p.mlp), p};
    if (dy_values.empty()) return scan;
    const OnDevice dy(type, in.q.tensor().shape(), dy_values);
    backend().ttt_backward(out.q, out.k, out.v, out.step_size, out.token_scale, out.inner(p.mlp), dinitial.carry(p.mlp),
                           dy, saved, in.q, in.k, in.v, in.step_size, in.token_scale, in.inner(p.mlp),
                           initial.carry(p.mlp), dfinal.carry(p.mlp), shape);
    TttProblem& d = scan.gradients;
    d.q = out.q.values();
    d.k = out.k.values();
    d.v = out.v.values();
    d.step_size = out.step_size.values();
    d.token_scale = out.token_scale.values();
    d.norm_weight = out.norm_weight.values();
    d.norm_bias = out.norm_bias.values();
    d.weight1 = out.weight1.values();
    d.bias1 = out.bias1.values();
    d.weight2 = p.mlp ? out.weight2.values() : Values();
    d.bias2 = p.mlp ? out.bias2.values() : Values();
    d.initial = dinitial.values(p.mlp);
    if (!p.initial.empty() && p.joined())
        for (const Values* x : {&d.weight1, &d.bias1, &d.weight2, &d.bias2})
            BOOST_TEST(*x == Values(x->size(), left_alone), "gradients of a learned model that nothing starts from");
    return scan;
}

inline void check_scan(TttScan scan, const Values& y, const TttModels& final_state, TttProblem expected, Type type) {
    const double allowed = ttt_tolerance(type);
    check_relative(scan.y, y, allowed, "y");
    if (!scan.final_state.empty()) {
        check_relative(scan.final_state.weight1, final_state.weight1, allowed, "final weight1");
        check_relative(scan.final_state.bias1, final_state.bias1, allowed, "final bias1");
        check_relative(scan.final_state.weight2, final_state.weight2, allowed, "final weight2");
        check_relative(scan.final_state.bias2, final_state.bias2, allowed, "final bias2");
    }
    static constexpr const char* names[] = {"dq",
                                            "dk",
                                            "dv",
                                            "dstep_size",
                                            "dtoken_scale",
                                            "dnorm_weight",
                                            "dnorm_bias",
                                            "dweight1",
                                            "dbias1",
                                            "dweight2",
                                            "dbias2",
                                            "dinitial weight1",
                                            "dinitial bias1",
                                            "dinitial weight2",
                                            "dinitial bias2"};
    const std::vector<Values*> gradients = reference::arrays_of(scan.gradients),
                               wanted = reference::arrays_of(expected);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        // dτ is a few numbers, each a sum over all tokens of terms of either sign that nearly cancel.
        const double few = i == 4 && type != Type::fp32 ? 3 : 1;
        check_relative(*gradients[i], *wanted[i], few * allowed, names[i]);
    }
}

// States of each sequence's own at the start, at the end, and at both.
inline void compare_carried(const TttCase& c, Type type) {
    TttProblem p = ttt_problem(c, type);
    const Values dy = random_rounded(type, p.q.size(), "dy");
    const TttModels initial = ttt_models(p, "initial", 0.1), dfinal = ttt_models(p, "dfinal", 0.3);
    for (const bool starts : {false, true})
        for (const bool ends : {false, true}) {
            if (!starts && !ends) continue;  // as without states
            BOOST_TEST_CONTEXT(c.text(type) << (starts ? ", initial" : "") << (ends ? ", dfinal" : "")) {
                p.initial = starts ? initial : TttModels();
                const TttModels given = ends ? dfinal : TttModels();
                TttModels final_state;
                const Values y = reference::ttt_forward(p, &final_state);
                check_scan(scan_ttt(p, type, dy, true, given), y, final_state, reference::ttt_backward(p, dy, given),
                           type);
            }
        }
}

inline void compare_parts(const TttCase& c, const std::vector<std::size_t>& lengths, Type type) {
    BOOST_TEST_CONTEXT(c.text(type) << " in " << lengths.size() << " parts") {
        const TttProblem p = ttt_problem(c, type);
        const Values dy = random_rounded(type, p.q.size(), "dy");
        const auto scan = [&](const TttProblem& part, const Values& dpart, bool goes_on, const TttModels& dfinal) {
            return scan_ttt(part, type, dpart, goes_on, dfinal);
        };
        check_scan(reference::ttt_in_parts(p, dy, lengths, scan), reference::ttt_forward(p), {},
                   reference::ttt_backward(p, dy), type);
    }
}

// All results of a scan, for comparison bit by bit.
inline std::vector<std::vector<char>> bytes_of(TttScan scan) {
    std::vector<Values*> all = reference::arrays_of(scan.gradients);
    TttModels& last = scan.final_state;
    all.insert(all.end(), {&scan.y, &last.weight1, &last.bias1, &last.weight2, &last.bias2});
    std::vector<std::vector<char>> bytes;
    for (const Values* x : all) {
        const auto* const first = reinterpret_cast<const char*>(x->data());
        bytes.emplace_back(first, first + x->size() * sizeof(double));
    }
    return bytes;
}
inline std::vector<std::vector<char>> carried_bytes(const TttCase& c, Type type) {
    TttProblem p = ttt_problem(c, type);
    p.initial = ttt_models(p, "initial", 0.1);
    return bytes_of(scan_ttt(p, type, random_rounded(type, p.q.size(), "dy"), true, ttt_models(p, "dfinal", 0.3)));
}

}  // namespace lockstep::operation_tests
