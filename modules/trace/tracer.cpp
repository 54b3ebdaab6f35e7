#include "trace/tracer.hpp"

#include <algorithm>
#include <cstring>
#include <future>
#include <numeric>
#include <system_error>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/fault.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "base/version.hpp"
#include "cluster/binding.hpp"
#include "cluster/flight_recorder.hpp"
#include "trace/region_clock.hpp"
#include "trace/writer.hpp"

namespace lockstep::trace {
namespace {

constexpr double flush_after_seconds = 2;
constexpr std::size_t flush_after_rows = 256;
constexpr std::size_t flush_after_bytes = std::size_t{128} << 20;  // of all ranks: rank 0 holds them while it writes

// What each rank sends rank 0 at the start.
struct RankMessage {
    char host[256] = {}, cores[512] = {}, gpu[256] = {}, network[256] = {};
    std::int64_t numa_node = -1, data = 0, tensor = 0, pipeline = 0, context = 0, threads = 1;
};

template <std::size_t size>
void copy_text(char (&to)[size], const std::string& from) {
    std::memcpy(to, from.data(), std::min(from.size(), size - 1));
}

// Each rank's clock offset from rank 0's. Nobody leaves a barrier before everybody has entered: with the offset o of a
// rank's clock, entered(rank) - o <= left(0) and entered(0) <= left(rank) - o. Repeated barriers narrow the interval.
struct ClockOffset {
    double offset = 0, error = 0;
};
std::vector<ClockOffset> measure_clock_offsets(cluster::HostGroup& communicator) {
    constexpr std::size_t rounds = 32;
    std::vector<double> own;
    for (std::size_t round = 0; round < rounds; ++round) {
        own.push_back(seconds_now());
        communicator.barrier();
        own.push_back(seconds_now());
    }
    const std::vector<char> bytes = communicator.gather(own.data(), own.size() * sizeof(double), 0);
    if (communicator.rank() != 0) return {};
    std::vector<double> all(bytes.size() / sizeof(double));
    std::memcpy(all.data(), bytes.data(), bytes.size());
    std::vector<ClockOffset> offsets(static_cast<std::size_t>(communicator.size()));
    for (std::size_t rank = 1; rank < offsets.size(); ++rank) {
        const double* theirs = all.data() + rank * 2 * rounds;
        double low = theirs[0] - all[1], high = theirs[1] - all[0];
        for (std::size_t round = 1; round < rounds; ++round) {
            low = std::max(low, theirs[2 * round] - all[2 * round + 1]);
            high = std::min(high, theirs[2 * round + 1] - all[2 * round]);
        }
        offsets[rank] = {(low + high) / 2, (high - low) / 2};
    }
    return offsets;
}

// Cost of one begin and end on this machine, in seconds.
double measure_pair_cost() {
    RegionClock scratch;
    const RegionId region = scratch.add(-1);
    constexpr int pairs = 2000;
    double best = 1;
    for (int batch = 0; batch < 3; ++batch) {
        const double start = seconds_now();
        for (int i = 0; i < pairs; ++i) {
            scratch.begin(region);
            scratch.end(region);
        }
        best = std::min(best, (seconds_now() - start) / pairs);
    }
    return best;
}

template <class Number>
void append_bytes(std::vector<char>& to, const std::vector<Number>& values) {
    const char* first = reinterpret_cast<const char*>(values.data());
    to.insert(to.end(), first, first + values.size() * sizeof(Number));
}

// Scatters one rank's message into [row, rank, …].
template <class Number>
const char* scatter_rows(const char* from, std::size_t rows, std::size_t rank, std::size_t ranks, std::size_t per_rank,
                         std::vector<Number>& to) {
    for (std::size_t row = 0; row < rows && per_rank > 0; ++row, from += per_rank * sizeof(Number))
        std::memcpy(to.data() + (row * ranks + rank) * per_rank, from, per_rank * sizeof(Number));
    return from;
}

}  // namespace

struct Tracer::Implementation {
    TracerOptions options;
    std::unique_ptr<cluster::HostGroup> communicator;
    bool on = false;      // a file is written
    bool sealed = false;  // the first row is closed: no more regions
    bool ended = false;   // all ranks agreed to stop writing
    bool closed = false;
    bool failed = false;  // rank 0 could not write
    double pair_cost = 0, overhead_row = 0, clock_zero = 0;
    RegionClock clock;
    std::vector<RegionRow> regions;
    std::uint64_t regions_hash = 0;

    // Rows since the last flush.
    std::vector<StepRow> rows;
    std::vector<double> rank_loss, overhead, times;
    std::vector<std::uint32_t> calls;
    std::vector<std::uint64_t> memory;
    std::vector<Span> spans;
    std::uint64_t memory_now[3] = {};
    double oldest_row = 0;
    bool any_row = false;

    // Rank 0 only.
    Header header;
    std::vector<char> messages;  // the rows of all ranks, as they sent them
    RowBatch batch;              // kept, since fresh memory for many ranks takes longer than what is done with it
    std::unique_ptr<TraceWriter> writer;
    bool told_of_dropped_events = false;
    std::future<void> writing;  // of `messages`, through `batch`, by `writer`; last, so that it ends before they do

    bool root() const { return communicator->rank() == 0; }
    void spend(double seconds) { overhead_row += seconds; }
    void clear_rows() {
        rows.clear();
        rank_loss.clear();
        overhead.clear();
        times.clear();
        calls.clear();
        memory.clear();
        spans.clear();
    }
    // Timing continues; only the file ends.
    void give_up(const char* reason) {
        if (!failed) log::warning("the trace ends here, training continues: {}", reason);
        failed = true;
        writer.reset();
        messages = std::vector<char>();
        batch = RowBatch();
    }
    void gather_ranks();
    void gather_rows();
    void gather_events();
    std::size_t bytes_of_rows() const;  // since the last flush, of all ranks
    void fill_batch();
    void write();
    void await_writing();
    void flush();
    void add_rest();
};

void Tracer::Implementation::gather_ranks() {
    RankMessage own;
    copy_text(own.host, options.rank.host);
    copy_text(own.cores, options.rank.cores);
    copy_text(own.gpu, options.rank.gpu);
    copy_text(own.network, options.rank.network);
    own.numa_node = options.rank.numa_node;
    own.data = options.rank.data;
    own.tensor = options.rank.tensor;
    own.pipeline = options.rank.pipeline;
    own.context = options.rank.context;
    own.threads = options.rank.threads;
    const std::vector<char> all = communicator->gather(&own, sizeof own, 0);
    const std::vector<ClockOffset> offsets = measure_clock_offsets(*communicator);
    if (!root()) return;
    clock_zero = seconds_now();
    header.start_time = wall_seconds();
    header.run_name = options.run_name;
    header.description = options.description;
    header.program_version = version();
    header.commit = commit();
    header.detail = config::word_of(options.detail);
    header.event_every = options.event_every;
    header.trained_parameters = options.trained_parameters;
    for (std::size_t i = 0; i < offsets.size(); ++i) {
        RankMessage message;
        std::memcpy(&message, all.data() + i * sizeof message, sizeof message);
        RankRow row;
        row.host = message.host;
        row.cores = message.cores;
        row.gpu = message.gpu;
        row.network = message.network;
        row.numa_node = message.numa_node;
        row.data = message.data;
        row.tensor = message.tensor;
        row.pipeline = message.pipeline;
        row.context = message.context;
        row.threads = message.threads;
        row.clock_offset = offsets[i].offset;
        row.clock_error = offsets[i].error;
        header.ranks.push_back(std::move(row));
    }
}

void Tracer::Implementation::gather_rows() {
    std::vector<char> own;
    append_bytes(own, rank_loss);
    append_bytes(own, overhead);
    append_bytes(own, memory);
    append_bytes(own, times);
    append_bytes(own, calls);
    messages = communicator->gather(own.data(), own.size(), 0);
    if (root()) batch.steps = rows;
}

void Tracer::Implementation::fill_batch() {
    const std::size_t count = batch.steps.size(), region_count = header.regions.size();
    const std::size_t ranks = header.ranks.size(), of_rank = messages.size() / ranks;
    batch.rank_loss.resize(count * ranks);
    batch.overhead.resize(count * ranks);
    batch.memory.resize(count * ranks * 3);
    batch.times.resize(count * ranks * region_count);
    batch.calls.resize(count * ranks * region_count);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        const char* from = messages.data() + rank * of_rank;
        from = scatter_rows(from, count, rank, ranks, 1, batch.rank_loss);
        from = scatter_rows(from, count, rank, ranks, 1, batch.overhead);
        from = scatter_rows(from, count, rank, ranks, 3, batch.memory);
        from = scatter_rows(from, count, rank, ranks, region_count, batch.times);
        scatter_rows(from, count, rank, ranks, region_count, batch.calls);
    }
    messages = std::vector<char>();  // "= {}" would keep the memory
}

// Of the lowest ranks, as many events as a file has room for; the others send none. Of the last rank that sends, the
// writer keeps what fits.
void Tracer::Implementation::gather_events() {
    const std::uint64_t own = spans.size(), room = options.limits.event_bytes / sizeof(EventRow);
    const std::vector<char> gathered = communicator->gather(&own, sizeof own, 0);
    std::vector<std::uint64_t> counts(gathered.size() / sizeof own);  // on rank 0
    if (!counts.empty()) std::memcpy(counts.data(), gathered.data(), gathered.size());
    std::uint64_t taken = own;
    std::size_t telling = 1;
    while (telling < counts.size() && taken < room) taken += counts[telling++];
    communicator->broadcast(&telling, sizeof telling, 0);
    std::vector<cluster::HostMessage> receives, sends;
    if (root()) {
        spans.resize(taken);
        std::uint64_t at = own;
        for (std::size_t rank = 1; rank < telling; at += counts[rank++])
            receives.push_back({static_cast<int>(rank), spans.data() + at, counts[rank] * sizeof(Span)});
    } else if (static_cast<std::size_t>(communicator->rank()) < telling) {
        sends.push_back({0, spans.data(), own * sizeof(Span)});
    }
    communicator->exchange(receives, sends);
    if (!root()) return;
    const Span* span = spans.data();
    for (std::size_t rank = 0; rank < telling; ++rank) {
        const double zero = clock_zero + header.ranks[rank].clock_offset;
        for (const Span* end = span + counts[rank]; span < end; ++span)
            batch.events.push_back({span->step, static_cast<std::int32_t>(rank), span->region, span->start - zero,
                                    span->end - zero, span->bytes});
    }
    if (std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}) <= room || told_of_dropped_events) return;
    told_of_dropped_events = true;
    log::warning(
        "the trace has room for {} events between two writes; some or all of those of rank {} and the ranks above it "
        "are not recorded",
        room, taken > room ? telling - 1 : telling);
}

std::size_t Tracer::Implementation::bytes_of_rows() const {
    const std::size_t of_rank = rank_loss.size() * sizeof(double) + overhead.size() * sizeof(double) +
                                memory.size() * sizeof(std::uint64_t) + times.size() * sizeof(double) +
                                calls.size() * sizeof(std::uint32_t);
    return of_rank * static_cast<std::size_t>(communicator->size());
}

// A large flush is written in the background, except where it begins another file: that takes HDF5, which is not
// thread-safe and which the training thread may use meanwhile.
void Tracer::Implementation::write() {
    if (failed) return;
    try {
        if (!writer) {
            header.regions = regions;
            const auto expected = std::max<std::int64_t>(options.steps_left, 0);
            writer = std::make_unique<TraceWriter>(options.folder, header, static_cast<std::uint64_t>(expected),
                                                   options.limits);
        }
        const auto work = [this] {
            fill_batch();
            writer->append(batch);
        };
        if (messages.size() < options.limits.background_bytes || !writer->fits_current_file(batch)) return work();
        try {
            writing = std::async(std::launch::async, [work] {
                cluster::bind_helper_thread();
                fault::at("trace_thread");
                work();
            });
        } catch (const std::system_error&) {  // no thread to be had
            work();
        }
    } catch (const std::exception& problem) {
        give_up(problem.what());
    }
}

void Tracer::Implementation::await_writing() {
    if (!writing.valid()) return;
    try {
        writing.get();
    } catch (const std::exception& problem) {
        give_up(problem.what());
    }
}

void Tracer::Implementation::flush() {
    const double start = seconds_now();
    await_writing();
    batch.events.clear();
    const auto count = static_cast<std::int64_t>(rows.size());
    const auto hash = static_cast<std::int64_t>(regions_hash >> 2);
    std::vector<std::int64_t> agreed = {count,         -count, hash, -hash, static_cast<std::int64_t>(spans.size()),
                                        failed ? 1 : 0};
    communicator->all_reduce(agreed, cluster::Reduce::maximum);
    LOCKSTEP_ASSERT(agreed[0] == count && agreed[1] == -count);  // every rank closed the same rows
    LOCKSTEP_ASSERT(agreed[2] == hash && agreed[3] == -hash);    // and registered the same regions in the same order
    ended = ended || agreed[5] != 0;
    if (!ended && count > 0) {
        gather_rows();
        if (agreed[4] > 0) gather_events();
        if (root()) write();
    }
    clear_rows();
    spend(seconds_now() - start);
}

// Time after the last row (a final validation or checkpoint) is added to it.
void Tracer::Implementation::add_rest() {
    if (ended || !any_row) return;
    const double start = seconds_now();
    await_writing();
    spend(seconds_now() - start);
    clear_rows();
    clock.record_spans(false);
    const double timed = pair_cost * static_cast<double>(clock.calls_in_row());
    clock.take_row(times, calls);
    overhead.push_back(overhead_row + timed);
    rank_loss.push_back(0);
    memory.insert(memory.end(), 3, 0);
    rows.emplace_back();
    gather_rows();
    if (!root() || failed) return;
    fill_batch();
    try {
        writer->add_to_last_row(batch.times, batch.calls, batch.overhead);
        writer->finish();
    } catch (const std::exception& problem) {
        give_up(problem.what());
    }
}

Tracer::Tracer(TracerOptions options, std::unique_ptr<cluster::HostGroup> communicator)
    : implementation_(std::make_unique<Implementation>()) {
    Implementation& own = *implementation_;
    own.options = std::move(options);
    own.communicator = std::move(communicator);
    own.on = own.options.detail != Detail::off;
    if (!own.on) return;
    own.pair_cost = measure_pair_cost();
    own.gather_ranks();
    own.clock.record_spans(own.options.event_every > 0);  // always for the first row, which has the initialization
}

// Not collective: a rank may get here by an exception. What was flushed stays readable.
Tracer::~Tracer() = default;

RegionId Tracer::region(const std::string& path, Detail least) {
    Implementation& own = *implementation_;
    if (!own.on || own.options.detail < least) return -1;
    for (const RegionRow& known : own.regions)
        if (known.path == path) return static_cast<RegionId>(known.id);
    LOCKSTEP_ASSERT(!own.sealed);  // regions are registered before the first step ends
    LOCKSTEP_ASSERT(!path.empty() && path.front() != '/' && path.back() != '/');
    const auto slash = path.rfind('/');
    const RegionId parent = slash == std::string::npos ? -1 : region(path.substr(0, slash), least);
    const RegionId id = own.clock.add(parent);
    own.regions_hash = hash64(path.data(), path.size()) ^ (own.regions_hash << 1);
    cluster::flight_recorder().name_region(id, path);
    own.regions.push_back({id, parent, slash == std::string::npos ? path : path.substr(slash + 1), path});
    return id;
}

void Tracer::begin(RegionId region, Call call) {
    if (region < 0) return;
    implementation_->clock.begin(region, call);
    cluster::flight_recorder().set_region(region);
}

void Tracer::end(RegionId region) {
    if (region < 0) return;
    implementation_->clock.end(region);
    cluster::flight_recorder().set_region(implementation_->clock.running());
}

void Tracer::memory(std::uint64_t allocated, std::uint64_t reserved, std::uint64_t peak) {
    implementation_->memory_now[0] = allocated;
    implementation_->memory_now[1] = reserved;
    implementation_->memory_now[2] = peak;
}

void Tracer::finish_step(const StepNumbers& numbers) {
    Implementation& own = *implementation_;
    if (!own.on || own.closed) return;
    const double start = seconds_now();
    own.sealed = own.any_row = true;
    own.spend(own.pair_cost * static_cast<double>(own.clock.calls_in_row()));
    own.clock.take_row(own.times, own.calls);
    for (Span& span : own.clock.take_spans()) {
        span.step = numbers.step;
        own.spans.push_back(span);
    }
    const std::int64_t every = own.options.event_every;
    own.clock.record_spans(every > 0 && (numbers.step + 1) % every == 0);
    if (own.rows.empty()) own.oldest_row = start;
    own.rows.emplace_back();
    static_cast<StepRecord&>(own.rows.back()) = numbers;
    own.rows.back().wall_time = wall_seconds();
    own.rank_loss.push_back(numbers.rank_loss);
    own.memory.insert(own.memory.end(), own.memory_now, own.memory_now + 3);
    std::fill(own.memory_now, own.memory_now + 3, std::uint64_t{0});
    own.overhead.push_back(own.overhead_row);
    own.overhead_row = 0;
    if (own.ended) own.clear_rows();
    own.spend(seconds_now() - start);
}

void Tracer::flush() {
    if (implementation_->on && !implementation_->closed && !implementation_->ended) implementation_->flush();
}

bool Tracer::wants_flush() const {
    const Implementation& own = *implementation_;
    if (!own.on || own.closed || own.ended || own.rows.empty()) return false;
    return own.rows.size() >= flush_after_rows || own.bytes_of_rows() >= flush_after_bytes ||
           seconds_now() - own.oldest_row > flush_after_seconds;
}

void Tracer::close() {
    Implementation& own = *implementation_;
    if (!own.on || own.closed) return;
    flush();
    own.add_rest();
    own.closed = true;
}

double Tracer::seconds_of(RegionId region) const {
    return region < 0 ? 0 : implementation_->clock.seconds_of(region);
}

}  // namespace lockstep::trace
