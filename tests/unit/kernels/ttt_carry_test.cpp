// Scans that begin from and end in given states.
#define BOOST_TEST_MODULE ttt_carry
#include "unit/kernels/ttt_support.hpp"

using namespace lockstep;
using namespace lockstep::kernels;
using namespace lockstep::kernel_tests;

// The states are the sequences' own, and their gradients too.
BOOST_AUTO_TEST_CASE(scans_begin_from_and_end_in_given_states) {
    const auto backend = make_cpu_backend();
    for (const bool mlp : {false, true})
        for (const TttCase& c :
             {TttCase{mlp, 3, 32, 2, 20, 16}, TttCase{mlp, 2, 160, 1, 7, 16}, TttCase{mlp, 2, 15, 3, 33, 5},
              TttCase{mlp, 1, 3, 2, 6, 1}, TttCase{mlp, 2, 144, 2, 64, 16}})
            BOOST_TEST_CONTEXT(c.text()) {
                TttProblem p = problem_of(c);
                const Values dy = random_values("dy", p.q.size(), 0, 1);
                const TttModels initial = random_models(p, "initial", 0.1), dfinal = random_models(p, "dfinal", 0.3);
                TttModels last;
                for (const bool starts : {false, true})
                    for (const bool ends : {false, true}) {
                        p.initial = starts ? initial : TttModels();
                        const TttModels given = ends ? dfinal : TttModels();
                        const Values y = reference::ttt_forward(p, &last);
                        const TttScan scan = scan_part(*backend, p, dy, true, given);
                        compare_scan(scan, y, reference::ttt_backward(p, dy, given));
                        BOOST_TEST(relative_error(scan.final_state.weight1, last.weight1) < accepted);
                        BOOST_TEST(relative_error(scan.final_state.bias1, last.bias1) < accepted);
                        BOOST_TEST(relative_error(scan.final_state.weight2, last.weight2) < accepted);
                        BOOST_TEST(relative_error(scan.final_state.bias2, last.bias2) < accepted);
                    }
            }
}

BOOST_AUTO_TEST_CASE(scans_over_parts_equal_the_scan_over_the_whole) {
    const auto backend = make_cpu_backend();
    struct Divided {
        TttCase whole;
        std::vector<std::size_t> lengths;
    };
    for (const bool mlp : {false, true})
        for (const Divided& c :
             {Divided{{mlp, 3, 45, 2, 20, 16}, {32, 13}}, Divided{{mlp, 2, 41, 3, 7, 4}, {4, 36, 1}},
              Divided{{mlp, 1, 330, 2, 32, 16}, {160, 160, 10}}, Divided{{mlp, 2, 64, 1, 33, 16}, {16, 48}}})
            BOOST_TEST_CONTEXT(c.whole.text() << " in " << c.lengths.size() << " parts") {
                const TttProblem p = problem_of(c.whole);
                const Values dy = random_values("dy", p.q.size(), 0, 1);
                const Values y = reference::ttt_forward(p);
                const TttProblem expected = reference::ttt_backward(p, dy);
                const auto of_backend = [&](auto&&... arguments) { return scan_part(*backend, arguments...); };
                compare_scan(reference::ttt_in_parts(p, dy, c.lengths, of_backend), y, expected);
            }
}
