// Runs the emitted schedules on paper: stages that compute for a known time, and messages that leave only when the
// receiver has asked for them.
#define BOOST_TEST_MODULE pipeline_schedule
#include "layout/pipeline_schedule.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <map>
#include <set>
#include <tuple>

using namespace lockstep::layout;

namespace {

struct Cost {
    std::int64_t forward = 1, backward = 1;
};

struct Outcome {
    std::int64_t end = 0;  // when the last stage is done
    bool finished = false;
};

// A pass of the whole model: (forward, piece, micro-batch).
using Pass = std::tuple<bool, std::int64_t, std::int64_t>;

// Every pass waits for its input, and takes no longer than its cost. Each stage asks for the input of its next pass
// only when it has ended the one before (no receive is posted earlier), and writes a buffer only when what was sent
// from it has been taken.
Outcome simulate(const PipelineShape& shape, const Cost& cost, std::int64_t ahead = 0) {
    const std::int64_t pieces = shape.stages * shape.chunks;
    std::vector<std::vector<PipelineStep>> steps;
    for (std::int64_t stage = 0; stage < shape.stages; ++stage) steps.push_back(pipeline_schedule(shape, stage, ahead));
    std::vector<std::size_t> next(steps.size(), 0);
    std::vector<std::int64_t> time(steps.size(), 0);
    std::map<Pass, std::int64_t> ended;  // when
    std::set<Pass> taken;                // whose result its receiver has asked for
    // Of each stage, chunk and slot: the last forward and backward pass, whose results leave from its buffers.
    std::map<std::tuple<std::int64_t, std::int64_t, int>, std::vector<Pass>> occupants;
    const auto has_receiver = [&](const Pass& pass) {
        return std::get<0>(pass) ? std::get<1>(pass) + 1 < pieces : std::get<1>(pass) > 0;
    };
    bool moved = true;
    while (moved) {
        moved = false;
        for (std::size_t stage = 0; stage < steps.size(); ++stage) {
            if (next[stage] == steps[stage].size()) continue;
            const PipelineStep& step = steps[stage][next[stage]];
            const std::int64_t piece = piece_of(shape, static_cast<std::int64_t>(stage), step.chunk);
            auto& occupant = occupants[{static_cast<std::int64_t>(stage), step.chunk, step.slot}];
            if (step.forward) {
                const bool free = std::all_of(occupant.begin(), occupant.end(), [&](const Pass& pass) {
                    return !has_receiver(pass) || taken.count(pass) > 0;
                });
                if (!free) continue;
            }
            std::int64_t start = time[stage];
            const std::int64_t from = step.forward ? piece - 1 : piece + 1;
            if (from >= 0 && from < pieces) {
                const Pass input{step.forward, from, step.micro_batch};
                moved = taken.insert(input).second || moved;
                if (ended.count(input) == 0) continue;
                start = std::max(start, ended[input]);
            }
            const Pass pass{step.forward, piece, step.micro_batch};
            BOOST_TEST_REQUIRE(ended.count(pass) == 0);
            if (!step.forward) BOOST_TEST_REQUIRE((ended.count({true, piece, step.micro_batch}) == 1));
            time[stage] = ended[pass] = start + (step.forward ? cost.forward : cost.backward);
            if (step.forward) occupant.clear();
            occupant.push_back(pass);
            ++next[stage];
            moved = true;
        }
    }
    Outcome outcome;
    outcome.end = *std::max_element(time.begin(), time.end());
    outcome.finished = ended.size() == static_cast<std::size_t>(2 * pieces * shape.micro_batches);
    return outcome;
}

}  // namespace

BOOST_AUTO_TEST_CASE(one_forward_one_backward_stands_idle_for_p_minus_1_of_m) {
    for (std::int64_t stages = 1; stages <= 16; ++stages)
        for (const std::int64_t micro_batches : {1, 2, 3, 5, 8, 16, 33})
            for (const Cost& cost : {Cost{1, 1}, Cost{1, 2}, Cost{2, 5}}) {
                const PipelineShape shape{stages, 1, micro_batches};
                const Outcome outcome = simulate(shape, cost);
                BOOST_TEST(outcome.finished, "p " << stages << ", m " << micro_batches);
                const std::int64_t a_micro_batch = cost.forward + cost.backward;
                BOOST_TEST(outcome.end == (micro_batches + stages - 1) * a_micro_batch,
                           "p " << stages << ", m " << micro_batches);
            }
}

BOOST_AUTO_TEST_CASE(interleaved_chunks_divide_the_idle_time) {
    for (std::int64_t stages = 2; stages <= 16; ++stages)
        for (std::int64_t chunks = 2; chunks <= 4; ++chunks)
            for (std::int64_t rounds = 1; rounds <= 4; ++rounds)
                for (const Cost& cost : {Cost{1, 1}, Cost{1, 2}}) {
                    const PipelineShape shape{stages, chunks, rounds * stages};
                    const Outcome outcome = simulate(shape, cost);
                    BOOST_TEST(outcome.finished, "p " << stages << ", v " << chunks << ", m " << shape.micro_batches);
                    // A chunk's passes take 1/v of a stage's: the idle share is (p - 1) / (v m).
                    BOOST_TEST(
                        outcome.end == (chunks * shape.micro_batches + stages - 1) * (cost.forward + cost.backward),
                        "p " << stages << ", v " << chunks << ", m " << shape.micro_batches);
                }
}

BOOST_AUTO_TEST_CASE(slots_are_what_a_stage_has_under_way) {
    for (std::int64_t stages = 1; stages <= 16; ++stages)
        for (std::int64_t stage = 0; stage < stages; ++stage) {
            const auto steps = pipeline_schedule({stages, 1, 40}, stage);
            BOOST_TEST(slots_of(steps, 0) == stages - stage);
        }
    // Interleaved: the passes before the first backward and the one in hand, over all chunks.
    for (std::int64_t stages = 2; stages <= 8; ++stages)
        for (std::int64_t chunks = 2; chunks <= 3; ++chunks)
            for (std::int64_t stage = 0; stage < stages; ++stage) {
                const auto steps = pipeline_schedule({stages, chunks, 5 * stages}, stage);
                std::int64_t under_way = 0, most = 0;
                for (const PipelineStep& step : steps) {
                    under_way += step.forward ? 1 : -1;
                    most = std::max(most, under_way);
                }
                BOOST_TEST(most == 2 * (stages - 1 - stage) + (chunks - 1) * stages + 1);
                std::int64_t slots = 0;
                for (std::int64_t chunk = 0; chunk < chunks; ++chunk) slots += slots_of(steps, chunk);
                BOOST_TEST(slots >= most);
            }
}

BOOST_AUTO_TEST_CASE(micro_batches_begun_ahead_are_finished_too) {
    for (std::int64_t stages = 1; stages <= 5; ++stages)
        for (const std::int64_t micro_batches : {1, 2, 7}) {
            const Outcome outcome = simulate({stages, 1, micro_batches}, {1, 2}, 1);
            BOOST_TEST(outcome.finished);
            for (std::int64_t stage = 0; stage < stages; ++stage)
                BOOST_TEST(slots_of(pipeline_schedule({stages, 1, micro_batches}, stage, 1), 0) ==
                           std::min(micro_batches, stages - stage + 1));
        }
}

BOOST_AUTO_TEST_CASE(every_stage_runs_every_micro_batch_once_each_way) {
    for (const PipelineShape& shape : {PipelineShape{3, 1, 5}, PipelineShape{4, 3, 8}, PipelineShape{2, 2, 2}})
        for (std::int64_t stage = 0; stage < shape.stages; ++stage) {
            std::set<std::tuple<bool, std::int64_t, std::int64_t>> seen;
            for (const PipelineStep& step : pipeline_schedule(shape, stage))
                BOOST_TEST((seen.emplace(step.forward, step.chunk, step.micro_batch).second));
            BOOST_TEST(seen.size() == static_cast<std::size_t>(2 * shape.chunks * shape.micro_batches));
        }
}

// The head's gradients, which its forward pass computes, are then one micro-batch's after another's.
BOOST_AUTO_TEST_CASE(the_last_piece_goes_back_before_it_goes_on) {
    for (std::int64_t stages = 1; stages <= 5; ++stages)
        for (std::int64_t chunks = 1; chunks <= (stages > 1 ? 3 : 1); ++chunks) {
            std::int64_t next = 0;
            bool forward = true;
            for (const PipelineStep& step : pipeline_schedule({stages, chunks, 2 * stages}, stages - 1)) {
                if (step.chunk + 1 != chunks) continue;
                BOOST_TEST(step.forward == forward);
                BOOST_TEST(step.micro_batch == next);
                if (!forward) ++next;
                forward = !forward;
            }
            BOOST_TEST(next == 2 * stages);
        }
}
