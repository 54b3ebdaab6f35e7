#include "trace/reader.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>

#include "base/error.hpp"
#include "base/open_file.hpp"

namespace lockstep::trace {
namespace {

using hdf5::ElementType;

// HDF5's errors about foreign files are unhelpful, so these are recognized first.
hdf5::File open_trace(const std::string& path) {
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored))
        throw usage_error("{} does not exist; give a run folder or a trace file", path);
    if (!std::filesystem::is_regular_file(path, ignored)) throw usage_error("{} is not a file", path);
    if (file_bytes(path) == 0) throw damaged_error("{} is empty", path);
    if (!hdf5::has_signature(path)) {
        if (std::filesystem::path(path).extension() == ".h5")
            throw damaged_error("{} is damaged: it has no HDF5 signature", path);
        throw usage_error("{} is not a trace; give a run folder or a trace-NNN.h5 file", path);
    }
    hdf5::File file = hdf5::File::open(path);
    if (!file.has_attribute("/", "format") || file.read_string("/", "format") != format_name)
        throw usage_error("{} is an HDF5 file but not a lockstep trace", path);
    const std::int64_t version = file.read_integer("/", "format_version");
    if (version < 1 || version > format_version)
        throw usage_error("{} has trace format {}; this program reads formats up to {}: use a newer lockstep", path,
                          version, format_version);
    return file;
}

std::int64_t read_count(const hdf5::File& file, const std::string& name) {
    if (!file.exists(name)) throw damaged_error("{} is damaged: /{} is missing", file.path(), name);
    const auto about = file.info(name);
    if (!about.dimensions.empty() || about.type_name != "int64")
        throw damaged_error("{} is damaged: /{} is not a single number", file.path(), name);
    std::int64_t value = 0;
    file.read(name, &value);
    return value;
}

void check_shape(const hdf5::File& file, const std::string& name, const hdf5::Dimensions& behind, std::uint64_t rows,
                 const std::string& type) {
    if (!file.exists(name)) throw damaged_error("{} is damaged: /{} is missing", file.path(), name);
    const auto about = file.info(name);
    bool right = about.dimensions.size() == behind.size() + 1 && about.dimensions[0] >= rows && about.type_name == type;
    for (std::size_t i = 0; right && i < behind.size(); ++i) right = about.dimensions[i + 1] == behind[i];
    if (!right)
        throw damaged_error("{} is damaged: the shape of /{} does not match the other datasets", file.path(), name);
    // A wrong shape must not turn into a huge allocation; nor, below, a right one of which the file has nothing.
    constexpr std::uint64_t most = std::uint64_t{1} << 46;
    std::uint64_t bytes = about.element_bytes;
    for (const auto size : about.dimensions) {
        if (size > 0 && bytes > most / size)
            throw damaged_error("{} is damaged: /{} cannot be that large", file.path(), name);
        bytes *= size;
    }
    check_stored(file, name, about, bytes);
}

}  // namespace

TraceFile::TraceFile(const std::string& path) : file_(open_trace(path)) {
    header_ = read_header(file_);
    closed_ = read_count(file_, "closed") != 0;
    const std::int64_t steps = read_count(file_, "valid_steps"), events = read_count(file_, "valid_events");
    if (steps < 0 || events < 0)
        throw damaged_error("{} is damaged: it claims {} steps and {} events", path, steps, events);
    if (header_.ranks.empty()) throw damaged_error("{} is damaged: it has no ranks", path);
    events_ = static_cast<std::size_t>(events);
    const auto rows = static_cast<std::uint64_t>(steps);
    const std::uint64_t rank_count = ranks(), region_count = regions();
    check_shape(file_, "steps", {}, rows, "record");
    check_shape(file_, "rank_loss", {rank_count}, rows, "fp64");
    check_shape(file_, "times", {rank_count, region_count}, rows, "fp64");
    check_shape(file_, "calls", {rank_count, region_count}, rows, "uint32");
    check_shape(file_, "memory", {rank_count, 3}, rows, "uint64");
    check_shape(file_, "overhead", {rank_count}, rows, "fp64");
    check_shape(file_, "events", {}, events_, "record");
    steps_.resize(rows);
    file_.read_rows("steps", step_record(), 0, rows, steps_.data());
    for (std::size_t i = 1; i < steps_.size(); ++i)
        if (steps_[i].step <= steps_[i - 1].step)
            throw damaged_error("{} is damaged: step {} follows step {}", path, steps_[i].step, steps_[i - 1].step);
}

void TraceFile::read_times(std::size_t first, std::size_t count, std::vector<double>& seconds) const {
    seconds.resize(count * ranks() * regions());
    file_.read_rows("times", ElementType::fp64, first, count, seconds.data());
}

void TraceFile::read_calls(std::size_t first, std::size_t count, std::vector<std::uint32_t>& calls) const {
    calls.resize(count * ranks() * regions());
    file_.read_rows("calls", ElementType::uint32, first, count, calls.data());
}

void TraceFile::read_rank_loss(std::size_t first, std::size_t count, std::vector<double>& losses) const {
    losses.resize(count * ranks());
    file_.read_rows("rank_loss", ElementType::fp64, first, count, losses.data());
}

void TraceFile::read_memory(std::size_t first, std::size_t count, std::vector<std::uint64_t>& bytes) const {
    bytes.resize(count * ranks() * 3);
    file_.read_rows("memory", ElementType::uint64, first, count, bytes.data());
}

void TraceFile::visit_memory(std::size_t rows,
                             const std::function<void(std::size_t, const std::uint64_t*)>& take) const {
    const std::size_t row_size = ranks() * 3;
    const std::size_t block = std::max<std::size_t>((std::size_t{4} << 20) / (row_size * sizeof(std::uint64_t)), 1);
    std::vector<std::uint64_t> memory;
    for (std::size_t first = 0; first < rows; first += block) {
        const std::size_t count = std::min(block, rows - first);
        read_memory(first, count, memory);
        for (std::size_t i = 0; i < count; ++i) take(first + i, &memory[i * row_size]);
    }
}

void TraceFile::read_overhead(std::size_t first, std::size_t count, std::vector<double>& seconds) const {
    seconds.resize(count * ranks());
    file_.read_rows("overhead", ElementType::fp64, first, count, seconds.data());
}

std::vector<EventRow> TraceFile::read_events() const {
    std::vector<EventRow> events(events_);
    file_.read_rows("events", event_record(), 0, events_, events.data());
    for (const EventRow& event : events)
        if (event.rank < 0 || static_cast<std::size_t>(event.rank) >= ranks() || event.region < 0 ||
            static_cast<std::size_t>(event.region) >= regions())
            throw damaged_error("{} is damaged: an event refers to rank {} and region {}", path(), event.rank,
                                event.region);
    return events;
}

Run open_run(const std::string& path) {
    Run run;
    run.path = path;
    std::error_code ignored;
    std::vector<NumberedFile> files;
    if (std::filesystem::is_directory(path, ignored)) {
        files = trace_files(path);
        if (files.empty())
            throw usage_error("{} has no trace-NNN.h5: either trace.detail is \"off\" or no step has been written yet",
                              path);
    } else {
        files.push_back({0, path});
    }
    for (const NumberedFile& file : files) {
        RunPart part{TraceFile(file.path)};
        part.rows = part.file.steps().size();
        if (part.file.header().part == 0 || run.parts.empty()) ++run.launches;
        part.launch = run.launches;
        run.parts.push_back(std::move(part));
    }
    // Later files take precedence: an earlier file counts up to the first step of a later one.
    std::int64_t resumed_at = std::numeric_limits<std::int64_t>::max();
    for (auto part = run.parts.rbegin(); part != run.parts.rend(); ++part) {
        const auto& steps = part->file.steps();
        while (part->rows > 0 && steps[part->rows - 1].step >= resumed_at) --part->rows, ++run.superseded;
        if (!steps.empty()) resumed_at = std::min(resumed_at, steps.front().step);
    }
    return run;
}

}  // namespace lockstep::trace
