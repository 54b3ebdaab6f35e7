// Memory operations, AdamW, and the choice of the instruction set.
#define BOOST_TEST_MODULE kernels_elementwise
#include "reference/update.hpp"
#include "unit/kernels/decision_cases.hpp"
#include "unit/kernels/support.hpp"

using namespace lockstep;
using namespace lockstep::kernel_tests;

namespace {
const std::vector<std::int64_t> sizes = {1, 31, 32, 33, 97, 1023, 1024, 1025, 16385, 70001};

double sum_of(kernels::Backend& backend, Tensor x) {
    double total = 0;
    backend.sum(Tensor(&total, Type::fp64, {1}), x, kernels::Accumulate::no);
    return total;
}

std::vector<double> squares_and_zeros(kernels::Backend& backend, Tensor x) {
    std::vector<double> totals(2, 9.0);
    backend.sum_of_squares(Tensor(totals.data(), Type::fp64, {2}), x, kernels::Accumulate::no);
    return totals;
}

double sum_of_squares(kernels::Backend& backend, Tensor x) {
    return squares_and_zeros(backend, x)[0];
}

// Proceed with the given factor and number of updates.
struct Proceed {
    std::vector<double> values;
    Proceed(double factor, double updates) : values{1, factor, 0, updates, 1, 0, 0, 0} {}
    Tensor tensor() { return {values.data(), Type::fp64, {8}}; }
};

// The first `first` weights, a multiple of 16, belong to group 0 and the others to group 1.
std::vector<std::int32_t> two_groups(std::int64_t count, std::int64_t first) {
    std::vector<std::int32_t> words(static_cast<std::size_t>((count + 127) / 128), 0x11111111);
    for (std::int64_t run = 0; run < (first + 15) / 16; ++run)
        words[static_cast<std::size_t>(run / 8)] &= ~(0xf << (4 * (run % 8)));
    return words;
}
Tensor words(std::vector<std::int32_t>& of) {
    return {of.data(), Type::int32, {static_cast<std::int64_t>(of.size())}};
}
}  // namespace

BOOST_AUTO_TEST_CASE(zeros_are_counted) {
    for_each_instruction_set([](kernels::Backend& backend, const std::string& name) {
        for (const auto size : sizes)
            for (const std::size_t every : {1u, 2u, 7u, 1000u}) {
                Floats x = random_floats({size}, "x");
                double zeros = 0;
                for (std::size_t i = 0; i < x.data.size(); i += every, ++zeros) x[i] = i % 2 == 0 ? 0.0f : -0.0f;
                if (every > 2 && size > 31) x[5] = 1e-45f;  // nearly zero is not zero
                BOOST_TEST(squares_and_zeros(backend, x.tensor())[1] == zeros, name);
            }
        Floats x({40});
        x[7] = not_a_number;
        std::vector<double> totals = {2, 3};
        backend.sum_of_squares(Tensor(totals.data(), Type::fp64, {2}), x.tensor(), kernels::Accumulate::yes);
        BOOST_TEST((std::isnan(totals[0]) && totals[1] == 42.0), name);
    });
}

BOOST_AUTO_TEST_CASE(sums_do_not_depend_on_the_number_of_threads) {
    Floats x = random_floats({300007}, "x");
    const int before = threads();
    for_each_instruction_set([&](kernels::Backend& backend, const std::string& name) {
        set_threads(1);
        const double sum = sum_of(backend, x.tensor()), squares = sum_of_squares(backend, x.tensor());
        for (const int count : {2, 3, 7}) {
            set_threads(count);
            BOOST_TEST((sum_of(backend, x.tensor()) == sum && sum_of_squares(backend, x.tensor()) == squares), name);
        }
        set_threads(before);
    });
}

BOOST_AUTO_TEST_CASE(adamw_follows_the_reference_for_several_steps) {
    for_each_instruction_set([](kernels::Backend& backend, const std::string& name) {
        for (const auto size : sizes) {
            Floats parameter = random_floats({size}, "p"), gradient = random_floats({size}, "g", 0.01), first({size}),
                   second({size});
            Values p = parameter.values(), m = first.values(), v = second.values();
            const kernels::AdamWSettings settings{1e-2f, 0.9f, 0.95f, 1e-8f, {{{1, 0.1f}, {0.5f, 0}}}};
            const std::int64_t decaying = size / 3 / 16 * 16;
            std::vector<std::int32_t> groups = two_groups(size, decaying);
            for (int step = 1; step <= 5; ++step) {
                for (auto& value : gradient.data) value *= -0.7f;
                Proceed decision(0.5, step);
                backend.adamw(parameter.tensor(), {}, gradient.tensor(), first.tensor(), second.tensor(), words(groups),
                              decision.tensor(), settings);
                const auto d = [](float value) { return static_cast<double>(value); };
                Values undecayed = p, m2 = m, v2 = v;
                reference::adamw(p, gradient.values(), m, v,
                                 {d(settings.learning_rate), d(settings.beta1), d(settings.beta2), d(settings.epsilon),
                                  d(0.1f), 0.5, step});
                reference::adamw(undecayed, gradient.values(), m2, v2,
                                 {0.5 * d(settings.learning_rate), d(settings.beta1), d(settings.beta2),
                                  d(settings.epsilon), 0, 0.5, step});
                std::copy(undecayed.begin() + decaying, undecayed.end(), p.begin() + decaying);
            }
            check_close(parameter, p, 5, name + " parameter");
            check_close(first, m, 5, name + " first moment");
            check_close(second, v, 5, name + " second moment");
        }
    });
}

BOOST_AUTO_TEST_CASE(adamw_of_a_zero_gradient_only_decays) {
    for_each_instruction_set([](kernels::Backend& backend, const std::string& name) {
        Floats parameter({33}, 2.0f), gradient({33}), first({33}), second({33});
        std::vector<std::int32_t> groups = two_groups(33, 33);
        Proceed decision(1, 1000000);
        backend.adamw(parameter.tensor(), {}, gradient.tensor(), first.tensor(), second.tensor(), words(groups),
                      decision.tensor(), {0.1f, 0.9f, 0.999f, 1e-8f, {{{1, 0.5f}}}});
        for (const float value : parameter.data) BOOST_TEST(std::abs(value - 1.9f) < 1e-6f, name);
    });
}

BOOST_AUTO_TEST_CASE(an_unknown_instruction_set_is_a_usage_error) {
    setenv("LOCKSTEP_INSTRUCTION_SET", "avx1024", 1);
    BOOST_CHECK_EXCEPTION(kernels::make_cpu_backend(), Error, [](const Error& error) {
        const std::string text = error.what();
        return error.code() == ExitCode::usage && text.find("avx1024") != std::string::npos &&
               text.find("baseline") != std::string::npos;
    });
    BOOST_CHECK_THROW(kernels::cpu_instruction_set(), Error);
    unsetenv("LOCKSTEP_INSTRUCTION_SET");
    BOOST_TEST(kernels::make_cpu_backend() != nullptr);
}
