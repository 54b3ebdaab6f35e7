#include "trace/writer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/error.hpp"
#include "base/fault.hpp"

namespace lockstep::trace {
namespace {

class Descriptor {
  public:
    Descriptor(const std::string& path, int flags) : path_(path), id_(::open(path.c_str(), flags | O_CLOEXEC)) {
        if (id_ < 0) throw fault_error("{} cannot be opened: {}", path, system_error_text());
    }
    ~Descriptor() {
        if (id_ >= 0) ::close(id_);
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    int get() const { return id_; }
    int release() { return std::exchange(id_, -1); }
    void sync_and_close() {
        // Some file systems report a full disk only here.
        if (::fsync(id_) != 0) throw fault_error("{} cannot be synced: {}", path_, system_error_text());
        if (::close(release()) != 0) throw fault_error("{} cannot be closed: {}", path_, system_error_text());
    }

  private:
    std::string path_;
    int id_;
};

void write_all(int descriptor, const std::string& path, std::uint64_t offset, const void* data, std::size_t bytes) {
    const char* from = static_cast<const char*>(data);
    if (fault::at("trace_write") == "enospc") {
        errno = ENOSPC;
        throw fault_error("{} cannot be written: {}", path, system_error_text());
    }
    while (bytes > 0) {
        const ssize_t done = ::pwrite(descriptor, from, bytes, static_cast<off_t>(offset));
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) throw fault_error("{} cannot be written: {}", path, system_error_text());
        from += done;
        offset += static_cast<std::uint64_t>(done);
        bytes -= static_cast<std::size_t>(done);
    }
}

void read_all(int descriptor, const std::string& path, std::uint64_t offset, void* data, std::size_t bytes) {
    char* to = static_cast<char*>(data);
    while (bytes > 0) {
        const ssize_t done = ::pread(descriptor, to, bytes, static_cast<off_t>(offset));
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0)
            throw fault_error("{} cannot be read: {}", path, done == 0 ? "it ends early" : system_error_text());
        to += done;
        offset += static_cast<std::uint64_t>(done);
        bytes -= static_cast<std::size_t>(done);
    }
}

void rename_file(const std::string& from, const std::string& to) {
    if (std::rename(from.c_str(), to.c_str()) != 0)
        throw fault_error("{} cannot be renamed to {}: {}", from, to, system_error_text());
}

std::string file_name(const std::string& folder, std::int64_t number) {
    return fmt::format("{}/trace-{:03}.h5", folder, number);
}

}  // namespace

TraceWriter::TraceWriter(std::string folder, Header header, std::uint64_t rows, WriterLimits limits)
    : folder_(std::move(folder)), header_(std::move(header)), limits_(limits), rows_expected_(rows) {
    std::error_code problem;
    std::filesystem::create_directories(folder_, problem);
    if (problem) throw fault_error("cannot create the folder {}: {}", folder_, problem.message());
    begin_file();
}

TraceWriter::~TraceWriter() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

void TraceWriter::begin_file() {
    const auto files = trace_files(folder_);
    path_ = file_name(folder_, files.empty() ? 1 : files.back().number + 1);
    const std::uint64_t fitting = limits_.file_bytes / bytes_per_row(header_);
    row_capacity_ = std::max(std::min(rows_expected_, fitting), limits_.fewest_rows);
    event_capacity_ = header_.event_every > 0 ? limits_.event_bytes / sizeof(EventRow) : 0;
    rows_ = events_ = 0;
    // Under a temporary name until complete: a kill during HDF5 writes must not leave an unreadable trace.
    const std::string unfinished = path_ + ".tmp";
    offsets_ = lay_out(unfinished, header_, row_capacity_, event_capacity_);
    rename_file(unfinished, path_);
    descriptor_ = Descriptor(path_, O_RDWR).release();
}

void TraceWriter::close_descriptor() {
    if (descriptor_ >= 0 && ::close(std::exchange(descriptor_, -1)) != 0)
        throw fault_error("{} cannot be closed: {}", path_, system_error_text());
}

void TraceWriter::write_at(std::uint64_t offset, const void* data, std::size_t bytes) {
    write_all(descriptor_, path_, offset, data, bytes);
}

void TraceWriter::read_at(std::uint64_t offset, void* data, std::size_t bytes) const {
    read_all(descriptor_, path_, offset, data, bytes);
}

void TraceWriter::write_rows(const RowBatch& batch, std::size_t first, std::size_t count) {
    const std::size_t ranks = header_.ranks.size(), cells = ranks * header_.regions.size();
    const auto part = [&](std::uint64_t offset, const auto& values, std::size_t per_row) {
        const std::size_t bytes = per_row * sizeof(values[0]);
        if (bytes > 0) write_at(offset + rows_ * bytes, values.data() + first * per_row, count * bytes);
    };
    part(offsets_.steps, batch.steps, 1);
    part(offsets_.rank_loss, batch.rank_loss, ranks);
    part(offsets_.times, batch.times, cells);
    part(offsets_.calls, batch.calls, cells);
    part(offsets_.memory, batch.memory, ranks * 3);
    part(offsets_.overhead, batch.overhead, ranks);
    rows_ += count;
    rows_expected_ -= std::min<std::uint64_t>(rows_expected_, count);
    const auto valid = static_cast<std::int64_t>(rows_);
    write_at(offsets_.valid_steps, &valid, sizeof valid);
}

void TraceWriter::write_events(const std::vector<EventRow>& events) {
    const std::uint64_t kept = std::min<std::uint64_t>(events.size(), event_capacity_ - events_);
    events_dropped_ += events.size() - kept;
    if (kept == 0) return;
    write_at(offsets_.events + events_ * sizeof(EventRow), events.data(), kept * sizeof(EventRow));
    events_ += kept;
    const auto valid = static_cast<std::int64_t>(events_);
    write_at(offsets_.valid_events, &valid, sizeof valid);
}

void TraceWriter::append(const RowBatch& batch) {
    const std::size_t count = batch.steps.size(), ranks = header_.ranks.size(), cells = ranks * header_.regions.size();
    LOCKSTEP_ASSERT(batch.rank_loss.size() == count * ranks && batch.overhead.size() == count * ranks);
    LOCKSTEP_ASSERT(batch.times.size() == count * cells && batch.calls.size() == count * cells);
    LOCKSTEP_ASSERT(batch.memory.size() == count * ranks * 3);
    for (std::size_t first = 0; first < count;) {
        const bool events_do_not_fit = events_ > 0 && batch.events.size() > event_capacity_ - events_;
        if (rows_ == row_capacity_ || (rows_ > 0 && events_do_not_fit)) {
            close_descriptor();
            full_.push_back({path_, header_, offsets_, rows_, row_capacity_, events_, event_capacity_});
            ++header_.part;
            begin_file();
        }
        const std::size_t now = std::min<std::size_t>(count - first, row_capacity_ - rows_);
        write_rows(batch, first, now);
        first += now;
    }
    // Events last: an event's step is then always among the rows of this file or the previous one.
    write_events(batch.events);
}

void TraceWriter::add_to_last_row(const std::vector<double>& times, const std::vector<std::uint32_t>& calls,
                                  const std::vector<double>& overhead) {
    LOCKSTEP_ASSERT(rows_ > 0);
    const auto add = [&](std::uint64_t dataset, const auto& values) {
        if (values.empty()) return;
        const std::size_t bytes = values.size() * sizeof(values[0]);
        const std::uint64_t offset = dataset + (rows_ - 1) * bytes;
        auto sums = values;
        read_at(offset, sums.data(), bytes);
        for (std::size_t i = 0; i < values.size(); ++i) sums[i] += values[i];
        write_at(offset, sums.data(), bytes);
    };
    add(offsets_.times, times);
    add(offsets_.calls, calls);
    add(offsets_.overhead, overhead);
}

void TraceWriter::trim(const Done& file) {
    // Rows are in order, so a shorter dataset is a prefix of the longer one.
    const std::string shorter = file.path + ".tmp";
    const Offsets to = lay_out(shorter, file.header, file.rows, file.events);
    const Offsets& from = file.offsets;
    const std::uint64_t ranks = file.header.ranks.size(), cells = ranks * file.header.regions.size();
    const Descriptor source(file.path, O_RDONLY);
    Descriptor target(shorter, O_RDWR);
    std::vector<char> piece;
    const auto copy = [&](std::uint64_t source_offset, std::uint64_t target_offset, std::uint64_t bytes) {
        constexpr std::uint64_t most = std::uint64_t{8} << 20;
        for (std::uint64_t done = 0; done < bytes; done += piece.size()) {
            piece.resize(std::min(most, bytes - done));
            read_all(source.get(), file.path, source_offset + done, piece.data(), piece.size());
            write_all(target.get(), shorter, target_offset + done, piece.data(), piece.size());
        }
    };
    copy(from.steps, to.steps, file.rows * sizeof(StepRow));
    copy(from.rank_loss, to.rank_loss, file.rows * ranks * sizeof(double));
    copy(from.times, to.times, file.rows * cells * sizeof(double));
    copy(from.calls, to.calls, file.rows * cells * sizeof(std::uint32_t));
    copy(from.memory, to.memory, file.rows * ranks * 3 * sizeof(std::uint64_t));
    copy(from.overhead, to.overhead, file.rows * ranks * sizeof(double));
    copy(from.events, to.events, file.events * sizeof(EventRow));
    const auto rows = static_cast<std::int64_t>(file.rows), events = static_cast<std::int64_t>(file.events);
    const std::int64_t closed = 1;
    write_all(target.get(), shorter, to.valid_steps, &rows, sizeof rows);
    write_all(target.get(), shorter, to.valid_events, &events, sizeof events);
    write_all(target.get(), shorter, to.closed, &closed, sizeof closed);
    target.sync_and_close();
    rename_file(shorter, file.path);
}

void TraceWriter::finish() {
    close_descriptor();
    full_.push_back({path_, header_, offsets_, rows_, row_capacity_, events_, event_capacity_});
    for (const Done& file : full_) trim(file);
    full_.clear();
}

}  // namespace lockstep::trace
