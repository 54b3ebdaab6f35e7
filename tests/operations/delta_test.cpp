// Gated DeltaNet: its gates, and the gated delta rule over whole sequences, over parts of them, and token by token.
#define BOOST_TEST_MODULE delta
#include "reference/delta.hpp"

#include "operations/documents.hpp"
#include "operations/support.hpp"

using namespace lockstep;
using namespace lockstep::operation_tests;
namespace ref = lockstep::reference;
using ref::DeltaProblem;

namespace {

struct Case {
    std::size_t batch, length, heads, key_heads, key_width, value_width;
    std::string text(Type type) const {
        return fmt::format("{} B {} L {} H {} G {} fk {} fv {}", type_name(type), batch, length, heads, key_heads,
                           key_width, value_width);
    }
};

// One key head and one of two, of the widths that kernels are built for and of others; lengths around chunks of 32 and
// 64 tokens, in one, two and three of them.
const std::vector<Case> cases = {
    {1, 1, 1, 1, 16, 16}, {2, 3, 3, 3, 5, 7},     {1, 64, 1, 1, 16, 16}, {1, 65, 2, 1, 16, 16},  {2, 33, 6, 2, 5, 7},
    {1, 130, 3, 1, 8, 4}, {1, 65, 1, 1, 64, 64},  {2, 31, 2, 2, 24, 40}, {1, 130, 2, 1, 64, 64}, {1, 70, 1, 1, 96, 48},
    {1, 17, 2, 1, 1, 1},  {1, 66, 1, 1, 48, 128}, {1, 70, 4, 2, 128, 36}};

std::int64_t as_size(std::size_t size) {
    return static_cast<std::int64_t>(size);
}

Values rounded(Type type, const Values& values) {
    return OnDevice(type, {as_size(values.size())}, values).values();
}

// Rows of this norm, but for their rounding.
Values directions(Type type, std::size_t rows, std::size_t width, double norm, const std::string& purpose) {
    Values x = kernel_tests::random_values(rows * width, purpose);
    for (std::size_t row = 0; row < rows; ++row) {
        double square = 0;
        for (std::size_t c = 0; c < width; ++c) square += x[row * width + c] * x[row * width + c];
        for (std::size_t c = 0; c < width; ++c) x[row * width + c] *= norm / std::sqrt(square);
    }
    return rounded(type, x);
}

DeltaProblem problem_of(const Case& c, Type type) {
    DeltaProblem p{c.batch, c.length, c.heads, c.key_heads, c.key_width, c.value_width, {}, {}, {}, {}, {}, {}};
    const std::size_t rows = c.batch * c.length, keys = rows * c.key_heads, gates = rows * c.heads;
    p.q = directions(type, keys, c.key_width, 1 / std::sqrt(static_cast<double>(c.key_width)), "q");
    p.k = directions(type, keys, c.key_width, 1, "k");
    p.v = random_rounded(type, gates * c.value_width, "v");
    const RandomStream decays(17, "decay"), strengths(17, "strength");
    for (std::size_t i = 0; i < gates; ++i) {
        p.log_decay.push_back(-0.4 * decays.uniform(i) * decays.uniform(gates + i));
        p.strength.push_back(0.05 + 0.9 * strengths.uniform(i));
    }
    p.log_decay = rounded(Type::fp32, p.log_decay);
    p.strength = rounded(Type::fp32, p.strength);
    return p;
}
Values states_of(const DeltaProblem& p, const std::string& purpose, double scale) {
    return random_rounded(Type::fp32, p.batch * p.heads * p.state_size(), purpose, scale);
}

kernels::DeltaShape shape_of(const DeltaProblem& p) {
    return {as_size(p.batch),     as_size(p.length),    as_size(p.heads),
            as_size(p.key_heads), as_size(p.key_width), as_size(p.value_width)};
}
Shape states_shape(const DeltaProblem& p) {
    return {as_size(p.batch), as_size(p.heads), as_size(p.key_width), as_size(p.value_width)};
}

// The arrays of a problem, or room for their gradients.
struct Tensors {
    OnDevice q, k, v, log_decay, strength, initial;
    bool has_initial;

    Tensors(Type type, const DeltaProblem& p)
        : Tensors(type, p, as_size(p.batch * p.length), as_size(p.heads), as_size(p.key_heads)) {}
    Tensor start() const { return has_initial ? initial.tensor() : Tensor(); }
    void poison() {
        for (OnDevice* tensor : {&q, &k, &v, &log_decay, &strength, &initial}) tensor->poison();
    }

  private:
    Tensors(Type type, const DeltaProblem& p, std::int64_t n, std::int64_t h, std::int64_t g)
        : q(type, {n, g * as_size(p.key_width)}, p.q),
          k(type, {n, g * as_size(p.key_width)}, p.k),
          v(type, {n, h * as_size(p.value_width)}, p.v),
          log_decay(Type::fp32, {n, h}, p.log_decay),
          strength(Type::fp32, {n, h}, p.strength),
          initial(Type::fp32, p.initial.empty() ? Shape{1} : states_shape(p),
                  p.initial.empty() ? Values(1) : p.initial),
          has_initial(!p.initial.empty()) {}
};

// A scan's results as numbers and, for comparison bit by bit, as bytes.
struct Scan {
    Values y, final_state;
    DeltaProblem gradients;  // in the places of the inputs; of empty dy: nothing
    std::vector<std::vector<char>> bytes;
};

// Outputs start as NaN. Without `ends` the final state is not asked for, which changes nothing else.
Scan scan_of(const DeltaProblem& p, Type type, const Values& dy_values, bool ends, const Values& dfinal_values) {
    const kernels::DeltaShape shape = shape_of(p);
    const Tensors in(type, p);
    Tensors out(type, p);
    OnDevice y(type, in.v.tensor().shape()), saved(Type::fp32, {backend().delta_saved_count(shape, type)}),
        last(Type::fp32, states_shape(p)), dfinal(Type::fp32, states_shape(p));
    for (OnDevice* tensor : {&y, &saved, &last}) tensor->poison();
    out.poison();
    const Tensor final_state = ends ? last.tensor() : Tensor();
    backend().delta_forward(y, saved, in.q, in.k, in.v, in.log_decay, in.strength, in.start(), final_state, shape);
    Scan scan{y.values(), ends ? last.values() : Values(), p, {y.bytes(), last.bytes()}};
    if (p.initial.empty() || ends) BOOST_TEST(in.initial.values() == (in.has_initial ? p.initial : Values(1)));
    if (dy_values.empty()) return scan;

    const OnDevice dy(type, in.v.tensor().shape(), dy_values);
    if (!dfinal_values.empty()) dfinal.set(dfinal_values);
    backend().delta_backward(out.q, out.k, out.v, out.log_decay, out.strength,
                             in.has_initial ? out.initial.tensor() : Tensor(), dy, saved, in.q, in.k, in.v,
                             in.log_decay, in.strength, in.start(), dfinal_values.empty() ? Tensor() : dfinal.tensor(),
                             shape);
    DeltaProblem& d = scan.gradients;
    d.q = out.q.values();
    d.k = out.k.values();
    d.v = out.v.values();
    d.log_decay = out.log_decay.values();
    d.strength = out.strength.values();
    if (in.has_initial) d.initial = out.initial.values();
    for (const OnDevice* tensor : {&out.q, &out.k, &out.v, &out.log_decay, &out.strength, &out.initial})
        scan.bytes.push_back(tensor->bytes());

    // Without a backward to follow: the same outputs.
    y.poison();
    last.poison();
    backend().delta_forward(y, Tensor(), in.q, in.k, in.v, in.log_decay, in.strength, in.start(), final_state, shape);
    BOOST_TEST(y.bytes() == scan.bytes[0], "y without states kept");
    BOOST_TEST(last.bytes() == scan.bytes[1], "final state without states kept");
    return scan;
}

// Relative L2 errors. CPUs compute in fp32 from the rounded inputs and round once what is `stored` in 16 bits; GPUs
// round the operands of 16-bit products.
double tolerance(Type computed, Type stored) {
    const double of_fp32 = 2e-5;
    if (computed == Type::fp32) return of_fp32;
    if (backend().device().kind != DeviceKind::cpu) return 2e-2;
    return stored == Type::fp32 ? of_fp32 : of_fp32 + roundoff(stored);
}

// A tensor whose exact values are 0, or nearly, is measured against numbers of a hundredth.
void check(const Values& actual, const Values& expected, double allowed, const std::string& what) {
    BOOST_REQUIRE_EQUAL(actual.size(), expected.size());
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
        size += expected[i] * expected[i];
    }
    const double error = std::sqrt(difference / std::max(size, 1e-4 * static_cast<double>(expected.size())));
    BOOST_CHECK_MESSAGE(error <= allowed || expected.empty(),
                        what << ": relative error " << error << ", " << allowed << " is allowed");
}

// `cancelling`: how much of dlog_decay's precision is lost where its terms cancel.
void check_scan(const Scan& scan, const Values& y, const Values& final_state, DeltaProblem expected, Type type,
                double cancelling = 1) {
    check(scan.y, y, tolerance(type, type), "y");
    if (!scan.final_state.empty()) check(scan.final_state, final_state, tolerance(type, Type::fp32), "final state");
    DeltaProblem actual = scan.gradients;
    const char* const names[] = {"dq", "dk", "dv", "dlog_decay", "dstrength", "dinitial"};
    for (std::size_t i = 0; i < std::size(names); ++i)
        check(*ref::arrays_of(actual)[i], *ref::arrays_of(expected)[i],
              tolerance(type, i < 3 ? type : Type::fp32) * (i == 3 ? cancelling : 1), names[i]);
}

void compare(const DeltaProblem& p, Type type, bool ends, const Values& dfinal, const std::string& what,
             double cancelling = 1) {
    BOOST_TEST_CONTEXT(what << (p.initial.empty() ? "" : ", initial") << (ends ? ", final" : "")
                            << (dfinal.empty() ? "" : ", dfinal")) {
        const Values dy = random_rounded(type, p.v.size(), "dy");
        Values final_state;
        const Values y = ref::delta_forward(p, &final_state);
        check_scan(scan_of(p, type, dy, ends, dfinal), y, final_state, ref::delta_backward(p, dy, dfinal), type,
                   cancelling);
    }
}

// The tokens first … first + count of every sequence, and back.
Values tokens_of(const DeltaProblem& p, const Values& x, std::size_t first, std::size_t count) {
    const std::size_t width = x.size() / (p.batch * p.length);
    Values part;
    for (std::size_t i = 0; i < p.batch * count * width; ++i)
        part.push_back(x[(i / (count * width) * p.length + first) * width + i % (count * width)]);
    return part;
}
void put_tokens(const DeltaProblem& p, Values& x, const Values& part, std::size_t first, std::size_t count) {
    const std::size_t width = x.size() / (p.batch * p.length);
    for (std::size_t i = 0; i < part.size(); ++i)
        x[(i / (count * width) * p.length + first) * width + i % (count * width)] = part[i];
}

constexpr Values DeltaProblem::*by_token[] = {&DeltaProblem::q, &DeltaProblem::k, &DeltaProblem::v,
                                              &DeltaProblem::log_decay, &DeltaProblem::strength};

DeltaProblem part_of(const DeltaProblem& p, const Values& initial, std::size_t first, std::size_t count) {
    DeltaProblem part = p;
    part.length = count;
    part.initial = initial;
    for (const auto member : by_token) part.*member = tokens_of(p, p.*member, first, count);
    return part;
}

void compare_parts(const Case& c, const std::vector<std::size_t>& lengths, Type type) {
    BOOST_TEST_CONTEXT(c.text(type) << " in " << lengths.size() << " parts") {
        DeltaProblem p = problem_of(c, type);
        p.initial = states_of(p, "initial", 0.3);
        const Values dy = random_rounded(type, p.v.size(), "dy");
        std::vector<DeltaProblem> parts;
        Values state = p.initial;
        for (std::size_t n = 0, first = 0; n < lengths.size(); first += lengths[n++]) {
            parts.push_back(part_of(p, state, first, lengths[n]));
            if (n + 1 < lengths.size()) state = scan_of(parts[n], type, {}, true, {}).final_state;
        }
        Scan whole{Values(p.v.size()), {}, p, {}};
        Values dfinal;
        for (std::size_t n = lengths.size(), first = p.length; n-- > 0;) {
            first -= lengths[n];
            const Scan part = scan_of(parts[n], type, tokens_of(p, dy, first, lengths[n]), true, dfinal);
            put_tokens(p, whole.y, part.y, first, lengths[n]);
            for (const auto member : by_token)
                put_tokens(p, whole.gradients.*member, part.gradients.*member, first, lengths[n]);
            if (dfinal.empty()) whole.final_state = part.final_state;
            dfinal = part.gradients.initial;
        }
        whole.gradients.initial = dfinal;
        Values final_state;
        const Values y = ref::delta_forward(p, &final_state);
        check_scan(whole, y, final_state, ref::delta_backward(p, dy), type);
    }
}

}  // namespace

BOOST_AUTO_TEST_CASE(gates_follow_the_reference) {
    for_each_type([](Type type) {
        for (const std::int64_t rows : {1, 31, 257})
            for (const std::int64_t heads : {1, 12, 33})
                for (const std::int64_t before : {0, 40}) {
                    const std::string what =
                        fmt::format("{} rows of {} heads from column {} of {}", rows, heads, before, type_name(type));
                    const auto count = static_cast<std::size_t>(rows * heads), width = static_cast<std::size_t>(heads);
                    const ref::DeltaGates gates = {
                        random_rounded(type, count, "decay", 3), random_rounded(type, count, "strength", 3),
                        random_rounded(Type::fp32, width, "rate"), random_rounded(Type::fp32, width, "bias")};
                    const ref::DeltaGated d = {random_rounded(Type::fp32, count, "dlog_decay"),
                                               random_rounded(Type::fp32, count, "dstrength")};
                    const Values rate_before = random_rounded(Type::fp32, width, "before"),
                                 bias_before = random_rounded(Type::fp32, width, "bias before");
                    const Columns decay(type, rows, heads, before, before == 0 ? 0 : 4, gates.decay_logit),
                        strong(type, rows, heads, before + 1, 0, gates.strength_logit),
                        ddecay(type, rows, heads, before, before), dstrong(type, rows, heads, before, 3);
                    const OnDevice rate(Type::fp32, {heads}, gates.log_rate),
                        bias(Type::fp32, {heads}, gates.decay_bias), dlog_decay(Type::fp32, {rows, heads}, d.log_decay),
                        dstrength(Type::fp32, {rows, heads}, d.strength), drate(Type::fp32, {heads}, rate_before),
                        dbias(Type::fp32, {heads}, bias_before);
                    OnDevice log_decay(Type::fp32, {rows, heads}), strength(Type::fp32, {rows, heads});
                    log_decay.poison();
                    strength.poison();
                    backend().delta_gates_forward(log_decay, strength, decay, strong, rate, bias, rows, {});
                    const ref::DeltaGated expected = ref::delta_gates_forward(gates);
                    check_close(log_decay.values(), expected.log_decay, Type::fp32, 1, "log_decay, " + what);
                    check_close(strength.values(), expected.strength, Type::fp32, 1, "strength, " + what);
                    backend().delta_gates_backward(ddecay, dstrong, drate, dbias, dlog_decay, dstrength, decay,
                                                   strength, rate, bias, rows, {});
                    const ref::DeltaGates gradients = ref::delta_gates_backward(gates, d);
                    // Terms of either sign, whose sum may be small.
                    const std::size_t terms = 4 * static_cast<std::size_t>(rows);
                    check_close(ddecay.values(), gradients.decay_logit, type, 1, "ddecay_logit, " + what);
                    check_close(dstrong.values(), gradients.strength_logit, type, 1, "dstrength_logit, " + what);
                    check_close(drate.values(), plus(gradients.log_rate, rate_before), Type::fp32, terms,
                                "dlog_rate, " + what);
                    check_close(dbias.values(), plus(gradients.decay_bias, bias_before), Type::fp32, terms,
                                "ddecay_bias, " + what);
                    BOOST_CHECK(decay.untouched() && strong.untouched() && ddecay.untouched() && dstrong.untouched());
                }
    });
}

BOOST_AUTO_TEST_CASE(documents_begin_by_forgetting) {
    for_each_type([](Type type) {
        const std::int64_t first = 3, length = 70, heads = 5, rows = 3 * length;
        const PackedDocuments documents({{5, 1, 1, 2, 3, 20, 31, 12}, {3, 16, 32, 24}, {1, 2, 2, 62, 8}});
        const auto count = static_cast<std::size_t>(rows * heads), width = static_cast<std::size_t>(heads);
        const ref::DeltaGates gates = {
            random_rounded(type, count, "decay", 3), random_rounded(type, count, "strength", 3),
            random_rounded(Type::fp32, width, "rate"), random_rounded(Type::fp32, width, "bias")};
        const Values dlog_decay = random_rounded(Type::fp32, count, "dlog_decay");
        ref::DeltaGated expected = ref::delta_gates_forward(gates);
        ref::DeltaGated d = {dlog_decay, random_rounded(Type::fp32, count, "dstrength")};
        int starts = 0;
        for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
            const std::int64_t position = first + static_cast<std::int64_t>(row) % length;
            if (documents.begin(row / 70, position, 0) != static_cast<std::size_t>(position)) continue;
            ++starts;
            for (std::size_t h = 0; h < width; ++h) {
                expected.log_decay[row * width + h] = static_cast<double>(kernels::forgetting_log_decay);
                d.log_decay[row * width + h] = 0;
            }
        }
        BOOST_TEST(starts == 13);
        const Shape shape = {rows, heads};
        const OnDevice decay(type, shape, gates.decay_logit), strong(type, shape, gates.strength_logit),
            rate(Type::fp32, {heads}, gates.log_rate), bias(Type::fp32, {heads}, gates.decay_bias),
            drate(Type::fp32, {heads}, Values(width)), dbias(Type::fp32, {heads}, Values(width));
        OnDevice log_decay(Type::fp32, shape), strength(Type::fp32, shape), ddecay(type, shape), dstrong(type, shape);
        for (OnDevice* out : {&log_decay, &strength, &ddecay, &dstrong}) out->poison();
        backend().delta_gates_forward(log_decay, strength, decay, strong, rate, bias, length, documents.from(first));
        check_close(log_decay.values(), expected.log_decay, Type::fp32, 1, "log_decay");
        check_close(strength.values(), expected.strength, Type::fp32, 1, "strength");
        backend().delta_gates_backward(ddecay, dstrong, drate, dbias, OnDevice(Type::fp32, shape, dlog_decay),
                                       OnDevice(Type::fp32, shape, d.strength), decay, strength, rate, bias, length,
                                       documents.from(first));
        const ref::DeltaGates gradients = ref::delta_gates_backward(gates, d);
        const std::size_t terms = 4 * static_cast<std::size_t>(rows);
        check_close(ddecay.values(), gradients.decay_logit, type, 1, "ddecay_logit");
        check_close(dstrong.values(), gradients.strength_logit, type, 1, "dstrength_logit");
        check_close(drate.values(), gradients.log_rate, Type::fp32, terms, "dlog_rate");
        check_close(dbias.values(), gradients.decay_bias, Type::fp32, terms, "ddecay_bias");
    });
}

// Many documents in a chunk, and a document over several chunks, from and to given states.
BOOST_AUTO_TEST_CASE(forgetting_keeps_documents_apart) {
    for_each_type([](Type type) {
        for (const Case& c : {Case{1, 200, 1, 1, 16, 16}, Case{2, 140, 2, 1, 5, 7}, Case{1, 130, 1, 1, 64, 64}}) {
            DeltaProblem p = problem_of(c, type);
            for (const std::size_t t : {std::size_t{3}, std::size_t{4}, std::size_t{17}, std::size_t{40},
                                        std::size_t{63}, std::size_t{64}, std::size_t{129}})
                for (std::size_t b = 0; b < p.batch; ++b)
                    for (std::size_t h = 0; h < p.heads; ++h)
                        p.log_decay[p.gate(b, t + b, h)] = static_cast<double>(kernels::forgetting_log_decay);
            compare(p, type, false, {}, c.text(type) + " with documents");
            p.initial = states_of(p, "initial", 0.3);
            compare(p, type, true, states_of(p, "dfinal", 0.3), c.text(type) + " with documents");
        }
    });
}

// Small decays keep their relative accuracy, large ones do not overflow.
BOOST_AUTO_TEST_CASE(gates_have_their_limits) {
    for_each_backend([] {
        const Values points = {-60, -20, -5, -0.5, 0, 0.5, 5, 20, 60, 100, 1e4, 1e30};
        const auto heads = as_size(points.size());
        const OnDevice logits(Type::fp32, {1, heads}, points), zeros(Type::fp32, {heads}, Values(points.size())),
            ones(Type::fp32, {1, heads}, Values(points.size(), 1)),
            nan(Type::fp32, {1, heads}, Values(points.size(), std::numeric_limits<double>::quiet_NaN()));
        OnDevice log_decay(Type::fp32, {1, heads}), strength(Type::fp32, {1, heads}), dlogit(Type::fp32, {1, heads}),
            dstrong(Type::fp32, {1, heads}), drate(Type::fp32, {heads}, Values(points.size())),
            dbias(Type::fp32, {heads}, Values(points.size()));
        backend().delta_gates_forward(log_decay, strength, logits, logits, zeros, zeros, 1, {});
        backend().delta_gates_backward(dlogit, dstrong, drate, dbias, ones, ones, logits, strength, zeros, zeros, 1,
                                       {});
        const auto near = [](double actual, double expected) {
            return std::abs(actual - expected) <= 1e-6 * std::abs(expected) + 1e-30;
        };
        for (std::size_t i = 0; i < points.size(); ++i) BOOST_TEST_CONTEXT("logit " << points[i]) {
                BOOST_TEST(near(log_decay.values()[i], -ref::softplus(points[i])));
                BOOST_TEST(near(drate.values()[i], -ref::softplus(points[i])));
                BOOST_TEST(near(strength.values()[i], ref::sigmoid(points[i])));
                BOOST_TEST(near(dlogit.values()[i], -ref::sigmoid(points[i])));
                BOOST_TEST(std::abs(dstrong.values()[i] - ref::sigmoid(points[i]) * ref::sigmoid(-points[i])) < 1e-7);
            }
        backend().delta_gates_forward(log_decay, strength, nan, nan, zeros, zeros, 1, {});
        BOOST_TEST((std::isnan(log_decay.values()[0]) && std::isnan(strength.values()[0])));
    });
}

BOOST_AUTO_TEST_CASE(agrees_with_the_reference) {
    for_each_type([](Type type) {
        for (const Case& c : cases) compare(problem_of(c, type), type, false, {}, c.text(type));
    });
}

BOOST_AUTO_TEST_CASE(scans_begin_from_and_end_in_given_states) {
    for_each_type([](Type type) {
        for (const Case& c : {Case{2, 1, 2, 1, 16, 16}, Case{2, 65, 2, 1, 5, 7}, Case{1, 130, 2, 2, 16, 16},
                              Case{1, 40, 1, 1, 64, 64}, Case{1, 33, 3, 1, 24, 40}}) {
            DeltaProblem p = problem_of(c, type);
            const Values dfinal = states_of(p, "dfinal", 0.3);
            compare(p, type, true, dfinal, c.text(type));
            p.initial = states_of(p, "initial", 0.3);
            compare(p, type, false, {}, c.text(type));
            compare(p, type, true, dfinal, c.text(type));
        }
    });
}

// Tokens that forget everything, neighbours of them too, tokens that write nothing and that write all.
BOOST_AUTO_TEST_CASE(gates_may_be_wide_open_or_shut) {
    for_each_type([](Type type) {
        for (const Case& c : {Case{1, 70, 1, 1, 16, 16}, Case{1, 130, 2, 1, 5, 7}, Case{1, 66, 1, 1, 64, 64}}) {
            DeltaProblem p = problem_of(c, type);
            p.initial = states_of(p, "initial", 0.3);
            for (std::size_t i = 0; i < p.strength.size(); ++i) {
                if (i % 19 == 7 || i % 19 == 8) p.log_decay[i] = -30;
                if (i % 5 == 1) p.strength[i] = 0;
                if (i % 5 >= 3) p.strength[i] = 1;
            }
            compare(p, type, true, states_of(p, "dfinal", 0.3), c.text(type) + ", some decays of exp(-30)");
            for (double& x : p.log_decay) x = -30;
            compare(p, type, true, {}, c.text(type) + ", all decays exp(-30)");
            for (double& x : p.log_decay) x = 0;
            compare(p, type, true, {}, c.text(type) + ", no decay");
            for (double& x : p.strength) x = 0;
            compare(p, type, true, {}, c.text(type) + ", nothing written");
        }
    });
}

// Each token overwrites nearly all that the one before wrote: the systems within a chunk are as far from diagonal as
// they get.
BOOST_AUTO_TEST_CASE(keys_may_all_be_alike) {
    for_each_type([](Type type) {
        const Case c{1, 130, 1, 1, 16, 16};
        DeltaProblem p = problem_of(c, type);
        for (std::size_t i = c.key_width; i < p.k.size(); ++i) p.k[i] = p.k[i % c.key_width];
        for (double& x : p.strength) x = 0.875;
        compare(p, type, true, {}, c.text(type), 5);
    });
}

BOOST_AUTO_TEST_CASE(long_sequences_keep_their_accuracy) {
    for_each_type([](Type type) {
        const Case c{1, 600, 1, 1, 16, 16};
        compare(problem_of(c, type), type, true, {}, c.text(type));
    });
}

BOOST_AUTO_TEST_CASE(scans_over_parts_equal_the_scan_over_the_whole) {
    for_each_type([](Type type) {
        compare_parts({2, 67, 2, 1, 16, 16}, {33, 34}, type);
        compare_parts({1, 150, 3, 1, 5, 7}, {64, 1, 85}, type);
        compare_parts({1, 100, 1, 1, 64, 64}, {70, 30}, type);
        compare_parts({1, 66, 2, 1, 96, 48}, {64, 2}, type);
    });
}

// The state changes in place, as in generating text.
BOOST_AUTO_TEST_CASE(decoding_equals_the_scan) {
    for_each_type([](Type type) {
        for (const Case& c : {Case{2, 20, 2, 1, 16, 16}, Case{1, 20, 3, 3, 5, 7}, Case{1, 80, 2, 1, 64, 64}})
            for (const std::size_t prompt : {1, 7, 70}) {
                const DeltaProblem p = problem_of(c, type);
                const OnDevice state(Type::fp32, states_shape(p), Values(p.batch * p.heads * p.state_size()));
                Values y(p.v.size()), final_state;
                for (std::size_t first = 0, count = 0; first < p.length; first += count) {
                    count = std::min(first == 0 ? prompt : 1, p.length - first);
                    const DeltaProblem part = part_of(p, {}, first, count);
                    const Tensors in(type, part);
                    OnDevice out(type, in.v.tensor().shape());
                    out.poison();
                    backend().delta_forward(out, Tensor(), in.q, in.k, in.v, in.log_decay, in.strength, state, state,
                                            shape_of(part));
                    put_tokens(p, y, out.values(), first, count);
                }
                const Values expected = ref::delta_forward(p, &final_state);
                const std::string what = fmt::format("{}, first {}", c.text(type), prompt);
                check(y, expected, tolerance(type, type), what + ", y");
                check(state.values(), final_state, tolerance(type, Type::fp32), what + ", state");
            }
    });
}

BOOST_AUTO_TEST_CASE(the_order_of_threads_does_not_change_a_bit) {
    for_each_type([](Type type) {
        for (const Case& c : {Case{2, 70, 4, 2, 16, 16}, Case{1, 33, 2, 1, 5, 7}}) {
            DeltaProblem p = problem_of(c, type);
            p.initial = states_of(p, "initial", 0.3);
            const Values dy = random_rounded(type, p.v.size(), "dy"), dfinal = states_of(p, "dfinal", 0.3);
            for_each_order([&] { return scan_of(p, type, dy, true, dfinal).bytes; });
        }
        const Values logits = random_rounded(type, 3084, "logits");
        for_each_order([&] {
            const OnDevice x(type, {257, 12}, logits), dlogit(type, {257, 12}), dgate(Type::fp32, {257, 12}, logits),
                head(Type::fp32, {12}, Values(12, 0.5)), drate(Type::fp32, {12}, Values(12)),
                dbias(Type::fp32, {12}, Values(12));
            backend().delta_gates_backward(dlogit, x, drate, dbias, dgate, dgate, x, dgate, head, head, 257, {});
            return std::vector<std::vector<char>>{dlogit.bytes(), drate.bytes(), dbias.bytes()};
        });
    });
}

BOOST_AUTO_TEST_CASE(what_is_not_a_number_stays_visible) {
    for_each_type([](Type type) {
        for (const auto member : by_token) {
            DeltaProblem p = problem_of({1, 140, 1, 1, 16, 16}, type);
            (p.*member)[(p.*member).size() / 140 * 131] = std::numeric_limits<double>::quiet_NaN();
            const Scan scan = scan_of(p, type, random_rounded(type, p.v.size(), "dy"), false, {});
            BOOST_TEST(!std::isnan(scan.y[127 * 16]));  // the chunk before it
            BOOST_TEST(std::isnan(scan.y[131 * 16]));
            if (member != &DeltaProblem::q) BOOST_TEST(std::isnan(scan.y[139 * 16]));
            BOOST_TEST(std::isnan(scan.gradients.k[131 * 16 + 1]));
        }
    });
}

BOOST_AUTO_TEST_CASE(tokens_may_be_columns_of_wider_matrices) {
    for_each_type([](Type type) {
        for (const Case& c : {Case{1, 70, 2, 1, 16, 16}, Case{2, 33, 2, 2, 5, 7}, Case{1, 1, 2, 1, 16, 16}})
            for (const std::int64_t before : {8, 3}) {
                const DeltaProblem p = problem_of(c, type);
                const kernels::DeltaShape shape = shape_of(p);
                const Values dy_values = random_rounded(type, p.v.size(), "dy");
                const std::int64_t rows = shape.batch * shape.length, keys = shape.key_heads * shape.key_width,
                                   values = shape.heads * shape.value_width;
                const Tensors in(type, p);
                const Columns q(type, rows, keys, before, 8, p.q), k(type, rows, keys, 0, before, p.k),
                    v(type, rows, values, before, 64, p.v), dq(type, rows, keys, 64, before),
                    dk(type, rows, keys, before, 8), dv(type, rows, values, before, 0);
                const OnDevice y(type, {rows, values}), dy(type, {rows, values}, dy_values),
                    saved(Type::fp32, {backend().delta_saved_count(shape, type)}),
                    ddecay(Type::fp32, {rows, shape.heads}), dstrength(Type::fp32, {rows, shape.heads});
                backend().delta_forward(y, saved, q, k, v, in.log_decay, in.strength, {}, {}, shape);
                backend().delta_backward(dq, dk, dv, ddecay, dstrength, {}, dy, saved, q, k, v, in.log_decay,
                                         in.strength, {}, {}, shape);
                const Scan scan{y.values(), {}, p, {}};
                Scan strided = scan;
                strided.gradients = {
                    p.batch,     p.length,    p.heads,     p.key_heads,     p.key_width,        p.value_width,
                    dq.values(), dk.values(), dv.values(), ddecay.values(), dstrength.values(), {}};
                BOOST_TEST_CONTEXT(c.text(type) << " from column " << before) {
                    check_scan(strided, ref::delta_forward(p), {}, ref::delta_backward(p, dy_values), type);
                    BOOST_CHECK(q.untouched() && k.untouched() && v.untouched());
                    BOOST_CHECK_MESSAGE(dq.untouched() && dk.untouched() && dv.untouched(), "wrote beside a gradient");
                }
            }
    });
}

BOOST_AUTO_TEST_CASE(shapes_that_do_not_fit_are_refused) {
    const DeltaProblem p = problem_of({1, 4, 4, 2, 8, 8}, Type::bf16);
    const Tensors in(Type::bf16, p);
    const OnDevice y(Type::bf16, in.v.tensor().shape());
    auto wrong = shape_of(p);
    wrong.key_heads = 3;
    BOOST_CHECK_THROW(backend().delta_forward(y, {}, in.q, in.k, in.v, in.log_decay, in.strength, {}, {}, wrong),
                      Error);
}
