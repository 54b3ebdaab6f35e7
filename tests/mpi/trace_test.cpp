#define BOOST_TEST_NO_MAIN
#define BOOST_TEST_MODULE trace_mpi
#include <boost/test/unit_test.hpp>
#include <cstdlib>

#include "base/fault.hpp"
#include "cluster/session.hpp"
#include "trace/reader.hpp"
#include "trace/tracer.hpp"
#include "unit/trace/synthetic_trace.hpp"

using namespace lockstep;
using namespace lockstep::trace;

namespace {

cluster::Session* session = nullptr;

StepNumbers numbers_of(std::int64_t step, double rank_loss = 0) {
    StepNumbers numbers;
    numbers.step = step;
    numbers.epoch = step / 8;
    numbers.tokens = 64 * step;
    numbers.loss = 1.0 / static_cast<double>(step);
    numbers.rank_loss = rank_loss;
    return numbers;
}

std::string shared_folder(cluster::HostGroup& world, const std::string& name) {
    const auto own =
        std::filesystem::temp_directory_path() / ("lockstep-mpi-" + name + "-" + std::to_string(::getpid()));
    return world.broadcast_text(own.string(), 0);
}

// `background_bytes` with which rank 0 itself writes every flush, or a thread does where it fits the file.
constexpr std::uint64_t in_foreground = ~std::uint64_t{0}, in_background = 0;

void trace_what_every_rank_does(std::uint64_t background_bytes) {
    const auto world = session->make_world_group();
    const std::string folder = shared_folder(*world, "rows");
    const int rank = session->rank(), ranks = session->size();
    TracerOptions options;
    options.folder = folder;
    options.steps_left = 20;
    options.event_every = 10;
    options.limits.background_bytes = background_bytes;
    options.rank.data = rank;
    options.rank.host = "host" + std::to_string(rank);
    Tracer tracer(options, session->make_world_group());
    const RegionId epoch = tracer.region("epoch"), step = tracer.region("epoch/step"),
                   forward = tracer.region("epoch/step/forward"), data = tracer.region("epoch/step/communication/data");
    tracer.begin(epoch);
    for (std::int64_t i = 1; i <= 20; ++i) {
        {
            const Scope in_step(tracer, step);
            // Every rank makes another number of calls, so rows that were mixed up would show.
            for (int call = 0; call <= rank; ++call) const Scope in_forward(tracer, forward);
            const Scope in_data(tracer, data);
            std::vector<double> numbers(static_cast<std::size_t>(i), 1);
            world->all_reduce(numbers, cluster::Reduce::sum);
            tracer.memory(static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(i), 9);
        }
        tracer.finish_step(numbers_of(i, static_cast<double>(i) + 0.1 * rank));
        if (i % 7 == 0) tracer.flush();
    }
    tracer.end(epoch);
    tracer.close();
    world->barrier();
    if (rank == 0) {
        const Run run = open_run(folder);
        BOOST_REQUIRE(run.parts.size() == 1);
        const TraceFile& file = run.parts[0].file;
        BOOST_REQUIRE(file.ranks() == static_cast<std::size_t>(ranks));
        BOOST_REQUIRE(file.steps().size() == 20);
        const std::size_t size = file.ranks(), regions = file.regions();
        std::vector<double> times, losses;
        std::vector<std::uint32_t> calls;
        std::vector<std::uint64_t> memory;
        file.read_times(0, 20, times);
        file.read_calls(0, 20, calls);
        file.read_rank_loss(0, 20, losses);
        file.read_memory(0, 20, memory);
        for (std::size_t row = 0; row < 20; ++row) {
            BOOST_TEST(file.steps()[row].tokens == 64 * static_cast<std::int64_t>(row + 1));
            for (std::size_t r = 0; r < size; ++r) {
                const double* time = times.data() + (row * size + r) * regions;
                const std::uint32_t* call = calls.data() + (row * size + r) * regions;
                BOOST_TEST(call[forward] == r + 1);
                BOOST_TEST(call[data] == 1u);
                BOOST_TEST(call[step] == 1u);
                BOOST_TEST(time[step] >= (time[forward] + time[data]) * (1 - 1e-9));
                BOOST_TEST(time[epoch] >= time[step] * (1 - 1e-9));
                BOOST_TEST(losses[row * size + r] == static_cast<double>(row + 1) + 0.1 * static_cast<double>(r));
                BOOST_TEST(memory[(row * size + r) * 3] == r);
                BOOST_TEST(memory[(row * size + r) * 3 + 1] == row + 1);
            }
        }
        for (std::size_t r = 0; r < size; ++r) {
            BOOST_TEST(file.header().ranks[r].host == "host" + std::to_string(r));
            BOOST_TEST(file.header().ranks[r].data == static_cast<std::int64_t>(r));
            BOOST_TEST(file.header().ranks[r].clock_error >= 0);
            // One machine has one clock: the true offset is zero and must lie in the interval.
            BOOST_TEST(std::abs(file.header().ranks[r].clock_offset) <= file.header().ranks[r].clock_error + 1e-9);
        }
        std::vector<std::size_t> events(size, 0);
        for (const EventRow& event : file.read_events()) {
            BOOST_TEST((event.step == 1 || event.step % 10 == 0));
            if (event.region == forward) ++events[static_cast<std::size_t>(event.rank)];
            const std::int64_t communicated = 8 * event.step;
            if (event.region == forward) BOOST_TEST(event.bytes == 0u);
            if (event.region == data || event.region == step)
                BOOST_TEST(event.bytes == static_cast<std::uint64_t>(communicated));
        }
        for (std::size_t r = 0; r < size; ++r) BOOST_TEST(events[r] == 3 * (r + 1));
        std::filesystem::remove_all(folder);
    }
    world->barrier();
}

}  // namespace

BOOST_AUTO_TEST_CASE(rows_hold_what_every_rank_did) {
    trace_what_every_rank_does(in_foreground);
}

BOOST_AUTO_TEST_CASE(a_thread_writes_the_same_rows) {
    trace_what_every_rank_does(in_background);
}

// Rank r has r + 1 events, and there is room for four: those of ranks 0 and 1, and the first of rank 2.
BOOST_AUTO_TEST_CASE(events_of_the_lowest_ranks_fill_the_room) {
    const auto world = session->make_world_group();
    const std::string folder = shared_folder(*world, "events");
    const int rank = session->rank(), ranks = session->size();
    TracerOptions options;
    options.folder = folder;
    options.steps_left = 1;
    options.limits.event_bytes = 4 * sizeof(EventRow);
    {
        Tracer tracer(options, session->make_world_group());
        const RegionId region = tracer.region("work");
        for (int call = 0; call <= rank; ++call) const Scope working(tracer, region);
        tracer.finish_step(numbers_of(1));
        tracer.close();
    }
    world->barrier();
    if (rank == 0) {
        std::vector<int> found, expected = {0, 1, 1, 2};
        for (const EventRow& event : open_run(folder).parts[0].file.read_events()) found.push_back(event.rank);
        expected.resize(std::min<std::size_t>(expected.size(), static_cast<std::size_t>(ranks * (ranks + 1) / 2)));
        BOOST_TEST(found == expected, boost::test_tools::per_element());
        std::filesystem::remove_all(folder);
    }
    world->barrier();
}

// Seven rows a flush, of which the second and the third do not fit the file that was begun.
BOOST_AUTO_TEST_CASE(a_thread_leaves_new_files_to_the_training_thread) {
    const auto world = session->make_world_group();
    const std::string folder = shared_folder(*world, "files");
    TracerOptions options;
    options.folder = folder;
    options.steps_left = 21;
    options.event_every = 0;
    options.limits.file_bytes = 1;
    options.limits.fewest_rows = 10;
    options.limits.background_bytes = in_background;
    Tracer tracer(options, session->make_world_group());
    tracer.region("step");
    for (std::int64_t i = 1; i <= 21; ++i) {
        tracer.finish_step(numbers_of(i, static_cast<double>(i)));
        if (i % 7 == 0) tracer.flush();
    }
    tracer.close();
    world->barrier();
    if (session->rank() == 0) {
        const Run run = open_run(folder);
        BOOST_TEST(run.closed());
        BOOST_TEST(run.parts.size() == 3u);
        double expected = 1;
        for (const RunPart& part : run.parts) {
            std::vector<double> losses;
            part.file.read_rank_loss(0, part.rows, losses);
            for (std::size_t row = 0; row < part.rows; ++row) BOOST_TEST(losses[row * part.file.ranks()] == expected++);
        }
        BOOST_TEST(expected == 22);
        std::filesystem::remove_all(folder);
    }
    world->barrier();
}

BOOST_AUTO_TEST_CASE(the_thread_is_used_for_large_flushes_only) {
    const auto world = session->make_world_group();
    ::setenv("LOCKSTEP_FAULT", "trace_thread:*:*:throw", 1);
    for (const std::uint64_t background_bytes : {in_foreground, in_background}) {
        const std::string folder = shared_folder(*world, "thread");
        TracerOptions options;
        options.folder = folder;
        options.steps_left = 2;
        options.limits.background_bytes = background_bytes;
        Tracer tracer(options, session->make_world_group());
        tracer.region("step");
        for (std::int64_t i = 1; i <= 2; ++i) {
            tracer.finish_step(numbers_of(i));
            tracer.flush();
        }
        tracer.close();
        world->barrier();
        if (session->rank() == 0) {
            const std::vector<RunPart> parts = open_run(folder).parts;
            BOOST_TEST((parts.empty() ? 0 : parts[0].rows) == (background_bytes == in_foreground ? 2u : 0u));
            std::filesystem::remove_all(folder);
        }
        world->barrier();
    }
    ::unsetenv("LOCKSTEP_FAULT");
}

BOOST_AUTO_TEST_CASE(trouble_on_rank_0_ends_the_trace_everywhere) {
    const auto world = session->make_world_group();
    for (const std::uint64_t background_bytes : {in_foreground, in_background}) {
        const std::string folder = shared_folder(*world, "trouble");
        ::setenv("LOCKSTEP_FAULT", "trace_write:0:5:enospc,trace_write:0:6:enospc", 1);
        TracerOptions options;
        options.folder = folder;
        options.steps_left = 20;
        options.limits.background_bytes = background_bytes;
        Tracer tracer(options, session->make_world_group());
        tracer.region("step");
        for (std::int64_t i = 1; i <= 12; ++i) {
            fault::set_position(session->rank(), static_cast<long>(i));
            tracer.finish_step(numbers_of(i));
            tracer.flush();
        }
        tracer.close();  // and nobody waits for ever
        ::unsetenv("LOCKSTEP_FAULT");
        fault::set_position(session->rank(), 0);
        world->barrier();
        if (session->rank() == 0) {
            // A thread may still write the fourth row when the fifth step begins, and the fifth when the sixth does.
            const std::uint64_t rows = open_run(folder).parts[0].rows;
            BOOST_TEST((rows == 4 || (background_bytes == in_background && rows == 3)), rows << " rows");
            std::filesystem::remove_all(folder);
        }
        world->barrier();
    }
}

BOOST_AUTO_TEST_CASE(destruction_without_close_waits_for_nobody) {
    const auto world = session->make_world_group();
    const std::string folder = shared_folder(*world, "unclosed");
    {
        TracerOptions options;
        options.folder = folder;
        options.limits.background_bytes = in_background;
        Tracer tracer(options, session->make_world_group());
        tracer.region("step");
        tracer.finish_step(numbers_of(1));
        tracer.flush();
        tracer.finish_step(numbers_of(2));
        if (session->rank() != 0) world->barrier();  // rank 0 destroys its tracer while the others still hold theirs
    }
    if (session->rank() == 0) world->barrier();
    if (session->rank() == 0) {
        const Run run = open_run(folder);
        BOOST_TEST(run.parts[0].rows == 1u);
        BOOST_TEST(!run.closed());
        std::filesystem::remove_all(folder);
    }
    world->barrier();
}

int main(int argc, char** argv) {
    cluster::Session own(&argc, &argv);
    session = &own;
    return own.run([&] { return boost::unit_test::unit_test_main(init_unit_test, argc, argv); });
}
