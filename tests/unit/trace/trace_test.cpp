#define BOOST_TEST_MODULE trace
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <fstream>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "hdf5/hdf5.hpp"
#include "trace/reader.hpp"
#include "trace/tracer.hpp"
#include "unit/trace/synthetic_trace.hpp"

using namespace lockstep;
using namespace lockstep::trace;
using namespace lockstep::trace::test;

namespace {

TracerOptions options_for(const std::string& folder, std::int64_t steps = 10) {
    TracerOptions options;
    options.folder = folder;
    options.run_name = "unit";
    options.description = "[run]\nname = 'unit'\n";
    options.steps_left = steps;
    options.event_every = 5;
    options.trained_parameters = 123;
    options.rank.host = "here";
    options.rank.network = "mlx5_0, mlx5_1";
    options.rank.threads = 3;
    return options;
}

StepNumbers numbers_of(std::int64_t step, double rank_loss = 0) {
    StepNumbers numbers;
    numbers.step = step;
    numbers.loss = 2.5;
    numbers.tokens = 100;
    numbers.rank_loss = rank_loss;
    return numbers;
}

std::size_t id_of(const TraceFile& file, const std::string& path) {
    for (const RegionRow& region : file.header().regions)
        if (region.path == path) return static_cast<std::size_t>(region.id);
    BOOST_FAIL("no region " << path);
    return 0;
}

ExitCode code_of(const std::string& path) {
    try {
        open_run(path);
    } catch (const Error& error) {
        BOOST_TEST(std::string(error.what()).find(path) != std::string::npos);
        return error.code();
    }
    return ExitCode::done;
}

std::string bytes_of(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}
void write_bytes(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
}

// Busy for so many clock ticks: long enough to be seen by the clock, whatever it measures.
void work() {
    const double start = seconds_now();
    while (seconds_now() - start < 2e-5) {
    }
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_run_is_read_back_as_it_was_traced) {
    const TemporaryFolder folder("trace-roundtrip");
    {
        Tracer tracer(options_for(folder / "run"), cluster::make_solo_group());
        const RegionId epoch = tracer.region("epoch"), step = tracer.region("epoch/step"),
                       forward = tracer.region("epoch/step/forward"),
                       layer = tracer.region("epoch/step/forward/block", Detail::layer);
        BOOST_TEST(layer == -1);  // finer than the run's detail
        BOOST_TEST(tracer.region("epoch/step") == step);
        tracer.begin(epoch);
        for (std::int64_t i = 1; i <= 10; ++i) {
            const Scope in_step(tracer, step);
            for (int micro = 0; micro < 3; ++micro) {
                const Scope in_forward(tracer, forward);
                const Scope in_layer(tracer, layer);
                work();
            }
            BOOST_TEST(tracer.seconds_of(forward) > 0);
            BOOST_TEST(tracer.seconds_of(step) >= tracer.seconds_of(forward));
            tracer.memory(100 + static_cast<std::uint64_t>(i), 200, 300);
            tracer.finish_step(numbers_of(i, 0.5 * static_cast<double>(i)));
            if (i % 4 == 0) tracer.flush();
        }
        tracer.end(epoch);
        tracer.close();
    }
    const Run run = open_run(folder / "run");
    BOOST_REQUIRE(run.parts.size() == 1);
    BOOST_TEST(run.closed());
    const TraceFile& file = run.parts[0].file;
    BOOST_TEST(file.header().run_name == "unit");
    BOOST_TEST(file.header().description == "[run]\nname = 'unit'\n");
    BOOST_TEST(file.header().ranks.at(0).host == "here");
    BOOST_TEST(file.header().ranks.at(0).threads == 3);
    BOOST_TEST(file.header().ranks.at(0).network == "mlx5_0, mlx5_1");
    BOOST_TEST(file.header().detail == "phase");
    BOOST_TEST(file.header().trained_parameters == 123);
    BOOST_REQUIRE(file.steps().size() == 10);
    std::vector<double> times, losses, overhead;
    std::vector<std::uint32_t> calls;
    std::vector<std::uint64_t> memory;
    file.read_times(0, 10, times);
    file.read_calls(0, 10, calls);
    file.read_rank_loss(0, 10, losses);
    file.read_memory(0, 10, memory);
    file.read_overhead(0, 10, overhead);
    const std::size_t epoch = id_of(file, "epoch"), step = id_of(file, "epoch/step"),
                      forward = id_of(file, "epoch/step/forward");
    for (std::size_t row = 0; row < 10; ++row) {
        BOOST_TEST(file.steps()[row].step == static_cast<std::int64_t>(row) + 1);
        BOOST_TEST(file.steps()[row].loss == 2.5);
        BOOST_TEST(losses[row] == 0.5 * static_cast<double>(row + 1));
        BOOST_TEST(memory[row * 3] == 101 + row);
        BOOST_TEST(memory[row * 3 + 2] == 300u);
        BOOST_TEST(calls[row * 3 + epoch] == (row == 0 ? 1u : 0u));  // counted where it began
        BOOST_TEST(calls[row * 3 + forward] == 3u);
        BOOST_TEST(times[row * 3 + forward] >= 3 * 2e-5);
        BOOST_TEST(times[row * 3 + step] >= times[row * 3 + forward]);  // inclusive
        BOOST_TEST(times[row * 3 + epoch] >= times[row * 3 + step]);    // open across rows, yet no row is without it
        BOOST_TEST(overhead[row] > 0);
    }
    // Sampled: the first row, and every fifth step.
    for (const EventRow& event : file.read_events()) {
        BOOST_TEST((event.step == 1 || event.step % 5 == 0));
        BOOST_TEST(event.end >= event.start);
        BOOST_TEST(event.start >= 0);
    }
    BOOST_TEST(file.read_events().size() >= 3u * 5);
}

BOOST_AUTO_TEST_CASE(validations_stand_in_the_rows_of_their_steps) {
    const TemporaryFolder folder("trace-validation");
    {
        Tracer tracer(options_for(folder.string()), cluster::make_solo_group());
        for (std::int64_t i = 1; i <= 3; ++i) {
            StepNumbers numbers = numbers_of(i);
            if (i == 2) numbers.validation = {1.25, 1.75, 4096};
            tracer.finish_step(numbers);
        }
        tracer.close();
    }
    const TraceFile file(folder / "trace-001.h5");
    BOOST_REQUIRE(file.steps().size() == 3);
    BOOST_TEST(file.steps()[0].validation.tokens == 0);
    BOOST_TEST(file.steps()[1].validation.loss == 1.25);
    BOOST_TEST(file.steps()[1].validation.bits_per_byte == 1.75);
    BOOST_TEST(file.steps()[1].validation.tokens == 4096);
    BOOST_TEST(file.steps()[2].validation.tokens == 0);
}

// Columns are found by their names: programs older than a column read the others, and are read without it.
BOOST_AUTO_TEST_CASE(rows_with_and_without_validations_have_one_format) {
    const TemporaryFolder folder("trace-columns");
    const Header header = make_header(1, {"step"});
    RowBatch block = make_block(header, 1, 4);
    for (StepRow& row : block.steps) row.validation = {1.25, 1.75, 4096};
    TraceWriter writer(folder.string(), header, 10);
    writer.append(block);
    writer.finish();
    const hdf5::File file = hdf5::File::open(folder / "trace-001.h5");
    BOOST_TEST(file.read_integer("/", "format_version") == 1);
    const hdf5::RecordType known = {{{"loss", hdf5::ElementType::fp64, 0}, {"step", hdf5::ElementType::int64, 8}}, 16};
    struct Row {
        double loss = 0;
        std::int64_t step = 0;
    };
    std::vector<Row> rows(4);
    file.read_rows("steps", known, 0, 4, rows.data());
    BOOST_TEST(rows[3].step == 4);
    BOOST_TEST(rows[3].loss == 0.25);
    hdf5::File old = hdf5::File::create(folder / "old.h5");
    old.create_dataset("steps", known, {4});
    old.write("steps", rows.data());
    old.close();
    std::vector<StepRow> without(4);
    hdf5::File::open(folder / "old.h5").read_rows("steps", step_record(), 0, 4, without.data());
    BOOST_TEST(without[3].step == 4);
    BOOST_TEST(without[3].loss == 0.25);
    BOOST_TEST(without[3].validation.tokens == 0);
}

BOOST_AUTO_TEST_CASE(closing_leaves_only_real_rows) {
    const TemporaryFolder folder("trace-trim");
    {
        Tracer tracer(options_for(folder.string(), 100000), cluster::make_solo_group());
        const RegionId step = tracer.region("epoch/step");
        for (std::int64_t i = 1; i <= 7; ++i) {
            const Scope scope(tracer, step);
            tracer.finish_step(numbers_of(i));
        }
        tracer.flush();
        BOOST_TEST(hdf5::File::open(folder / "trace-001.h5").info("steps").dimensions[0] == 100000u);
        tracer.close();
    }
    const hdf5::File file = hdf5::File::open(folder / "trace-001.h5");
    for (const char* name : {"steps", "rank_loss", "times", "calls", "memory", "overhead"})
        BOOST_TEST(file.info(name).dimensions[0] == 7u);
    std::int64_t valid = 0;
    file.read("valid_events", &valid);
    BOOST_TEST(file.info("events").dimensions[0] == static_cast<std::uint64_t>(valid));
    BOOST_TEST(!std::filesystem::exists(folder / "trace-001.h5.tmp"));
}

BOOST_AUTO_TEST_CASE(a_region_elsewhere_pauses_what_is_open) {
    const TemporaryFolder folder("trace-elsewhere");
    {
        Tracer tracer(options_for(folder.string()), cluster::make_solo_group());
        const RegionId epoch = tracer.region("epoch"), step = tracer.region("epoch/step"),
                       backward = tracer.region("epoch/step/backward"),
                       data = tracer.region("epoch/step/communication/data"), validation = tracer.region("validation");
        tracer.begin(epoch);
        {
            const Scope in_step(tracer, step);
            const Scope in_backward(tracer, backward);
            work();
            const double before = tracer.seconds_of(backward);
            for (int i = 0; i < 2; ++i) {
                const Scope in_data(tracer, data);  // a sibling's child: backward stands still
                const double paused = tracer.seconds_of(backward);
                work();
                BOOST_TEST(tracer.seconds_of(backward) == paused);
            }
            BOOST_TEST(tracer.seconds_of(backward) > before);
        }
        {
            const Scope in_validation(tracer, validation);
            const double paused = tracer.seconds_of(epoch);
            work();
            BOOST_TEST(tracer.seconds_of(epoch) == paused);
        }
        tracer.finish_step(numbers_of(1));
        tracer.end(epoch);
        tracer.close();
    }
    const TraceFile file(folder / "trace-001.h5");
    std::vector<double> times;
    std::vector<std::uint32_t> calls;
    file.read_times(0, 1, times);
    file.read_calls(0, 1, calls);
    const std::size_t step = id_of(file, "epoch/step"), backward = id_of(file, "epoch/step/backward"),
                      communication = id_of(file, "epoch/step/communication"),
                      data = id_of(file, "epoch/step/communication/data");
    BOOST_TEST(calls[communication] == 2u);  // entered with its child
    BOOST_TEST(calls[data] == 2u);
    BOOST_TEST(times[communication] == times[data]);
    BOOST_TEST(times[step] >= (times[backward] + times[communication]) * (1 - 1e-9));
}

BOOST_AUTO_TEST_CASE(wrong_nesting_breaks_the_contract) {
    const TemporaryFolder folder("trace-nesting");
    Tracer tracer(options_for(folder.string()), cluster::make_solo_group());
    const RegionId step = tracer.region("step"), forward = tracer.region("step/forward");
    BOOST_CHECK_THROW(tracer.end(step), Error);
    tracer.begin(step);
    tracer.begin(forward);
    BOOST_CHECK_THROW(tracer.end(step), Error);
    BOOST_CHECK_THROW(tracer.begin(step), Error);  // open already
    tracer.end(forward);
    tracer.finish_step(numbers_of(1));
    BOOST_CHECK_THROW(tracer.region("late"), Error);
    BOOST_TEST(tracer.region("step/forward") == forward);
}

BOOST_AUTO_TEST_CASE(what_comes_after_the_last_step_is_not_lost) {
    const TemporaryFolder folder("trace-rest");
    double seconds = 0;
    {
        Tracer tracer(options_for(folder.string()), cluster::make_solo_group());
        const RegionId validation = tracer.region("validation");
        tracer.finish_step(numbers_of(1, 0.25));
        tracer.finish_step(numbers_of(2, 0.125));
        tracer.flush();
        {
            const Scope scope(tracer, validation);
            work();
        }
        seconds = tracer.seconds_of(validation);
        tracer.close();
        tracer.close();  // a second time does nothing
    }
    const TraceFile file(folder / "trace-001.h5");
    std::vector<double> times, losses;
    std::vector<std::uint32_t> calls;
    file.read_times(0, 2, times);
    file.read_calls(0, 2, calls);
    file.read_rank_loss(0, 2, losses);
    BOOST_TEST(times[0] == 0);
    BOOST_TEST(times[1] == seconds);
    BOOST_TEST(calls[1] == 1u);
    BOOST_TEST(losses[1] == 0.125);
}

BOOST_AUTO_TEST_CASE(without_detail_there_is_no_file) {
    const TemporaryFolder folder("trace-off");
    TracerOptions options = options_for(folder.string());
    options.detail = Detail::off;
    Tracer tracer(options, cluster::make_solo_group());
    const RegionId step = tracer.region("step");
    BOOST_TEST(step == -1);
    {
        const Scope scope(tracer, step);
        tracer.finish_step(numbers_of(1));
    }
    BOOST_TEST(!tracer.wants_flush());
    tracer.flush();
    tracer.close();
    BOOST_TEST(std::filesystem::is_empty(folder.string()));
}

BOOST_AUTO_TEST_CASE(many_waiting_rows_ask_for_a_flush) {
    const TemporaryFolder folder("trace-wants");
    Tracer tracer(options_for(folder.string()), cluster::make_solo_group());
    BOOST_TEST(!tracer.wants_flush());
    for (std::int64_t i = 1; i <= 256; ++i) tracer.finish_step(numbers_of(i));
    BOOST_TEST(tracer.wants_flush());
    tracer.flush();
    BOOST_TEST(!tracer.wants_flush());
}

BOOST_AUTO_TEST_CASE(a_full_disk_ends_the_trace_and_not_the_run) {
    const TemporaryFolder folder("trace-enospc");
    {
        Tracer tracer(options_for(folder.string()), cluster::make_solo_group());
        const RegionId step = tracer.region("step");
        const auto one = [&](std::int64_t number) {
            const Scope scope(tracer, step);
            tracer.finish_step(numbers_of(number));
        };
        one(1);
        tracer.flush();
        ::setenv("LOCKSTEP_FAULT", "trace_write:*:*:enospc", 1);
        one(2);
        tracer.flush();
        ::unsetenv("LOCKSTEP_FAULT");
        for (std::int64_t i = 3; i < 20; ++i) {
            one(i);
            tracer.flush();
        }
        tracer.begin(step);
        work();
        BOOST_TEST(tracer.seconds_of(step) > 0);  // still a stopwatch
        tracer.end(step);
        tracer.close();
    }
    const Run run = open_run(folder.string());
    BOOST_TEST(run.parts[0].rows == 1u);
    BOOST_TEST(!run.closed());
}

BOOST_AUTO_TEST_CASE(a_full_file_is_followed_by_another) {
    const TemporaryFolder folder("trace-overflow");
    const Header header = make_header(3, {"epoch", "epoch/step"});
    WriterLimits limits;
    limits.file_bytes = 1;
    limits.fewest_rows = 64;
    {
        TraceWriter writer(folder.string(), header, 150, limits);
        for (std::int64_t first = 1; first <= 141; first += 20) writer.append(make_block(header, first, 20));
        writer.finish();
    }
    const Run run = open_run(folder.string());
    BOOST_REQUIRE(run.parts.size() == 3);
    BOOST_TEST(run.launches == 1);
    BOOST_TEST(run.superseded == 0u);
    std::int64_t expected = 1;
    for (const RunPart& part : run.parts) {
        BOOST_TEST(part.file.closed());
        std::vector<double> times;
        std::vector<std::uint64_t> memory;
        part.file.read_times(0, part.rows, times);
        part.file.read_memory(0, part.rows, memory);
        for (std::size_t row = 0; row < part.rows; ++row, ++expected) {
            BOOST_TEST(part.file.steps()[row].step == expected);
            for (std::size_t rank = 0; rank < 3; ++rank) {
                BOOST_TEST(memory[(row * 3 + rank) * 3 + 1] ==
                           static_cast<std::uint64_t>(expected) * 1000 + rank * 10 + 1);
                for (std::size_t region = 0; region < 2; ++region)
                    BOOST_TEST(times[(row * 3 + rank) * 2 + region] == known_time(expected, rank, region));
            }
        }
    }
    BOOST_TEST(expected == 161);
}

BOOST_AUTO_TEST_CASE(events_that_do_not_fit_begin_another_file) {
    const TemporaryFolder folder("trace-events");
    const Header header = make_header(1, {"step"});
    WriterLimits limits;
    limits.event_bytes = 10 * sizeof(EventRow);
    TraceWriter writer(folder.string(), header, 100, limits);
    for (std::int64_t step = 1; step <= 4; ++step) {
        RowBatch block = make_block(header, step, 1);
        for (int i = 0; i < 6; ++i) block.events.push_back({step, 0, 0, 1.0 * i, 1.0 * i + 0.5});
        writer.append(block);
    }
    RowBatch block = make_block(header, 5, 1);
    block.events.assign(12, {5, 0, 0, 0, 1});
    writer.append(block);
    writer.finish();
    const Run run = open_run(folder.string());
    BOOST_REQUIRE(run.parts.size() == 5);
    for (const RunPart& part : run.parts)
        for (const EventRow& event : part.file.read_events()) BOOST_TEST(event.step == part.file.steps()[0].step);
    BOOST_TEST(run.parts[4].file.read_events().size() == 10u);
}

BOOST_AUTO_TEST_CASE(what_begins_another_file_is_known_before) {
    const TemporaryFolder folder("trace-fits");
    const Header header = make_header(2, {"step"});
    WriterLimits limits;
    limits.file_bytes = 1;
    limits.fewest_rows = 8;
    limits.event_bytes = 10 * sizeof(EventRow);
    TraceWriter writer(folder.string(), header, 100, limits);
    const auto block = [&](std::size_t rows, std::size_t events) {
        RowBatch batch = make_block(header, 1, rows);
        batch.events.assign(events, EventRow{});
        return batch;
    };
    // As many as there is room for: of more events than a file holds, the first are kept.
    BOOST_TEST(writer.fits_current_file(block(8, 11)));
    BOOST_TEST(!writer.fits_current_file(block(9, 0)));
    const auto files = [&] { return trace_files(folder.string()).size(); };
    writer.append(block(5, 6));
    BOOST_TEST(writer.fits_current_file(block(3, 4)));
    BOOST_TEST(!writer.fits_current_file(block(4, 0)));
    BOOST_TEST(!writer.fits_current_file(block(1, 5)));
    writer.append(block(3, 4));
    BOOST_TEST(files() == 1u);
    BOOST_TEST(!writer.fits_current_file(block(1, 0)));
    writer.append(block(1, 0));
    BOOST_TEST(files() == 2u);
}

BOOST_AUTO_TEST_CASE(a_resume_supersedes_the_steps_it_makes_again) {
    const TemporaryFolder folder("trace-resume");
    const Header header = make_header(2, {"step"});
    const auto launch = [&](std::int64_t first, std::size_t count, bool ends) {
        TraceWriter writer(folder.string(), header, 100);
        writer.append(make_block(header, first, count));
        if (ends) writer.finish();
    };
    launch(1, 30, false);   // killed after step 30; the last checkpoint was step 20
    launch(21, 15, false);  // killed after step 35, which has no checkpoint either
    launch(21, 20, true);
    const Run run = open_run(folder.string());
    BOOST_REQUIRE(run.parts.size() == 3);
    BOOST_TEST(run.launches == 3);
    BOOST_TEST(run.parts[0].rows == 20u);
    BOOST_TEST(run.parts[1].rows == 0u);
    BOOST_TEST(run.parts[2].rows == 20u);
    BOOST_TEST(run.superseded == 25u);
    BOOST_TEST(run.closed());
}

BOOST_AUTO_TEST_CASE(other_and_damaged_files_are_told_apart) {
    const TemporaryFolder folder("trace-damaged");
    const Header header = make_header(2, {"epoch", "epoch/step"});
    {
        TraceWriter writer(folder / "run", header, 100);
        writer.append(make_block(header, 1, 50));
        writer.finish();
    }
    const std::string whole = bytes_of(folder / "run/trace-001.h5");
    BOOST_TEST((code_of(folder / "run") == ExitCode::done));
    BOOST_TEST((code_of(folder / "nothing") == ExitCode::usage));
    BOOST_TEST((code_of(folder.string()) == ExitCode::usage));  // a folder without traces
    write_bytes(folder / "text.txt", "not a trace at all");
    BOOST_TEST((code_of(folder / "text.txt") == ExitCode::usage));
    write_bytes(folder / "text.h5", "not a trace at all");
    BOOST_TEST((code_of(folder / "text.h5") == ExitCode::damaged));
    write_bytes(folder / "empty.h5", "");
    BOOST_TEST((code_of(folder / "empty.h5") == ExitCode::damaged));
    hdf5::File::create(folder / "other.h5").close();
    BOOST_TEST((code_of(folder / "other.h5") == ExitCode::usage));
    for (const std::size_t share : {1u, 5u, 50u, 90u, 99u}) {
        write_bytes(folder / "cut.h5", whole.substr(0, whole.size() * share / 100));
        BOOST_TEST((code_of(folder / "cut.h5") == ExitCode::damaged));
    }
    // A count that cannot be true.
    const std::uint64_t offset = hdf5::File::open(folder / "run/trace-001.h5").info("valid_steps").offset;
    for (const std::int64_t wrong : {std::int64_t{51}, std::int64_t{-1}, std::int64_t{1} << 60}) {
        std::string bytes = whole;
        bytes.replace(offset, sizeof wrong, reinterpret_cast<const char*>(&wrong), sizeof wrong);
        write_bytes(folder / "wrong.h5", bytes);
        BOOST_TEST((code_of(folder / "wrong.h5") == ExitCode::damaged));
    }
}
