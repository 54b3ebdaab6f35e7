// The gradients of the DeltaNet's reference, which the operations' tests compare with.
#define BOOST_TEST_MODULE kernels_delta
#include "reference/delta.hpp"
#include "reference/finite_difference.hpp"
#include "unit/kernels/support.hpp"

using namespace lockstep;
using namespace lockstep::kernel_tests;
using namespace lockstep::reference;

BOOST_AUTO_TEST_CASE(gradients_of_the_gates_agree_with_finite_differences) {
    DeltaGates gates = {random_values(15, "decay", 2), random_values(15, "strength", 2), random_values(3, "rate"),
                        random_values(3, "bias")};
    const DeltaGated d = {random_values(15, "dlog_decay"), random_values(15, "dstrength")};
    const DeltaGates gradients = delta_gates_backward(gates, d);
    const auto loss = [&] {
        const DeltaGated out = delta_gates_forward(gates);
        return dot(out.log_decay, d.log_decay) + dot(out.strength, d.strength);
    };
    for (Values DeltaGates::*member :
         {&DeltaGates::decay_logit, &DeltaGates::strength_logit, &DeltaGates::log_rate, &DeltaGates::decay_bias})
        BOOST_TEST(gradient_error(gates.*member, gradients.*member, loss) <= gradient_tolerance);
}

BOOST_AUTO_TEST_CASE(gradients_of_the_delta_rule_agree_with_finite_differences) {
    for (const bool starts : {false, true})
        for (const bool ends : {false, true}) {
            DeltaProblem p{2, 9, 4, 2, 3, 5, {}, {}, {}, {}, {}, {}};
            p.q = random_values(2 * 9 * 2 * 3, "q");
            p.k = random_values(p.q.size(), "k", 0.5);
            p.v = random_values(2 * 9 * 4 * 5, "v");
            p.log_decay = random_values(2 * 9 * 4, "log_decay", 0.3);
            p.strength = random_values(p.log_decay.size(), "strength", 0.5);
            for (double& x : p.log_decay) x = -std::abs(x);
            for (std::size_t i = 0; i < p.strength.size(); i += 5) p.strength[i] = 0;
            const std::size_t states = 2 * 4 * p.state_size();
            if (starts) p.initial = random_values(states, "initial");
            const Values dy = random_values(p.v.size(), "dy"),
                         dfinal = ends ? random_values(states, "dfinal") : Values();
            DeltaProblem gradients = delta_backward(p, dy, dfinal);
            const auto loss = [&] {
                Values last;
                const double of_y = dot(delta_forward(p, &last), dy);
                return ends ? of_y + dot(last, dfinal) : of_y;
            };
            for (std::size_t i = 0; i < arrays_of(p).size(); ++i)
                BOOST_TEST(gradient_error(*arrays_of(p)[i], *arrays_of(gradients)[i], loss) <= gradient_tolerance);
        }
}
